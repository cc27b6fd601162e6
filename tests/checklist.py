"""The systems that Pulsar's documentation names, and the tests that show them: `python -m
tests.checklist [--json]` prints the list.

Exit code 1 when a row has no test, or names one that pytest doesn't collect. Nothing is run: no JVM
is needed.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tomllib
from collections.abc import Collection, Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

PROJECT = Path(__file__).parents[1]
LIST = Path(__file__).with_suffix(".toml")
SMALL = (
    "a an and any are as at by for from in is it its no not of on one or that the to where "
    "with without"
)
"""Words that say nothing of a subject."""
ENDINGS = ("ing", "ed", "es", "s", "e")
SHORTEST_STEM = 4
NARROWEST, WIDEST = 100, 1000
"""Columns of a terminal's screen, at least; and of a file, in which no name is broken."""


@dataclass(frozen=True, slots=True)
class Row:
    """One system.

    `says`: what the name of one of its tests must say; `tests`: pytest's node ids, without [...]
    all cases.
    """

    section: str
    name: str
    says: str
    tests: tuple[str, ...]


def read_rows(text: str) -> list[Row]:
    """The rows of the list, in its order.

    Raises ValueError for one that is no list of tests and no { says, tests }.
    """
    rows = []
    for section, content in tomllib.loads(text).items():
        for name, given in content.items():
            row: dict[str, Any] = (
                {"tests": given}
                if isinstance(given, list)
                else dict(given)
                if isinstance(given, dict)
                else {}
            )
            tests = row.get("tests")
            if (
                not isinstance(tests, list)
                or not row.keys() <= {"says", "tests"}
                or not all(isinstance(test, str) for test in tests)
            ):
                raise ValueError(
                    f"[{section}] {name} = {given!r}: expected a list of tests, or {{ says = TEXT, "
                    f"tests = [TEST, ...] }}"
                )
            rows.append(Row(section, name, row.get("says", name), tuple(tests)))
    return rows


def collect(files: Iterable[str]) -> set[str]:
    """The node ids that pytest collects from the files.

    Raises RuntimeError with pytest's own words where it can't.
    """
    command = [
        sys.executable,
        "-m",
        "pytest",
        "--collect-only",
        "-q",
        "-p",
        "no:cacheprovider",
        *sorted(files),
    ]
    done = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(
            f"pytest could not collect the tests:\n{(done.stdout + done.stderr).strip()}"
        )
    return {line for line in done.stdout.splitlines() if "::" in line}


def faults_of(rows: Sequence[Row], nodes: Collection[str]) -> list[str]:
    """A line for each row without a test, and for each test that isn't there."""
    known = {*nodes, *(node.partition("[")[0] for node in nodes)}
    faults = [
        f"[{row.section}] {row.name}: no test shows it; name one in tests/{LIST.name}"
        for row in rows
        if not row.tests
    ]
    return faults + [
        f"[{row.section}] {row.name}: there is no test {test}; was it renamed?"
        for row in rows
        for test in row.tests
        if test not in known
    ]


def words(text: str) -> list[str]:
    """The words of a name, whether they are written apart, with_underscores or InCamelCase; small
    ones left out."""
    apart = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", text.replace("'s", "s"))
    return [word for word in re.findall(r"[a-z0-9]+", apart.lower()) if word not in SMALL.split()]


def unsaid(subject: str, test: str) -> list[str]:
    """The words of the subject that the test's name (with its case in [...]) doesn't have, in
    whatever form."""
    said = {_stem(word) for word in words(test.partition("::")[2])}
    return [word for word in words(subject) if not any(_alike(_stem(word), one) for one in said)]


def _stem(word: str) -> str:
    for ending in ENDINGS:
        if word.endswith(ending) and len(word) - len(ending) >= SHORTEST_STEM:
            return word.removesuffix(ending)
    return word


def _alike(one: str, other: str) -> bool:
    return one == other or (
        min(len(one), len(other)) >= SHORTEST_STEM
        and (one.startswith(other) or other.startswith(one))
    )


def shown(rows: Sequence[Row]) -> Iterable[Table]:
    """A table for each section."""
    for section in dict.fromkeys(row.section for row in rows):
        table = Table(title=section, title_justify="left", show_lines=True)
        table.add_column("system", overflow="fold")
        table.add_column("tests", overflow="fold")
        for row in rows:
            if row.section == section:
                table.add_row(escape(row.name), "\n".join(map(escape, row.tests)) or "[red]none[/]")
        yield table


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the list and say what is wrong with it."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.checklist", description="Which test shows which system of Pulsar's."
    )
    parser.add_argument("--json", action="store_true", help="one JSON object for each row")
    given = parser.parse_args(arguments)
    rows = read_rows(LIST.read_text(encoding="utf-8"))
    if given.json:
        for row in rows:
            print(json.dumps(asdict(row)))
    else:
        console = Console()
        console.width = max(console.width, NARROWEST) if console.is_terminal else WIDEST
        for table in shown(rows):
            console.print(table)
    files = {test.partition("::")[0] for row in rows for test in row.tests}
    missing = sorted(name for name in files if not (PROJECT / name).is_file())
    try:
        faults = faults_of(rows, collect(files.difference(missing)))
    except RuntimeError as error:
        faults = [str(error)]
    for fault in faults:
        print(f"checklist: {fault}", file=sys.stderr)
    if not faults and not given.json:
        print(
            f"{len(rows)} systems, {len({test for row in rows for test in row.tests})} tests, each "
            "of them there"
        )
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
