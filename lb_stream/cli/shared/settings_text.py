"""Settings as text: keys and values as TOML writes them."""

from __future__ import annotations

import json
from typing import Any


def format_key(name: str) -> str:
    """A key of a cluster's as TOML writes it: those of namespaces have a part that needs quotes."""
    from lb_stream.settings.spelling import PREFIX, split_namespace_key

    if not name.startswith(PREFIX):
        return name
    namespace, own = split_namespace_key(name, None)
    return f"{PREFIX}{json.dumps(namespace)}.{own}"


def format_toml(value: Any) -> str:
    """A value as TOML writes it."""
    if isinstance(value, dict):
        return (
            "{"
            + ", ".join(f"{json.dumps(name)} = {format_toml(item)}" for name, item in value.items())
            + "}"
        )
    return json.dumps(value, ensure_ascii=False)
