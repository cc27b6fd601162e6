"""How pages and docstrings are written: narrow enough for a terminal, and citing only what the
repository has."""

import ast
import re
import subprocess
from pathlib import Path

import pytest

PROJECT = Path(__file__).parents[2]
WIDEST = 100
"""Columns of a line of Markdown; tables and code may be wider."""
ELSEWHERE = re.compile(r"(?<![\w.-])(?:spec|shared)/[\w§]")
"""Paths of folders that whoever has only the repository does not have."""
CITED = re.compile(r'docs/([\w/-]+\.md) "([^"]+)"')
"""How a docstring cites a section: docs/placement.md "Filters"."""


def tracked(pattern: str = "*") -> list[Path]:
    """The files that git knows and that are still there."""
    told = subprocess.run(
        ["git", "ls-files", "-z", pattern], cwd=PROJECT, capture_output=True, text=True, check=True
    ).stdout
    return [path for name in told.split("\0") if name and (path := PROJECT / name).is_file()]


def prose(text: str) -> list[str]:
    """The lines that are neither in a block of code nor of a table."""
    lines, fenced, before = [], False, ""
    for line in text.splitlines():
        if re.match(r"\s*```", line):
            fenced = not fenced
        elif not fenced and not line.startswith("|") and not _is_indented_code(line, before):
            lines.append(line)
        before = line if line.strip() else before if _is_indented_code(before, "") else ""
    return lines


def _is_indented_code(line: str, before: str) -> bool:
    """Four spaces after an empty line, or after more of the same."""
    return line.startswith("    ") and (not before or before.startswith("    "))


@pytest.mark.parametrize("page", tracked("*.md"), ids=lambda page: str(page.relative_to(PROJECT)))
def test_no_line_of_a_page_is_wider_than_100_columns_outside_of_tables_and_code(page: Path) -> None:
    assert [line for line in prose(page.read_text(encoding="utf-8")) if len(line) > WIDEST] == []


def test_lines_of_code_and_of_tables_are_no_prose() -> None:
    page = (
        "One\n\n```sh\nfenced\n```\n| a | table |\n\n    indented\n\n    more\n\nTwo\n- item\n  "
        "  of it\n"
    )
    assert [line for line in prose(page) if line.strip()] == ["One", "Two", "- item", "    of it"]


def test_no_file_cites_what_the_repository_does_not_have() -> None:
    texts = {
        path: path.read_bytes().decode("utf-8", "replace")
        for path in tracked()
        if path != Path(__file__)
    }
    assert len(texts) > 500
    assert [
        str(path.relative_to(PROJECT)) for path, text in texts.items() if ELSEWHERE.search(text)
    ] == []


@pytest.mark.parametrize(
    "text", ["Source: spec/shedding.md §3.", "X ?= ../shared/run.sh", "see spec/README.md"]
)
def test_a_citation_of_another_folder_is_found(text: str) -> None:
    assert ELSEWHERE.search(text)


def test_every_section_that_a_docstring_cites_is_on_its_page() -> None:
    cited = {
        found
        for path in tracked("*.py")
        if path != Path(__file__)
        for found in CITED.findall(path.read_text(encoding="utf-8"))
    }
    assert len(cited) > 15
    headings = {
        page: re.findall(
            r"^#+ (.+)$", (PROJECT / "docs" / page).read_text(encoding="utf-8"), re.MULTILINE
        )
        for page, _ in cited
    }
    assert sorted((page, section) for page, section in cited if section not in headings[page]) == []


def test_every_module_and_page_that_a_page_names_is_there() -> None:
    there = [str(path.relative_to(PROJECT)) for path in tracked()]
    named = {
        (page.name, name)
        for page in tracked("*.md")
        for name in re.findall(r"[\w/-]+\.(?:py|md)\b", page.read_text(encoding="utf-8"))
    }
    assert len(named) > 50
    assert (
        sorted(
            (page, name)
            for page, name in named
            if not any(f"/{path}".endswith(f"/{name.lstrip('/')}") for path in there)
        )
        == []
    )


def docstring_lines(text: str) -> set[int]:
    """The lines (from 1) of every text that stands by itself: docstrings, and what is said below an
    attribute."""
    alone = [
        node.value
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    ]
    return {line for one in alone for line in range(one.lineno, (one.end_lineno or one.lineno) + 1)}


def test_every_name_in_a_docstring_is_one_of_the_code() -> None:
    named: set[tuple[str, str]] = set()
    known = {"lower_upper"}  # the form of a bundle's range in a command
    for path in tracked("*.py"):
        known |= {path.stem, path.parent.name}
        text = path.read_text(encoding="utf-8")
        said = docstring_lines(text)
        for number, line in enumerate(text.splitlines(), 1):
            if number in said:
                named |= {(path.name, name) for name in re.findall(r"`([a-z]+(?:_[a-z]+)+)`", line)}
            else:
                known |= set(re.findall(r"\w+", line))
    assert len(named) > 100
    assert sorted((file, name) for file, name in named if name not in known) == []
