"""Reads files of settings, and finds files of secrets that other users can open."""

from __future__ import annotations

import re
import stat
from collections.abc import Iterable, Iterator, Mapping
from importlib.resources import files
from pathlib import Path

from lb_stream.contracts.keys import SettingError
from lb_stream.settings.secrets import (
    FROM_FILE,
    SERVERS,
    is_secret,
    is_secret_file,
    remember_secrets,
)

PACKAGE = Path(str(files("lb_stream")))

CONF = (PACKAGE / "conf").resolve()
"""The files of conf: a link to the clone's folder; in an installed package a copy."""


def find_home() -> Path:
    """Return the clone that holds this package; if it is installed, the current folder."""
    clone = PACKAGE.parent
    return clone if (clone / "pyproject.toml").is_file() else Path.cwd()


_PROPERTY = re.compile(r"^[ \t]*([^#!=:\s][^=:\s]*)(?:[ \t]*[=:][ \t]*|[ \t]+)(.*)$", re.MULTILINE)
"""A line of Java's properties: `key=value`, `key: value`, `key value`, or a comment (#, !)."""
_CONTINUED = re.compile(r"\\\r?\n[ \t]*")

KEY_FILES = ("ssl_keyfile", "ssl_certfile", "sasl_oauth_token_file")
"""Options of a Kafka client whose value names a file that holds, or may hold, a secret."""
CERTIFICATES = ("ssl_certfile", "tls_cert")
"""Settings whose files hold a private key only sometimes."""
PRIVATE_KEY = b"PRIVATE KEY-----"


def read_setting_file(path: Path, option: str) -> str:
    """Return a file's text. Raises SettingError, which names the option that gave the file."""
    try:
        return path.read_text()
    except OSError as error:
        raise SettingError(
            option, str(path), f"a file that can be read ({error.strerror})"
        ) from None
    except UnicodeDecodeError:
        raise SettingError(option, str(path), "a text file in UTF-8") from None


def read_secret(path: tuple[str, ...], value: str) -> str:
    """Return a setting's value; for file:PATH the file's one line, which is remembered as secret.

    Raises SettingError.
    """
    if not value.startswith(FROM_FILE):
        return value
    key = ".".join(path)
    text = read_setting_file(Path(value.removeprefix(FROM_FILE)), key).strip()
    if not text or len(text.splitlines()) != 1:
        raise SettingError(key, value, "a file with one line in it")
    remember_secrets(path, text)
    return text


def parse_properties(text: str) -> list[tuple[str, str]]:
    """Return the keys and values of a text in the format of Java's properties, in their order."""
    found: list[tuple[str, str]] = _PROPERTY.findall(_CONTINUED.sub("", text))
    return found


# --- secrets ---


def describe_exposure(path: Path, holds: str) -> str:
    """Describe that other users can open a file of secrets, and what to do; empty: they can't.

    `holds`: what is in the file. A missing file is not exposed; reading it raises an error.
    """
    try:
        mode = stat.S_IMODE(path.stat().st_mode)
    except OSError:
        return ""
    rights = ((stat.S_IROTH, "read"), (stat.S_IWOTH, "change"))
    verbs = " and ".join(verb for bit, verb in rights if mode & bit)
    if not verbs:
        return ""
    return (
        f"{path} holds {holds}, and every user of this machine can {verbs} it (mode {mode:04o}): "
        f"chmod 600 {path}"
    )


def find_exposures(
    values: Mapping[tuple[str, ...], object], sources: Mapping[Path, Iterable[tuple[str, ...]]]
) -> Iterator[str]:
    """Describe each file of secrets that others can open: files of settings, and named files.

    `values`: all given settings. `sources`: file of settings → the settings in it. A file that is
    not exposed gives an empty text.
    """
    for path, settings in sources.items():
        secrets = [
            ".".join(name)
            for name in settings
            if is_secret(name)
            and not is_secret_file(name, values.get(name))
            and values.get(name) != ""
        ]
        if secrets:
            yield describe_exposure(path, f"secrets ({', '.join(secrets)})")
    for name, value in values.items():
        if is_secret_file(name, value):
            secret = Path(str(value).removeprefix(FROM_FILE))
            yield describe_exposure(secret, f"a secret ({'.'.join(name)})")
        elif _names_key_file(name):
            path = Path(str(value))
            if name[-1] not in CERTIFICATES or has_private_key(path):
                yield describe_exposure(path, f"a secret ({'.'.join(name)})")


def _names_key_file(name: tuple[str, ...]) -> bool:
    """Return whether a setting names a file with a private key or a token."""
    if name[0] in SERVERS:
        return name[-1] in ("tls_cert", "tls_key")
    return name[:2] == ("kafka", "options") and name[-1] in KEY_FILES


def has_private_key(path: Path) -> bool:
    """Return whether a PEM file holds a private key beside its certificates."""
    try:
        return PRIVATE_KEY in path.read_bytes()
    except OSError:
        return False
