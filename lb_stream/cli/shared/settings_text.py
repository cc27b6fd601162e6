"""Settings as text: values as TOML writes them, secrets as stars."""

from __future__ import annotations

import json
from typing import Any

from lb_stream.io.messages.secrets import hide, is_file, is_secret


def hidden(section: str, values: dict[str, Any]) -> dict[str, Any]:
    """A section's values to be shown: secrets are stars, also where they stand within another
    value."""
    return {name: _hidden((section, name), value) for name, value in values.items()}


def _hidden(path: tuple[str, ...], value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _hidden((*path, name), item) for name, item in value.items()}
    secret = is_secret(path) and value != "" and not is_file(path, value)
    return "***" if secret else hide(value) if isinstance(value, str) else value


def as_key(name: str) -> str:
    """A key of a cluster's as TOML writes it: those of namespaces have a part that needs quotes."""
    from lb_stream.core.config.namespaces import PREFIX, namespace_key

    if not name.startswith(PREFIX):
        return name
    namespace, own = namespace_key(name, None)
    return f"{PREFIX}{json.dumps(namespace)}.{own}"


def as_toml(value: Any) -> str:
    """A value as TOML writes it."""
    if isinstance(value, dict):
        return (
            "{"
            + ", ".join(f"{json.dumps(name)} = {as_toml(item)}" for name, item in value.items())
            + "}"
        )
    return json.dumps(value, ensure_ascii=False)
