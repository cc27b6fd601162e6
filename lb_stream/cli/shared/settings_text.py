"""Formats settings as TOML."""

from __future__ import annotations

import json


def format_key(name: str) -> str:
    """Return a key as TOML; a namespace's key has a part in quotes."""
    from lb_stream.settings.spelling import PREFIX, split_namespace_key

    if not name.startswith(PREFIX):
        return name
    namespace, own = split_namespace_key(name, None)
    return f"{PREFIX}{json.dumps(namespace)}.{own}"


def format_toml(value: object) -> str:
    """Return a value as TOML."""
    if isinstance(value, dict):
        return (
            "{"
            + ", ".join(f"{json.dumps(name)} = {format_toml(item)}" for name, item in value.items())
            + "}"
        )
    return json.dumps(value, ensure_ascii=False)
