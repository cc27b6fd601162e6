"""A decision is told by its outcome: as done only once it is confirmed, else with the reason why it
was not carried out."""

from pathlib import Path
from typing import Any

import pytest

from lb_stream.cli.monitor.dashboard import render
from lb_stream.cli.report.page import _build_decisions, _build_marks
from lb_stream.contracts.decisions import example_decision
from lb_stream.contracts.tables import BROKER_LOADS, DECISIONS, OUTCOMES, OWNERSHIP, ROUNDS
from lb_stream.core.model.memory import Memory
from lb_stream.kit.demo.view import _decision_line
from lb_stream.kit.demo.watch import DemoDecision
from lb_stream.query.explanations import explain_decision, explain_round
from lb_stream.query.health import ClusterFacts, Facts, JobFacts
from lb_stream.query.lake import open_lake
from lb_stream.query.past.report_figures import load_cluster_figures
from lb_stream.query.past.undo import plan_undo
from lb_stream.query.screens.feed import list_entries
from lb_stream.query.screens.over_time import build_cluster_chart
from lb_stream.query.screens.overview import load_overview
from lb_stream.query.snapshot import read_snapshot
from lb_stream.query.wording import describe_outcome
from lb_stream.store import Store
from tests.support.lbctl_runner import lbctl
from tests.support.table_rows import NOW, decided, fill
from tests.unit.console.site import client

REASON = "the namespace's policy says no"
NOT_CARRIED_OUT = ("refused", "expired", "failed", "superseded")
DONE = (
    "moved ",
    "gave ",
    " had broker-7.eu.example:8080 split",
    " had broker-7.eu.example:8080 merge",
)
KINDS: dict[str, dict[str, Any]] = {
    "unload": {},
    "transfer": {"kind": "transfer"},
    "assign": {"kind": "assign", "source": None, "rule": "released"},
    "split": {"kind": "split", "algorithm": "halves", "destination": None, "rule": "max_topics"},
    "merge": {"kind": "merge", "neighbour": "n", "destination": None, "rule": "merge_command"},
}


def write(folder: Path, outcome: str | None, **changes: Any) -> Path:
    """Tables of a round that decided one thing and of the round that ended it; the usage is 86.7 %
    in both."""
    tables, decision = (
        folder / "tables",
        example_decision(issued_ms=NOW, expires_ms=NOW + 60_000, **changes),
    )
    fill(tables, DECISIONS, [decided(decision)])
    ended = {
        "decision_id": decision.decision_id,
        "cluster": "eu-1",
        "bundle": decision.bundle,
        "outcome": outcome,
    }
    ended |= {"detail": REASON, "took_ms": 55_900, "at_ms": NOW + 55_900, "seq": 43, "log_seq": 43}
    fill(tables, OUTCOMES, [] if outcome is None else [ended])
    load = {
        "cluster": "eu-1",
        "broker": "broker-7.eu.example:8080",
        "alive": True,
        "usage_ratio": 0.867,
        "now_ms": NOW,
    }
    fill(tables, BROKER_LOADS, [load | {"seq": seq, "log_seq": seq} for seq in (42, 43)])
    fill(
        tables,
        OWNERSHIP,
        [{"cluster": "eu-1", "bundle": decision.bundle, "owner": "broker-8:80", "state": "Owned"}],
    )
    one = {
        "cluster": "eu-1",
        "now_ms": NOW,
        "memory": Memory(seq=43).to_json(),
        "inputs": '{"settings": {}}',
        "outcomes": "[]",
    }
    fill(
        tables,
        ROUNDS,
        [one | {"seq": seq, "log_seq": seq, "epoch": 1, "batch_id": seq} for seq in (42, 43)],
    )
    return tables


def sentence(tables: Path) -> str:
    with open_lake(Store.at(tables)) as lake:
        return explain_decision(lake, "eu-1:42:0").sentence


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("outcome", NOT_CARRIED_OUT)
def test_what_was_not_carried_out_is_not_told_as_done(
    tmp_path: Path, outcome: str, kind: str
) -> None:
    told = sentence(write(tmp_path, outcome, **KINDS[kind]))
    assert " decided to " in told and not any(word in told for word in DONE)
    assert f"{outcome} after 55.9 s ({REASON})" in told
    assert "went from" not in told


@pytest.mark.parametrize("kind", KINDS)
def test_a_confirmed_decision_is_told_as_done(tmp_path: Path, kind: str) -> None:
    told = sentence(write(tmp_path, "confirmed", **KINDS[kind]))
    assert any(word in told for word in DONE) and " decided to " not in told
    assert "A report confirmed it after 55.9 s" in told


@pytest.mark.parametrize("kind", KINDS)
def test_an_open_decision_is_told_as_decided(tmp_path: Path, kind: str) -> None:
    told = sentence(write(tmp_path, None, **KINDS[kind]))
    assert " decided to " in told and "No report has confirmed it yet." in told


