"""Files that settings are read from: those of the package, text, Java's properties, and who can
open their secrets."""

from __future__ import annotations

import re
import stat
from collections.abc import Iterable, Iterator, Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any

from lb_stream.contracts.keys import SettingError
from lb_stream.settings.secrets import FROM_FILE, is_secret, is_secret_file, remember_secrets

PACKAGE = Path(str(files("lb_stream")))

CONF = (PACKAGE / "conf").resolve()
"""The settings that ship: in a clone the folder conf, to which lb_stream/conf links; in an
installed package a copy of its files."""


def find_home() -> Path:
    """The clone that this package is part of. Installed from a wheel: the current folder."""
    clone = PACKAGE.parent
    return clone if (clone / "pyproject.toml").is_file() else Path.cwd()


_PROPERTY = re.compile(r"^[ \t]*([^#!=:\s][^=:\s]*)(?:[ \t]*[=:][ \t]*|[ \t]+)(.*)$", re.MULTILINE)
"""A line of Java's properties: `key=value`, `key: value` or `key value`; those that begin with # or
! are comments."""
_CONTINUED = re.compile(r"\\\r?\n[ \t]*")

KEY_FILES = ("ssl_keyfile", "ssl_certfile", "sasl_oauth_token_file")
"""Of a Kafka client's options those that name a file with a secret in it, or that may."""
PRIVATE_KEY = b"PRIVATE KEY-----"


def read_setting_file(path: Path, option: str) -> str:
    """A file's text. Raises SettingError, which names the option that the file was given by."""
    try:
        return path.read_text()
    except OSError as error:
        raise SettingError(
            option, str(path), f"a file that can be read ({error.strerror})"
        ) from None
    except UnicodeDecodeError:
        raise SettingError(option, str(path), "a text file in UTF-8") from None


def read_secret(path: tuple[str, ...], value: str) -> str:
    """A setting that may stand in a file (file:PATH), which is read now; what it holds is hidden
    from here on. Raises SettingError."""
    if not value.startswith(FROM_FILE):
        return value
    key = ".".join(path)
    text = read_setting_file(Path(value.removeprefix(FROM_FILE)), key).strip()
    if not text or len(text.splitlines()) != 1:
        raise SettingError(key, value, "a file with one line in it")
    remember_secrets(path, text)
    return text


def parse_properties(text: str) -> list[tuple[str, str]]:
    """Keys and values in their order, as Java's properties have them."""
    found: list[tuple[str, str]] = _PROPERTY.findall(_CONTINUED.sub("", text))
    return found


# --- secrets ---


def describe_exposure(path: Path, holds: str) -> str:
    """Say that other users can open a file of secrets, and what to do; empty when they can't.

    `holds`: what is in it. A file that isn't there has no exposure: whoever reads it says so.
    """
    try:
        mode = stat.S_IMODE(path.stat().st_mode)
    except OSError:
        return ""
    can = [verb for bit, verb in ((stat.S_IROTH, "read"), (stat.S_IWOTH, "change")) if mode & bit]
    if not can:
        return ""
    who = f"every user of this machine can {' and '.join(can)} it"
    return f"{path} holds {holds}, and {who} (mode {mode:04o}): chmod 600 {path}"


def find_exposures(
    values: Mapping[tuple[str, ...], Any], sources: Mapping[Path, Iterable[tuple[str, ...]]]
) -> Iterator[str]:
    """Describe each file of secrets that others can open: the settings' files and those they name.

    `values`: every setting that was given. `sources`: file of settings → the settings in it.
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
            secret = Path(value.removeprefix(FROM_FILE))
            yield describe_exposure(secret, f"a secret ({'.'.join(name)})")
        elif name[:2] == ("kafka", "options") and name[-1] in KEY_FILES:
            path = Path(str(value))
            if name[-1] != "ssl_certfile" or has_private_key(path):
                yield describe_exposure(path, f"a secret ({'.'.join(name)})")


def has_private_key(path: Path) -> bool:
    """Whether a PEM file holds a private key beside its certificates."""
    try:
        return PRIVATE_KEY in path.read_bytes()
    except OSError:
        return False
