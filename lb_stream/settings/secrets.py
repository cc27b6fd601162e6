"""Secrets among the settings: learned where settings are read, hidden wherever a line is shown or
logged, whoever made it."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

PUBLIC_OPTIONS = frozenset(
    {
        "security_protocol",
        "sasl_mechanism",
        "sasl_plain_username",
        "client_id",
        "request_timeout_ms",
    }
    | {"ssl_check_hostname", "ssl_cafile", "ssl_certfile", "ssl_keyfile", "sasl_oauth_token_file"}
)
"""Of a Kafka client's options those that may be shown.

What isn't known (a misspelt password, say) may not.
"""

_PUBLIC_OF_STORES = re.compile(
    r"^((aws_|google_|azure_)?(storage_)?(endpoint|endpoint_url|region|default_region|allow_http|account_name|bucket(_name)?|timeout)"
    r"|fs\.s3a\.(endpoint|endpoint\.region|path\.style\.access|connection\.[a-z.]+))$",
    re.IGNORECASE,
)
"""The same of an object store's options."""

FROM_FILE = "file:"
"""What the value of a setting begins with that stands in a file: its path follows, which is no
secret."""

PUBLIC_BESIDE_ADDRESSES = {
    "notify": frozenset(
        {
            "routes",
            "state_file",
            "poll_interval_ms",
            "group_wait_ms",
            "min_message_interval_ms",
            "repeat_interval_ms",
            "resolve_after_ms",
            "max_messages_per_hour",
        }
        | {
            "timeout_ms",
            "quiet_windows",
            "urgent",
            "imbalance_points",
            "imbalance_for_ms",
            "failed_moves",
            "failed_moves_window_ms",
        }
    ),
    "hooks": frozenset({"timeout_ms", "unanswered"}),
}
"""Sections with addresses, which may hold passwords and tokens anywhere, and what of them may be
shown; a misspelt key may not."""

SHORTEST = 4
"""Shorter texts are hidden where they stand, but not searched for in others: they would be found
everywhere."""

_NAMED = re.compile(r"passw|secret|token|credential|jaas", re.IGNORECASE)
_USER_INFO = re.compile(r"(?<=://)[^/\s@]+@")  # s3://key:secret@bucket
_known: set[str] = set()


def is_secret(path: tuple[str, ...]) -> bool:
    """Whether a setting that stands there may not be shown."""
    if path[:2] == ("stream", "store_options") and len(path) > 2:
        return not _PUBLIC_OF_STORES.search(path[-1])
    if path[:2] == ("kafka", "options"):
        return path[-1] not in PUBLIC_OPTIONS
    if path[0] in PUBLIC_BESIDE_ADDRESSES:
        return len(path) == 1 or path[1] not in PUBLIC_BESIDE_ADDRESSES[path[0]]
    return bool(_NAMED.search(path[-1]))


def is_secret_file(path: tuple[str, ...], value: Any) -> bool:
    """Whether the value says which file holds the secret.

    So it is for addresses of targets and hooks, and for what signs them.
    """
    return (
        path[0] in PUBLIC_BESIDE_ADDRESSES
        and isinstance(value, str)
        and value.startswith(FROM_FILE)
    )


def remember_secrets(path: tuple[str, ...], value: Any) -> None:
    """Remember what is secret of a setting, or of a section with settings in it."""
    if isinstance(value, Mapping):
        for name, item in value.items():
            remember_secrets((*path, str(name)), item)
    elif (
        is_secret(path)
        and len(text := str(value)) >= SHORTEST
        and not isinstance(value, bool)
        and not is_secret_file(path, text)
    ):
        _known.update((text, repr(text)[1:-1], json.dumps(text)[1:-1]))


def hide(text: str) -> str:
    """A text with stars in the place of each secret."""
    for secret in sorted(_known, key=len, reverse=True):
        text = text.replace(secret, "***")
    return _USER_INFO.sub("***@", text)


def hide_section(section: str, values: dict[str, Any]) -> dict[str, Any]:
    """A section's values to be shown: secrets are stars, also where they stand within another value."""
    return {name: _hide_value((section, name), value) for name, value in values.items()}


def _hide_value(path: tuple[str, ...], value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _hide_value((*path, name), item) for name, item in value.items()}
    secret = is_secret(path) and value != "" and not is_secret_file(path, value)
    return "***" if secret else hide(value) if isinstance(value, str) else value