@pytest.mark.parametrize("kind", KINDS)
def test_a_dry_run_has_done_nothing(tmp_path: Path, kind: str) -> None:
    told = sentence(write(tmp_path, None, dry_run=True, **KINDS[kind]))
    assert ", in a dry run, would have " in told and told.endswith("It was not published.")


@pytest.mark.parametrize(
    ("outcome", "place"),
    [
        ("refused", "The bundle stayed at broker-7.eu.example:8080."),
        ("expired", "The bundle stayed at broker-7.eu.example:8080."),
        ("failed", "broker-8:80 has the bundle now."),
        ("superseded", "broker-8:80 has the bundle now."),
    ],
)
def test_where_the_bundle_is_that_did_not_move_is_told(
    tmp_path: Path, outcome: str, place: str
) -> None:
    assert sentence(write(tmp_path, outcome)).endswith(place)


@pytest.mark.parametrize("outcome", NOT_CARRIED_OUT)
def test_every_list_and_feed_names_the_reason(tmp_path: Path, outcome: str) -> None:
    tables = write(tmp_path, outcome)
    with open_lake(Store.at(tables)) as lake:
        (entry,) = list_entries(lake, "eu-1")
        seen = read_snapshot(lake, "eu-1")
        figures = load_cluster_figures(
            lake, "eu-1", NOW - 1, NOW + 60_000, 100, Facts(NOW, JobFacts("p"))
        )
        (of_round,) = explain_round(lake, "eu-1", 42)["decisions"]
        undo = plan_undo(lake, "eu-1:42:0", None)
    assert (entry["outcome_reason"], entry["outcome"]) == (REASON, outcome)
    assert describe_outcome(of_round) == f"{outcome} in 55.9 s: {REASON}"
    said = {
        "monitor": "\n".join(line.plain for line in render(seen, 400, 60)),
        "report": _build_decisions(figures).replace("&#x27;", "'"),
        "picture": str(_build_marks(figures)["unload"]),
        "undo": str(undo.left),
        "console": client(tables).get("/cluster?name=eu-1").text.replace("&#39;", "'"),
        "decision": client(tables).get("/decision?id=eu-1:42:0").text.replace("&#39;", "'"),
    }
    assert {
        name: REASON in text and outcome in text for name, text in said.items()
    } == dict.fromkeys(said, True)


@pytest.mark.parametrize("outcome", NOT_CARRIED_OUT)
def test_the_tables_and_json_of_commands_name_the_reason(tmp_path: Path, outcome: str) -> None:
    write(tmp_path, outcome)
    given = ("--set", "stream.tables=tables")
    shown = lbctl("decisions", *given, cwd=tmp_path, env={"COLUMNS": "250"}).out
    assert outcome in shown and REASON in shown
    (row,) = lbctl("decisions", "--json", *given, cwd=tmp_path).objects
    assert (row["outcome"], row["detail"]) == (outcome, REASON)
    of_round = lbctl(
        "explain", "--round", "eu-1:42", *given, cwd=tmp_path, env={"COLUMNS": "250"}
    ).out
    assert f"{outcome} in 55.9 s: {REASON}" in of_round


def test_the_demo_names_the_reason() -> None:
    made = DemoDecision(example_decision(), 1.0, "refused", 55_900, REASON)
    assert "refused" in _decision_line(made).plain and REASON in _decision_line(made).plain


def test_a_reason_is_given_only_for_what_was_not_carried_out() -> None:
    row = {
        "dry_run": False,
        "outcome": "confirmed",
        "took_ms": 2_000,
        "detail": "reported by b-2:80",
    }
    assert describe_outcome(row) == "confirmed in 2.0 s"
    assert describe_outcome(row | {"outcome": None}) == "pending"
    assert describe_outcome(row | {"dry_run": True, "outcome": None}) == "dry run"
    assert describe_outcome(row | {"outcome": "failed", "detail": None}) == "failed in 2.0 s"


@pytest.mark.parametrize(
    ("outcome", "moves"), [(None, 1), ("confirmed", 1), ("refused", 0), ("expired", 0)]
)
def test_charts_and_counts_tell_moves_by_their_outcome(
    tmp_path: Path, outcome: str | None, moves: int
) -> None:
    tables = write(tmp_path, outcome)
    with open_lake(Store.at(tables)) as lake:
        (row,) = load_overview(lake, [ClusterFacts("eu-1", NOW)])
        (mark,) = build_cluster_chart(lake, "eu-1", NOW - 60_000, NOW + 60_000).marks
    reason = f": {REASON}" if outcome in NOT_CARRIED_OUT else ""
    ended = "pending" if outcome is None else f"{outcome} in 55.9 s{reason}"
    assert (row["moves"], mark["ended"]) == (moves, ended)
