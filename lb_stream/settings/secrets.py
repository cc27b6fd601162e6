"""Secrets among the settings: remembered where settings are read, hidden in all lines and logs."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

PUBLIC_OPTIONS = frozenset(
    {
        "security_protocol",
        "sasl_mechanism",
        "sasl_plain_username",
        "client_id",
        "request_timeout_ms",
        "ssl_check_hostname",
        "ssl_cafile",
        "ssl_certfile",
        "ssl_keyfile",
        "sasl_oauth_token_file",
    }
)
"""Options of a Kafka client that may be shown. All others may not: one could be a misspelt
password."""

_PUBLIC_OF_STORES = re.compile(
    r"^((aws_|google_|azure_)?(storage_)?"
    r"(endpoint|endpoint_url|region|default_region|allow_http|account_name|bucket(_name)?|timeout)"
    r"|fs\.s3a\.(endpoint|endpoint\.region|path\.style\.access|connection\.[a-z.]+))$",
    re.IGNORECASE,
)
"""Options of an object store that may be shown."""

FROM_FILE = "file:"
"""Prefix of a value that names the file which holds a secret. The path itself is no secret."""

PUBLIC_BESIDE_SECRETS = {
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
    "security": frozenset({"signers", "rights", "commands", "reports", "decisions", "window_ms"}),
}
"""Section whose values may be keys, or addresses with passwords → its keys that may be shown."""

SERVERS = ("console", "lookup", "metrics", "oidc")
"""Sections of servers; a secret of theirs may be in a file, too."""

SHORTEST = 4
"""Characters of the shortest secret that is hidden inside of other texts, too.

Shorter ones would be found everywhere; they are hidden only as the value of their own key.
"""

_NAMED = re.compile(r"passw|passphrase|secret|token|credential|jaas", re.IGNORECASE)
_USER_INFO = re.compile(r"(?<=://)[^/\s@]+@")  # s3://key:secret@bucket
_remembered: set[str] = set()


def is_secret(path: tuple[str, ...]) -> bool:
    """Return whether the setting at this path may not be shown."""
    if path[:2] == ("stream", "store_options") and len(path) > 2:
        return not _PUBLIC_OF_STORES.search(path[-1])
    if path[:2] == ("kafka", "options"):
        return path[-1] not in PUBLIC_OPTIONS
    if path[0] in PUBLIC_BESIDE_SECRETS:
        return len(path) == 1 or path[1] not in PUBLIC_BESIDE_SECRETS[path[0]]
    return bool(_NAMED.search(path[-1]))


def is_secret_file(path: tuple[str, ...], value: object) -> bool:
    """Return whether the value names the file that holds the secret.

    Addresses of targets and hooks may be given in this form, keys, and passphrases of servers.
    """
    return (
        (path[0] in PUBLIC_BESIDE_SECRETS or (path[0] in SERVERS and is_secret(path)))
        and isinstance(value, str)
        and value.startswith(FROM_FILE)
    )


def remember_secrets(path: tuple[str, ...], value: object) -> None:
    """Remember the secrets in a setting, or in a section of settings."""
    if isinstance(value, Mapping):
        for name, item in value.items():
            remember_secrets((*path, str(name)), item)
    elif (
        is_secret(path)
        and len(text := str(value)) >= SHORTEST
        and not isinstance(value, bool)
        and not is_secret_file(path, text)
    ):
        _remembered.update((text, repr(text)[1:-1], json.dumps(text)[1:-1]))


def hide(text: str) -> str:
    """Return a text with stars in the place of each secret."""
    for secret in sorted(_remembered, key=len, reverse=True):
        text = text.replace(secret, "***")
    return _USER_INFO.sub("***@", text)


def hide_section(section: str, values: Mapping[str, object]) -> dict[str, object]:
    """Return a section's values with stars in the place of secrets, also inside of other values."""
    return {name: _hide_value((section, name), value) for name, value in values.items()}


def _hide_value(path: tuple[str, ...], value: object) -> object:
    if isinstance(value, dict):
        return {name: _hide_value((*path, name), item) for name, item in value.items()}
    if is_secret(path) and value != "" and not is_secret_file(path, value):
        return "***"
    return hide(value) if isinstance(value, str) else value
