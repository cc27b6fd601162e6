"""Turns exceptions into an exit code and one line for users, which says what to do."""

from __future__ import annotations

import re

from lb_stream.io.messages.missing_packages import describe_missing_package

EXIT_CODES = {
    **dict.fromkeys(
        (
            "SettingError",
            "ScenarioError",
            "PolicyError",
            "SuggestError",
            "JavaUnfit",
            "TopicMismatch",
            "MissingPackageError",
        ),
        2,
    ),
    **dict.fromkeys(("LoginRefused", "LoginDenied"), 2),
    **dict.fromkeys(
        ("JarsError", "KafkaError", "KafkaUnavailable", "StreamError", "AccessRefusal"), 1
    ),
}
"""Name of an exception class of this package, whose text is made for users → exit code.

Classes are known by name, because their modules may be slow to import.
"""

_DISK_FULL = re.compile(r"No space left on device|Disk quota exceeded")
_NO_ENTRY = re.compile(r"Read-only file system|Permission denied|Operation not permitted")
_PATH = re.compile(r"(?:file:)?(/[^\s'\":,;()]+)")


def describe_error(error: BaseException) -> tuple[str, int] | None:
    """Return the line and the exit code; None for an unforeseen exception."""
    ours = (
        kind.__name__ for kind in type(error).__mro__ if kind.__module__.startswith("lb_stream.")
    )
    if code := next((EXIT_CODES[name] for name in ours if name in EXIT_CODES), 0):
        return str(error), code
    if line := describe_missing_package(error):
        return line, 2
    text = "\n".join(map(str, error_chain(error)))
    where = _where(error)
    if line := describe_disk_error(error):
        return line, 1
    if type(error).__module__.partition(".")[0] in _TABLES or type(error).__name__ in (
        "DeltaError",
        "TableNotFoundError",
    ):
        reason = text.splitlines()[0].strip()
        return (
            f"a table can't be read{where} ({reason}): `lbctl tables rebuild` writes all tables "
            "but the log again",
            1,
        )
    if type(error).__name__ == "Py4JNetworkError":
        return "Spark's JVM has ended: the lines above say why", 1
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename or 'input or output'}: {error.strerror}", 1
    return None


def describe_disk_error(error: BaseException) -> str:
    """Return the line for a disk that can't be written to; empty for every other error."""
    text = "\n".join(map(str, error_chain(error)))
    if _DISK_FULL.search(text):
        return (
            f"the disk is full{_where(error)}: make room there, then start again; what has been "
            "written stays good"
        )
    if found := _NO_ENTRY.search(text):
        return (
            f"{found[0]}{_where(error)}: give this user the right to write there, or name "
            "another folder"
        )
    return ""


_TABLES = ("deltalake", "pyarrow", "duckdb", "_duckdb")


def error_chain(error: BaseException | None) -> list[BaseException]:
    """Return an error and its causes, newest first. An error may have itself as its cause."""
    found: list[BaseException] = []
    while error is not None and all(error is not earlier for earlier in found):
        found.append(error)
        error = error.__cause__ or error.__context__
    return found


def _where(error: BaseException) -> str:
    if isinstance(error, OSError) and error.filename:
        return f" at {error.filename}"
    # Further lines of a text name source files.
    first_lines = [str(cause).partition("\n")[0] for cause in error_chain(error)]
    found = _PATH.search("\n".join(first_lines))
    return f" at {found[1]}" if found else ""
