"""The files that settings are read from: text, and Java's properties."""

from __future__ import annotations

import re
from pathlib import Path

from lb_stream.contracts.keys import SettingError
from lb_stream.io.messages.secrets import FROM_FILE, learn

_PROPERTY = re.compile(r"^[ \t]*([^#!=:\s][^=:\s]*)(?:[ \t]*[=:][ \t]*|[ \t]+)(.*)$", re.MULTILINE)
"""A line of Java's properties: `key=value`, `key: value` or `key value`; those that begin with # or ! are comments."""
_CONTINUED = re.compile(r"\\\r?\n[ \t]*")


def text_of(path: Path, option: str) -> str:
    """A file's text. Raises SettingError, which names the option that the file was given by."""
    try:
        return path.read_text()
    except OSError as error:
        raise SettingError(option, str(path), f"a file that can be read ({error.strerror})") from None
    except UnicodeDecodeError:
        raise SettingError(option, str(path), "a text file in UTF-8") from None


def secret_of(path: tuple[str, ...], value: str) -> str:
    """A setting that may stand in a file (file:PATH), which is read now; what it holds is hidden from here on. Raises SettingError."""
    if not value.startswith(FROM_FILE):
        return value
    key = ".".join(path)
    text = text_of(Path(value.removeprefix(FROM_FILE)), key).strip()
    if not text or len(text.splitlines()) != 1:
        raise SettingError(key, value, "a file with one line in it")
    learn(path, text)
    return text


def properties(text: str) -> list[tuple[str, str]]:
    """Keys and values in their order, as Java's properties have them."""
    found: list[tuple[str, str]] = _PROPERTY.findall(_CONTINUED.sub("", text))
    return found
