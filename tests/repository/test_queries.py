"""The queries in docs/queries: what they answer over a recorded run, and docs/tables.md shows just
that.

REWRITE=1 writes the page's part anew, to be reviewed as a diff. That Spark takes them too:
tests/spark/test_queries.py.
"""

import os
import re
from pathlib import Path
from typing import Any

import pytest

from lb_stream.contracts.decisions import example_decision
from lb_stream.contracts.tables import DECISIONS
from lb_stream.query import QueryError
from lb_stream.query.sql_file import convert_parameters, parse_parameters
from tests.support.example_queries import BUNDLE, DOCS, FOLDER, ORDER, PAGE, PARAMETERS
from tests.support.lbctl_runner import lbctl
from tests.support.recorded_tables import Recorder
from tests.support.table_rows import decided, fill

SHOWN_ROWS = 6
BEGIN, END = "<!-- begin: written by tests/repository/test_queries.py -->", "<!-- end -->"


def arguments(name: str) -> list[str]:
    given = PARAMETERS.get(name, {})
    return [
        "sql",
        "--file",
        f"docs/queries/{name}.sql",
        *(part for key, value in given.items() for part in ("--param", f"{key}={value}")),
    ]


def ask(recorded: Recorder, name: str, *more: str, width: int = 80) -> Any:
    return lbctl(
        *arguments(name),
        *more,
        "--set",
        f"stream.tables={recorded.root}",
        cwd=DOCS.parent,
        env={"COLUMNS": str(width)},
    )


def answered(recorded: Recorder, name: str) -> list[dict[str, Any]]:
    result = ask(recorded, name, "--json")
    assert result.code == 0, result.err
    return result.objects


def test_every_file_is_shown() -> None:
    assert sorted(ORDER) == sorted(file.stem for file in FOLDER.glob("*.sql"))


def test_the_page_shows_every_query_and_its_answer(recorded: Recorder) -> None:
    text = PAGE.read_text(encoding="utf-8")
    before, rest = text.split(BEGIN)
    after = rest.split(END)[1]
    made = f"{before}{BEGIN}\n{''.join(shown(recorded, name) for name in ORDER)}{END}{after}"
    if os.environ.get("REWRITE") == "1":
        PAGE.write_text(made, encoding="utf-8")
    assert text == made, "the page is out of date: run this test again with REWRITE=1"


def shown(recorded: Recorder, name: str) -> str:
    """A question, how it is asked, the query, and the first rows of its answer."""
    question, query = (FOLDER / f"{name}.sql").read_text(encoding="utf-8").split("\n", 1)
    given = "".join(f" --param {key}={value}" for key, value in PARAMETERS.get(name, {}).items())
    lines = [line.rstrip() for line in ask(recorded, name, width=200).out.splitlines()]
    more = [f"… {len(lines) - 2 - SHOWN_ROWS} more"] if len(lines) > SHOWN_ROWS + 2 else []
    answer = "\n".join([*lines[: SHOWN_ROWS + 2], *more])
    command = f"`lbctl sql --file docs/queries/{name}.sql{given}`"
    return (
        f"\n{question.removeprefix('-- ')}\n{command}\n```sql\n{query}```\n```text\n{answer}\n```\n"
    )


def test_the_decisions_of_a_round_are_told_in_their_order(tmp_path: Path) -> None:
    fill(
        tmp_path,
        DECISIONS,
        [
            decided(example_decision(decision_id=f"demo:6:{number}", cluster="demo", seq=6))
            for number in range(12)
        ],
    )
    result = lbctl(
        *arguments("round_decided"), "--json", "--set", f"stream.tables={tmp_path}", cwd=DOCS.parent
    )
    assert [row["decision_id"] for row in result.objects] == [
        f"demo:6:{number}" for number in range(12)
    ]


# --- what they answer is what the run did ---


def test_who_owns_it_is_whom_the_model_has_it_at(recorded: Recorder) -> None:
    (row,) = answered(recorded, "who_owns")
    assert recorded.loop.cluster.owners()[BUNDLE] == row["owner"]
    assert row["state"] == "Owned"


def test_why_it_was_unloaded_is_what_was_decided(recorded: Recorder) -> None:
    unloads = [
        made
        for one in recorded.rounds
        for made in one.decisions
        if made.bundle == BUNDLE and made.kind == "unload"
    ]
    rows = answered(recorded, "why_unloaded")
    assert [(row["decision_id"], row["rule"], row["outcome"]) for row in rows] == [
        (unload.decision_id, unload.rule, "confirmed") for unload in unloads
    ]
    assert [row["saw"] for row in rows] == pytest.approx(
        [unload.explain.saw for unload in unloads], abs=0.0005
    )


