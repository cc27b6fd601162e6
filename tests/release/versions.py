"""What names the project's version must name the same one: lb_stream.__version__."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ROOM = ("README.md", "conf", "docs")
"""Files and folders in which images may be named."""
HEADING = re.compile(r"^## \[?([^\]\s]+)\]?(?: - (\d{4}-\d\d-\d\d))?$", re.MULTILINE)
IMAGE = re.compile(r"\blb-stream(?:-agent)?:([\w.-]+)")
LABEL = re.compile(r"app\.kubernetes\.io/version: \"?([\w.-]+)")
CHART = "conf/deploy/chart/Chart.yaml"


@dataclass(frozen=True)
class Named:
    """A version that a file names, and what it is the version of."""

    file: str
    what: str
    version: str


def read_version(project: Path) -> str:
    """Return lb_stream.__version__ of a folder."""
    text = (project / "lb_stream" / "__init__.py").read_text(encoding="utf-8")
    (version,) = re.findall(r'^__version__ = "(.+)"$', text, re.MULTILINE)
    return version


def find_named(project: Path) -> list[Named]:
    """Return every version of this project that its files name."""
    chart = (project / CHART).read_text(encoding="utf-8")
    found = [
        Named(CHART, key, version)
        for key, version in re.findall(r'^(version|appVersion): "?([^"\n]+)', chart, re.MULTILINE)
    ]
    changes = HEADING.search((project / "CHANGELOG.md").read_text(encoding="utf-8"))
    found.append(Named("CHANGELOG.md", "first heading", changes[1] if changes else "none"))
    for path in _text_files(project):
        name, text = path.relative_to(project).as_posix(), path.read_text(encoding="utf-8")
        found += [Named(name, "image", version) for version in IMAGE.findall(text)]
        found += [Named(name, "label", version) for version in LABEL.findall(text)]
    return found


def find_faults(project: Path) -> list[str]:
    """Return a line for each version that is another one than the project's."""
    expected = read_version(project)
    faults = [
        f"{named.file}: {named.what} is {named.version}, expected {expected}"
        for named in find_named(project)
        if named.version != expected
    ]
    return list(dict.fromkeys(faults))


def read_notes(changes: str, version: str) -> tuple[str, str]:
    """Return the date and the text of a version's section of the changelog; "" without a date.

    Raises ValueError: there is no such section, or it is empty.
    """
    heads = list(HEADING.finditer(changes))
    for head, following in zip(heads, [*heads[1:], None], strict=True):
        if head[1] == version:
            text = changes[head.end() : following.start() if following else None].strip()
            if text:
                return head[2] or "", text + "\n"
    raise ValueError(f"CHANGELOG.md: no section {version} with text")


def _text_files(project: Path) -> list[Path]:
    suffixes = ("", ".agent", ".md", ".yaml", ".sh", ".service")
    return [
        path
        for name in ROOM
        for path in sorted([project / name, *(project / name).rglob("*")])
        if path.is_file() and path.suffix in suffixes
    ]
