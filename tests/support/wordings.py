"""What the project says in words, kept in one file for each folder of tests, `wordings.txt`.

A test asserts names of rules, codes and values by itself, and gives the whole text to
`check_wording`. REWRITE=1 writes the files anew, to be reviewed as a diff.
"""

import fcntl
import os
import re
from pathlib import Path

from lb_stream import __version__

PROJECT = Path(__file__).parents[2]
REWRITE = os.environ.get("REWRITE") == "1"
HEADING = "## "

_TEMPORARY = re.compile(
    r"/[^\s'\"=:]*?/pytest-of-[^/]+/pytest-\d+(/popen-gw\d+)?/[\w.-]+?\d*(?=[/\s'\":,;)]|$)"
)
_PORT = re.compile(r"(?<=127\.0\.0\.1:)\d{4,5}\b")
_TOPIC = re.compile(r"-[0-9a-f]{8}-\d*(?![0-9a-f-])")  # the end of a name of tests/conftest.py

_current: tuple[str, int] = ("", 0)  # the test under way, and how many texts it has checked


def read_wordings(path: Path) -> dict[str, str]:
    """Return what a file holds: test → text. A test's second text has ` 2` after its name."""
    found: dict[str, str] = {}
    if path.exists():
        for part in path.read_text(encoding="utf-8").split(f"\n{HEADING}")[1:]:
            name, _, text = part.partition("\n")
            found[name] = "\n".join(
                line.removeprefix("    ") for line in text.rstrip("\n").split("\n")
            )
    return found


def check_wording(said: object) -> None:
    """Assert that a text is the one that the current test's folder keeps for it."""
    global _current  # noqa: PLW0603
    test = os.environ["PYTEST_CURRENT_TEST"].rpartition(" (")[0].replace("\\", "/")
    _current = (test, _current[1] + 1 if _current[0] == test else 1)
    module, _, function = test.partition("::")
    path = PROJECT / Path(module).with_name("wordings.txt")
    name = f"{Path(module).name}::{function}"
    number = _current[1]
    key = name if number == 1 else f"{name} {number}"
    text = _without_places(str(said))
    if REWRITE:
        _write(path, name, key, text, first=number == 1)
    assert text == read_wordings(path).get(key, ""), (
        f"the wording differs from {path.relative_to(PROJECT)}: if that is meant, REWRITE=1"
    )


def _without_places(text: str) -> str:
    """Return the text without what differs between runs: folders, ports, ends of topics' names,
    this version."""
    text = _TEMPORARY.sub("TMP", text).replace(str(PROJECT), "PROJECT")
    text = _PORT.sub("PORT", text).replace(f"lb_stream {__version__}", "lb_stream VERSION")
    text = _TOPIC.sub("-RUN", text)
    return "\n".join(line.rstrip() for line in text.strip("\n").split("\n"))


def _write(path: Path, name: str, key: str, text: str, *, first: bool) -> None:
    """Put one text into a file; the first one of a test removes what the test had there.

    What belongs to a module that is gone goes, too.
    """
    path.touch()
    with path.open("r+", encoding="utf-8") as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # processes of pytest-xdist write the same file
        kept = read_wordings(path)
        if first:
            own = re.compile(rf"{re.escape(name)}( \d+)?")
            kept = {other: said for other, said in kept.items() if not own.fullmatch(other)}
        kept = {
            other: said
            for other, said in kept.items()
            if (path.parent / other.partition("::")[0]).exists()
        }
        kept[key] = text
        parts = [
            f"\n{HEADING}{other}\n"
            + "".join(f"    {line}".rstrip() + "\n" for line in said.split("\n"))
            for other, said in sorted(kept.items())
        ]
        file.seek(0)
        file.write(
            "What the tests of this folder expect in words. REWRITE=1 writes it.\n" + "".join(parts)
        )
        file.truncate()