def test_the_load_now_is_the_last_rounds(recorded: Recorder) -> None:
    brokers = recorded.rounds[-1].view.brokers
    rows = {row["broker"]: row for row in answered(recorded, "load_now")}
    assert sorted(rows) == list(brokers.names)
    assert [rows[name]["usage_percent"] for name in brokers.names] == pytest.approx(
        (100 * brokers.usage).tolist(), abs=0.05
    )
    assert [rows[name]["short_mb_per_s"] for name in brokers.names] == pytest.approx(
        (brokers.short.throughput / 1e6).tolist(), abs=0.005
    )


def test_the_moves_of_the_hour_are_the_unloads(recorded: Recorder) -> None:
    count = sum(made.kind == "unload" for one in recorded.rounds for made in one.decisions)
    (row,) = answered(recorded, "moves_per_hour")
    assert (row["moves"], row["confirmed"], row["failed"]) == (count, count, 0)


def test_the_imbalance_of_each_round_is_that_of_its_view(recorded: Recorder) -> None:
    rows = answered(recorded, "imbalance")
    assert [row["seq"] for row in rows] == [one.seq for one in recorded.rounds]
    for row, one in zip(rows, recorded.rounds, strict=True):
        rates = one.view.brokers.latest.throughput
        if not one.memory.pending:  # else the round's view has its moves carried out
            assert row["max_over_mean"] == pytest.approx(rates.max() / rates.mean(), abs=0.0005)
            assert row["std_over_mean"] == pytest.approx(rates.std() / rates.mean(), abs=0.0005)


def test_what_a_round_saw_and_decided_is_in_the_recorded_round(recorded: Recorder) -> None:
    made = recorded.rounds[5]
    assert [row["broker"] for row in answered(recorded, "round")] == list(made.view.brokers.names)
    assert [row["decision_id"] for row in answered(recorded, "round_decided")] == [
        decision.decision_id for decision in made.decisions
    ]


def test_a_move_that_was_undone_is_found(tmp_path: Path) -> None:
    from lb_stream.contracts.decisions import example_decision
    from lb_stream.contracts.tables import DECISIONS
    from tests.support.table_rows import decided, fill

    way = [
        ("unload", "a", "b", 1),
        ("assign", None, "b", 2),
        ("unload", "b", "a", 4),
        ("assign", None, "a", 5),
        ("unload", "a", "c", 9),
    ]
    made = [
        example_decision(
            decision_id=f"eu-1:{seq}:0", seq=seq, kind=kind, source=source, destination=to
        )
        for kind, source, to, seq in way
    ]
    fill(tmp_path / "tables", DECISIONS, [decided(one) for one in made])
    rows = lbctl(
        "sql",
        "--file",
        str(FOLDER / "returned.sql"),
        "--json",
        "--set",
        "stream.tables=tables",
        cwd=tmp_path,
    ).objects
    assert [(row["broker"], row["left_in"], row["back_in"], row["rounds"]) for row in rows] == [
        ("a", 1, 5, 4)
    ]


# --- files and parameters ---


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ((), "give a query, a file"),
        (("select 1", "--file", "x.sql"), "give a query, a file"),
        (("--file", "missing.sql"), "missing.sql: No such file or directory"),
        (("select :a",), "the query has parameters that were not given: --param a=…"),
        (
            ("select :a", "--param", "a=1", "--param", "b=1"),
            "the query has no parameter b: it has a",
        ),
        (("select 1", "--param", "a"), "--param a: expected NAME=VALUE"),
    ],
)
def test_a_wrong_call_says_what_was_expected(
    recorded: Recorder, tmp_path: Path, given: tuple[str, ...], words: str
) -> None:
    result = lbctl("sql", *given, "--set", f"stream.tables={recorded.root}", cwd=tmp_path)
    assert (result.code, result.out) == (2, "")
    assert words in result.err


@pytest.mark.parametrize(
    ("query", "text"),
    [
        ("select :a, ':b', 1::int -- :c", "select $a, ':b', 1::int -- :c"),
        (
            "select l[1:n], \"x:y\", '''' || :a /* :d */",
            "select l[1:n], \"x:y\", '''' || $a /* :d */",
        ),
        ("where x=:a and y<=:a", "where x=$a and y<=$a"),
    ],
)
def test_only_parameters_are_taken_for_parameters(query: str, text: str) -> None:
    assert convert_parameters(query, {"a": 1}) == (text, {"a": 1})


def test_numbers_are_numbers_and_the_rest_is_text() -> None:
    given = ["a=1", "b=1.5", "c=x=y", "d=", "e=true", "f=null", "g=007"]
    assert parse_parameters(given) == {
        "a": 1,
        "b": 1.5,
        "c": "x=y",
        "d": "",
        "e": "true",
        "f": "null",
        "g": "007",
    }
    with pytest.raises(QueryError):
        parse_parameters(["1a=2"])


def test_the_readme_and_the_page_name_only_files_that_are_there() -> None:
    named = re.findall(
        r"docs/queries/(\w+)\.sql", PAGE.read_text() + (DOCS.parent / "README.md").read_text()
    )
    assert sorted(set(named) - set(ORDER)) == []
