"""What README.md and docs/ say can be done: commands run, programs work, queries run, links lead
somewhere.

`make demo` is run in tests/e2e/test_demo.py, the way by hand in tests/e2e/test_readme_by_hand.py.
"""

import gzip
import json
import re
import shlex
from importlib.util import find_spec
from pathlib import Path

import pytest
from deltalake import write_deltalake

from lb_stream.contracts.tables import TABLES
from lb_stream.query.lake import open_lake
from lb_stream.query.sql_file import convert_parameters
from lb_stream.store import Store
from tests.support.headings import anchors
from tests.support.lbctl_runner import lbctl

PROJECT = Path(__file__).parents[2]
PAGES = sorted(
    [
        *PROJECT.glob("*.md"),
        *(
            page
            for name in ("docs", "schemas", "notebooks")
            for page in (PROJECT / name).rglob("*.md")
        ),
    ]
)
README = (PROJECT / "README.md").read_text()
OVERVIEW = (PROJECT / "docs" / "overview.md").read_text()
START = (PROJECT / "docs" / "getting-started.md").read_text()
TABLES_PAGE = (PROJECT / "docs" / "tables.md").read_text()


PATH = re.compile(r"(?<![\w./-])(?:conf|docs|jobs|lb_stream|notebooks|schemas|tests)/[\w./-]*\w")


def lines_in_sh(text: str) -> list[str]:
    return [
        line
        for block in re.findall(r"```sh\n(.*?)```", text, re.DOTALL)
        for line in block.splitlines()
        if line
    ]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(PROJECT)))
def test_every_link_to_a_file_leads_to_one(page: Path) -> None:
    targets = [
        target.partition("#")[0]
        for target in re.findall(r"\]\(([^)]+)\)", page.read_text())
        if "://" not in target
    ]
    assert [target for target in targets if target and not (page.parent / target).exists()] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(PROJECT)))
def test_every_link_to_a_heading_leads_to_one(page: Path) -> None:
    links = re.findall(r"\]\(\s*([^)\s#]*)#([^)]+)\)", page.read_text())
    assert [
        f"{target}#{fragment}"
        for target, fragment in links
        if "://" not in target
        and fragment not in anchors(page if not target else (page.parent / target).resolve())
    ] == []


def commands_of(page: Path) -> list[str]:
    """What a page says can be typed, in blocks and within sentences, without comments."""
    text = page.read_text().replace("\\\n", " ")
    blocks = re.findall(r"```\w*\n(.*?)```", text, re.DOTALL)
    lines = [line.strip() for block in blocks for line in block.splitlines()] + re.findall(
        r"^    (\w.*)", text, re.MULTILINE
    )
    lines += re.findall(r"`([^`\n]+)`", re.sub(r"```.*?```", "", text, flags=re.DOTALL))
    return [part.strip() for line in lines for part in line.split(" && ")]


def said(first: str) -> list[str]:
    """Every command on any page that begins with this word, once."""
    return sorted(
        {line for page in PAGES for line in commands_of(page) if re.match(rf"{first} [a-z-]", line)}
    )


@pytest.mark.parametrize("line", said("lbctl"))
def test_every_lbctl_command_on_a_page_is_one_that_lbctl_understands(
    line: str, tmp_path: Path
) -> None:
    arguments = [one for one in shlex.split(line, comments=True)[1:] if not one.startswith(">")]
    result = lbctl(
        *(argument for argument in arguments if argument != "--version"), "--help", cwd=tmp_path
    )  # it says the version and ends
    assert (result.code, result.err) == (0, "")
    options = [argument for argument in arguments if re.match(r"--?[a-z]", argument)]
    assert [option for option in options if not re.search(rf"{option}\b", result.out)] == []


def test_every_program_and_target_on_a_page_is_there() -> None:
    targets = re.findall(r"^([a-z-]+):", (PROJECT / "Makefile").read_text(), re.MULTILINE)
    made = {re.split(r"[\s,.:]", line)[1] for line in said("make")}
    assert sorted(made - set(targets)) == [] and {"demo", "test", "bench-stream"} <= made
    run = [
        shlex.split(line, comments=True)[1:]
        for first in (r"python", r"\.venv/bin/python")
        for line in said(first)
    ]
    modules = {arguments[1] for arguments in run if arguments[0] == "-m"}
    assert [name for name in sorted(modules) if find_spec(name) is None] == []
    assert [
        arguments[0]
        for arguments in run
        if arguments[0] != "-m" and not (PROJECT / arguments[0]).is_file()
    ] == []


def test_every_path_in_a_page_is_one_of_a_file() -> None:
    named = {(page.name, path) for page in PAGES for path in PATH.findall(page.read_text())}
    others = {
        "docs/decisions/NNNN",
        "tests/data/scenarios/NAME",
        "lb_stream/recorded",
    }  # patterns, and the name of an application in an answer
    assert (
        sorted(
            (page, path)
            for page, path in named
            if path not in others and not (PROJECT / path).exists()
        )
        == []
    )
    assert len(named) > 50


def test_every_make_line_of_the_readme_names_a_target() -> None:
    targets = re.findall(r"^([a-z-]+):", (PROJECT / "Makefile").read_text(), re.MULTILINE)
    named = [line.split()[1] for line in lines_in_sh(README) if line.startswith("make ")]
    assert named == ["demo", "test"]
    assert set(named) <= set(targets)


def test_the_readme_is_short_and_its_first_picture_comes_early() -> None:
    text = README.split("\n![", 1)[0]
    assert len(text.split()) <= 120
    assert len(README.split()) <= 500 and len(README.splitlines()) <= 90


def test_the_list_of_pages_has_each_page_once() -> None:
    docs = PROJECT / "docs"
    listed = re.findall(
        r"^ *- \[[^\]]+\]\(([^)]+)\)", (docs / "README.md").read_text(), re.MULTILINE
    )
    assert sorted(set(listed)) == sorted(listed)
    pages = {page.name for page in docs.glob("*.md")} - {"README.md"}
    assert pages - set(listed) == set()


def test_there_are_as_many_recorded_decisions_of_each_release_as_the_overview_says() -> None:
    found = re.findall(
        r"([\d ]+) of (4\.0\.7) and ([\d ]+) each of (4\.2\.4) and (5\.0\.1)", OVERVIEW
    )
    ((oldest, first, others, second, third),) = found
    said = {first: oldest, second: others, third: others}
    data = PROJECT / "tests" / "conformance" / "data"
    for release, number in said.items():
        lines = [
            json.loads(line)
            for folder in (data, data / release)
            for file in folder.glob("*.decisions.jsonl.gz")
            for line in gzip.decompress(file.read_bytes()).splitlines()
        ]
        answers = {line["id"]: line for line in lines}  # the release's own beat those of 4.0.7
        answered = [line for line in answers.values() if "leftOut" not in line]
        assert len(answered) == int(number.replace(" ", "")), release


def test_every_query_of_the_documentation_runs(tmp_path: Path) -> None:
    write_deltalake(str(tmp_path / TABLES[0].name), TABLES[0].schema.empty_table())
    queries = re.findall(r"```sql\n(.*?)```", TABLES_PAGE, re.DOTALL) + re.findall(
        r'lbctl sql "(.*?)"', START
    )
    lake = open_lake(Store.at(tmp_path))
    for query in queries:
        text, values = convert_parameters(query, dict.fromkeys(re.findall(r" :([a-z]+)", query), 1))
        assert lake.execute(text, values).fetchall() == []
    assert len(queries) >= 8
