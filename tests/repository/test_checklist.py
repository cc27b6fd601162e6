"""The list of the systems that Pulsar's documentation names: every row has a test, whose name says
it, and which is there."""

import ast
import json
from functools import cache
from pathlib import Path

import pytest

from lb_stream.settings.names import list_known_names
from tests import checklist
from tests.checklist import LIST, PROJECT, Row, collect, faults_of, main, read_rows, unsaid, words

ROWS = read_rows(LIST.read_text(encoding="utf-8"))
VECTORS = Path(__file__).parents[1] / "data" / "vectors"
NOT_OF_A_SYSTEM = {"configuration_keys"}  # every key there is: test_pulsar_keys.py


def of(section: str) -> list[Row]:
    return [row for row in ROWS if row.section == section]


def named(row: Row) -> str:
    return f"{row.section}: {row.name}"


@pytest.fixture(scope="module")
def nodes() -> set[str]:
    return collect({test.partition("::")[0] for row in ROWS for test in row.tests})


def test_every_row_has_a_test_and_pytest_collects_each_of_them(nodes: set[str]) -> None:
    assert len(ROWS) > 100
    assert faults_of(ROWS, nodes) == []


@pytest.mark.parametrize("row", ROWS, ids=named)
def test_the_name_of_one_of_a_rows_tests_says_what_the_row_is_about(row: Row) -> None:
    assert len(words(row.says)) > 1 or row.says == row.name
    lacking = {test: unsaid(row.says, test) for test in row.tests}
    assert [] in lacking.values(), lacking


@pytest.mark.parametrize("row", of("vectors"), ids=named)
def test_each_test_of_a_vector_reads_its_file(row: Row) -> None:
    assert [test for test in row.tests if not reads(test, row.name)] == []


def test_the_rows_of_vectors_are_the_files_that_there_are() -> None:
    assert {row.name for row in of("vectors")} == {
        file.stem for file in VECTORS.glob("*.json")
    } - NOT_OF_A_SYSTEM


def test_the_rows_of_keys_are_keys_with_a_case_of_their_own() -> None:
    assert {row.name for row in of("keys")} <= list_known_names().keys()
    assert [
        row.name
        for row in of("keys")
        if not any(test.endswith(f"[{row.name}]") for test in row.tests)
    ] == []


def reads(test: str, vector: str) -> bool:
    """Whether the test's code, or what it names of its module, holds the vector's name."""
    file, _, name = test.partition("::")
    parts, todo, seen = parts_of(file), [name.partition("[")[0]], set[str]()
    while todo:
        part = todo.pop()
        if part in seen or part not in parts:
            continue
        seen.add(part)
        for node in ast.walk(parts[part]):
            if isinstance(node, ast.Constant) and node.value in (vector, f"{vector}.json"):
                return True
            if isinstance(node, ast.Name):
                todo.append(node.id)
    return False


@cache
def parts_of(file: str) -> dict[str, ast.stmt]:
    """Name → the statement that defines it: the module's own, or one of tests/ that it imports."""
    found: dict[str, ast.stmt] = {}
    for statement in ast.parse((PROJECT / file).read_text(encoding="utf-8")).body:
        if isinstance(statement, ast.FunctionDef):
            found[statement.name] = statement
        elif isinstance(statement, ast.Assign | ast.AnnAssign):
            targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
            found |= {target.id: statement for target in targets if isinstance(target, ast.Name)}
        elif isinstance(statement, ast.ImportFrom) and str(statement.module).startswith("tests."):
            there = parts_of(f"{str(statement.module).replace('.', '/')}.py")
            names = [alias.name for alias in statement.names]
            found |= {name: there[name] for name in names if name in there}
    return found


# --- the list itself ---


def test_a_row_without_a_test_and_a_test_that_is_not_there_are_told_each_in_a_line() -> None:
    rows = [
        Row("s", "empty", "x", ()),
        Row("s", "full", "x", ("f.py::test_a", "f.py::test_b[2]", "f.py::test_c")),
    ]
    told = faults_of(rows, {"f.py::test_a[1]", "f.py::test_b[1]", "f.py::test_c"})
    assert told == [
        "[s] empty: no test shows it; name one in tests/checklist.toml",
        "[s] full: there is no test f.py::test_b[2]; was it renamed?",
    ]


@pytest.mark.parametrize(
    ("subject", "test", "lacks"),
    [
        ("OverloadShedder", "f.py::test_overload_shedder_unloads", []),
        ("a split of bundles", "f.py::test_a_bundle_is_splitted[x]", []),
        ("a changing leader", "f.py::test_it[leader_change]", []),
        ("maxUnloadPercentage", "f.py::test_default[maxUnloadPercentage]", []),
        ("AvgShedder", "shedder/avg.py::test_the_pair_is_levelled", ["avg", "shedder"]),
        ("heap memory", "f.py::test_memory", ["heap"]),
    ],
)
def test_a_name_says_a_subject_by_its_words_in_any_form(
    subject: str, test: str, lacks: list[str]
) -> None:
    assert unsaid(subject, test) == lacks


@pytest.mark.parametrize(
    "content", ["x = 3", "x = { says = 'y' }", "x = { tests = ['a'], more = 1 }", "x = [3]"]
)
def test_what_is_no_row_is_refused(content: str) -> None:
    with pytest.raises(ValueError, match=r"\[s\] x = .*: expected a list of tests"):
        read_rows(f"[s]\n{content}\n")


def test_printing_the_list_fails_with_the_line_that_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    here = "tests/repository/test_checklist.py"
    file = tmp_path / "checklist.toml"
    monkeypatch.setattr(checklist, "LIST", file)
    monkeypatch.setattr(
        checklist,
        "collect",
        lambda files: (
            {f"{here}::test_what_is_no_row_is_refused[x = 3]"} if [*files] == [here] else None
        ),
    )
    file.write_text(f'[s]\nx = ["{here}::test_what_is_no_row_is_refused"]\n')
    assert main([]) == 0
    printed = capsys.readouterr()
    assert (
        "test_what_is_no_row_is_refused" in printed.out.replace("\n", "")
        and "1 systems, 1 tests, each of them there" in printed.out
    )
    assert main(["--json"]) == 0
    assert [json.loads(line)["name"] for line in capsys.readouterr().out.splitlines()] == ["x"]
    file.write_text(f'[s]\nx = ["{here}::test_gone", "tests/unit/test_gone.py::test_gone"]\n')
    assert main([]) == 1
    told = capsys.readouterr().err.splitlines()
    assert told == [
        f"checklist: [s] x: there is no test {test}; was it renamed?"
        for test in (f"{here}::test_gone", "tests/unit/test_gone.py::test_gone")
    ]
