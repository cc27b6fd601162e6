"""`lbctl proposals`, `approve` and `reject`: what they show and send; what explain, --why-not,
clusters and undo say of approvals."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lb_stream.contracts.tables import PROPOSALS
from lb_stream.core.model.operator_state import OperatorState, RejectedProposal
from lb_stream.io.tables.rebuild import rebuild
from lb_stream.query.past.undo_commands import find_opposites
from lb_stream.sim.simulation import prediction
from lb_stream.store import Store
from tests.support.lbctl_runner import Result
from tests.support.recorded_proposals import BY, HOUR_MS, ids, record_proposals, told
from tests.support.recorded_tables import Recorder
from tests.support.scripted_kafka import Broker
from tests.support.table_rows import fill
from tests.support.wordings import check_wording


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Recorder:
    return record_proposals(tmp_path_factory.mktemp("approvals") / "tables")


@pytest.fixture
def ask(played: Recorder, call: Callable[..., Result]) -> Callable[..., Result]:
    return lambda *arguments, **given: call(
        *arguments, "--set", f"stream.tables={played.root}", **given
    )


def flat(result: Result) -> str:
    return " ".join(result.out.split())


# --- what the tables say ---


def test_what_waits_is_what_the_memory_has_and_what_has_ended_says_who_and_why(
    played: Recorder,
) -> None:
    waiting, ended = told(played)
    assert [row["proposal_id"] for row in waiting] == ids(played) and waiting
    assert all(
        row["state"] == "waiting" and row["explain"]["candidates"] and "usage" in row["explanation"]
        for row in waiting
    )
    by_state = {row["state"]: row for row in ended}
    assert {name: (row["by"], row["why"]) for name, row in by_state.items()} == {
        "approved": (BY, ""),
        "rejected": (BY, "its topics go tonight"),
    }
    (decision,) = [
        decision for decision in played.loop.decisions if decision.proposal_id is not None
    ]
    assert (
        by_state["approved"]["decision_id"] == decision.decision_id
        and by_state["approved"]["outcome"] == "confirmed"
    )
    assert by_state["rejected"]["until_ms"] - by_state["rejected"]["now_ms"] == HOUR_MS


def test_the_table_can_be_written_anew_from_the_log(played: Recorder) -> None:
    before = told(played)
    (done,) = rebuild(Store.at(played.root), [PROPOSALS.name])
    assert done.rows > 0 and told(played) == before


def test_they_are_shown_as_a_table_and_as_json(
    ask: Callable[..., Result], played: Recorder
) -> None:
    result = ask("proposals", "--last", "5")
    assert result.code == 0, result.err
    shown = "".join(result.out.split())
    for word in (*ids(played), "approved", "rejected", "tonight", "confirmed"):
        assert word in shown, word
    assert (
        len(result.out.splitlines()) > len(ids(played))
        and max(map(len, result.out.splitlines())) <= 80
    )
    rows = ask("proposals", "--json", "--cluster", "demo").objects
    assert ask("proposals", "-o", "csv").out.startswith(",".join(list(rows[0])[:3]))
    assert [row["proposal_id"] for row in rows] == ids(played)
    assert ask("proposals", "--cluster", "elsewhere").code == 2


def test_a_decision_names_who_approved_it(ask: Callable[..., Result], played: Recorder) -> None:
    (decision,) = [
        decision for decision in played.loop.decisions if decision.proposal_id is not None
    ]
    sentence = flat(ask("explain", decision.decision_id))
    assert f"{BY} approved it ({decision.proposal_id}). A report confirmed it" in sentence
    explain = decision.explain
    assert (
        explain.max_usage is not None
        and f"With {decision.source} at {explain.source_usage:.1%} usage" in sentence
    )
    follow = [
        one
        for one in played.loop.decisions
        if one.bundle == decision.bundle and one.kind == "assign"
    ]
    assert "approved it" not in flat(ask("explain", follow[0].decision_id))


def test_why_not_names_a_rejection_and_a_proposal_that_waits(
    ask: Callable[..., Result], played: Recorder
) -> None:
    (rejected,) = played.loop.memory.operator_state.rejections
    checks = ask("explain", "--why-not", rejected.bundle, "--json").objects[0]
    assert checks["sentence"].startswith(
        f"{rejected.bundle} is not moved (rejection): {BY} has rejected a proposal to move it, "
        "until "
    )
    assert (
        next(one for one in checks["checks"] if one["name"] == "rejection")["until_ms"]
        == rejected.until_ms
    )
    waiting = played.loop.memory.proposals[0]
    sentence = ask("explain", "--why-not", waiting.bundle, "--json").objects[0]["sentence"]
    assert (
        f"(approval): {waiting.proposal_id}, to move it to {waiting.destination}, waits until "
        in sentence
    )
    hot = ask("explain", "--why-not", waiting.source, "--json").objects[0]["sentence"]
    assert "proposals about its bundles wait for approval (lbctl proposals)" in hot


def test_clusters_and_status_say_the_mode_and_how_many_wait(
    ask: Callable[..., Result], played: Recorder
) -> None:
    (row,) = ask("clusters", "list", "--json").objects
    assert (row["mode"], row["state"], row["proposals"], row["dry_run"]) == (
        "approve",
        "approving",
        len(ids(played)),
        False,
    )
    assert f"demo: {len(ids(played))} proposal" in flat(ask("status"))


# --- what is sent ---


def test_proposals_are_approved_and_rejected_by_their_ids(
    ask: Callable[..., Result], kafka: Broker
) -> None:
    assert (
        ask(
            "approve", "demo:3:p0", "demo:3:p1", answers=[("demo", "accepted"), ("demo", "done")]
        ).code
        == 0
    )
    assert (
        ask("reject", "demo:3:p2", "--why", "no ", "--for", "30m", answers=[("demo", "done")]).code
        == 0
    )
    assert ask("reject", "demo:3:p2", "--why", "no", answers=[("demo", "refused")]).code == 1
    sent = [
        (key, one["kind"], {name: one.get(name) for name in ("proposals", "why", "for_ms")})
        for key, one in kafka.sent
    ]
    assert sent == [
        (
            "demo",
            "approve-proposals",
            {"proposals": ["demo:3:p0", "demo:3:p1"], "why": None, "for_ms": None},
        ),
        (
            "demo",
            "reject-proposals",
            {"proposals": ["demo:3:p2"], "why": "no", "for_ms": 1_800_000},
        ),
        (
            "demo",
            "reject-proposals",
            {"proposals": ["demo:3:p2"], "why": "no", "for_ms": 7_200_000},
        ),
    ]


def test_ids_of_two_clusters_go_to_each_their_own(
    ask: Callable[..., Result], kafka: Broker
) -> None:
    result = ask(
        "approve",
        "eu-1:3:p0",
        "demo:4:p1",
        "eu-1:3:p2",
        answers=[[("demo", "done")], [("eu-1", "done")]],
    )
    assert result.code == 0, result.err
    assert [(key, one["proposals"]) for key, one in kafka.sent] == [
        ("demo", ["demo:4:p1"]),
        ("eu-1", ["eu-1:3:p0", "eu-1:3:p2"]),
    ]


def test_all_are_those_that_were_shown(
    ask: Callable[..., Result], kafka: Broker, played: Recorder
) -> None:
    refused = ask("approve", "--all", answers=[])
    assert (refused.code, kafka.sent) == (1, []) and ids(played)[0] in refused.out.replace("\n", "")
    assert ask("approve", "--all", "--yes", "--cluster", "dema").code == 2 and kafka.sent == []
    assert ask("approve", "--all", "--yes", answers=[("demo", "done")]).code == 0
    assert kafka.sent[0][1]["proposals"] == ids(played)


def test_a_plan_is_approved_by_its_id(
    ask: Callable[..., Result], kafka: Broker, played: Recorder
) -> None:
    (plan,) = {proposal.plan for proposal in played.loop.memory.proposals}
    shown = ask("proposals")
    assert f"plan {plan}: {len(ids(played))} move" in " ".join(shown.err.split()), shown.err
    assert ask("approve", "--plan", str(plan), answers=[("demo", "done")]).code == 0
    assert kafka.sent[0][1]["proposals"] == ids(played)
    by_begin = ask("approve", "--plan", "demo", answers=[("demo", "done")])
    assert by_begin.code == 0 and f"demo is taken for {plan}" in by_begin.err
    assert kafka.sent[1][1]["proposals"] == ids(played)
    unknown = ask("approve", "--plan", "demo:1")
    assert unknown.code == 2 and f"a plan with waiting moves: {plan}" in " ".join(
        unknown.err.split()
    )


def test_a_begin_that_fits_several_proposals_is_refused_with_their_ids(
    ask: Callable[..., Result], kafka: Broker, played: Recorder
) -> None:
    begin = ids(played)[0].rpartition(":")[0]
    result = ask("reject", begin, "--why", "not now")
    assert (result.code, kafka.sent) == (2, [])
    assert ", ".join(ids(played)) in result.err


def test_it_is_said_when_what_makes_things_worse_is_meant(
    ask: Callable[..., Result], kafka: Broker
) -> None:
    assert ask("approve", "demo:3:p0", "--even-if-worse", answers=[("demo", "done")]).code == 0
    assert kafka.sent[0][1]["even_if_worse"] is True


@pytest.mark.slow
def test_a_preview_ends_with_1_where_the_busiest_broker_ends_busier(
    ask: Callable[..., Result], kafka: Broker, played: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = ids(played)[0]
    harmless = ask("approve", name, "--preview")
    assert harmless.code == 0, harmless.err
    real = prediction.predict_change

    def worse(*given: Any) -> Any:
        found, notes = real(*given)
        before, after = found[prediction.AS_IT_IS], found[prediction.CHANGED]
        figures = after.figures | {"usage_max_after": before.figures["usage_max_after"] + 0.03}
        return {
            prediction.AS_IT_IS: before,
            prediction.CHANGED: replace(after, figures=figures),
        }, notes

    monkeypatch.setattr(prediction, "predict_change", worse)
    harms = ask("approve", name, "--preview")
    assert harms.code == 1 and "this raises max usage: the busiest broker ends at" in " ".join(
        harms.err.split()
    )
    assert kafka.sent == []


def test_the_mode_of_a_cluster_is_set(ask: Callable[..., Result], kafka: Broker) -> None:
    assert ask("clusters", "mode", "demo", "approve", answers=[("demo", "done")]).code == 0
    assert (kafka.sent[0][0], kafka.sent[0][1]["values"]) == ("demo", {"mode": "approve"})
    assert ask("clusters", "mode", "demo", "perhaps").code == 2


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("approve", "expected one of: IDs of proposals, --plan PLAN, --all"),
        ("approve demo:3:p0 --all", "expected one of"),
        ("approve --all --json", "--json: expected --yes, too"),
        ("approve demo:3:0", "demo:3:0: expected CLUSTER:ROUND:pNUMBER"),
        ("approve demo:3:p0 --cluster eu-1", "demo:3:p0 is of demo, not of eu-1"),
        ("reject --why no", "expected the IDs of proposals"),
        ("reject demo:3:p0", "--why: expected a reason"),
        ("reject demo:3:p0 --why no --for soon", "--for 'soon': expected a number and a unit"),
    ],
)
def test_wrong_usage_says_what_was_expected(
    ask: Callable[..., Result], kafka: Broker, line: str, expected: str
) -> None:
    result = ask(*line.split())
    assert (result.code, kafka.sent) == (2, []) and expected in result.err.replace("\n", " "), (
        result.err
    )


def test_where_nothing_waits_that_is_said_and_nothing_is_sent(
    call: Callable[..., Result], kafka: Broker, tmp_path: Path
) -> None:
    fill(tmp_path / "tables", PROPOSALS, [])
    tables = ("--set", f"stream.tables={tmp_path / 'tables'}")
    check_wording(call("proposals", *tables).err)
    assert call("approve", "--all", *tables).code == 0 and kafka.sent == []


# --- undo ---


def test_an_approval_is_taken_back_by_its_moves_and_a_rejection_by_its_end() -> None:
    now_ms = 1_000_000
    assert (
        find_opposites("approve-proposals", {"proposals": ["c:1:p0"]}, OperatorState(), now_ms)
        == []
    )
    before = OperatorState(
        rejections=(
            RejectedProposal(
                "c:1:p1", "c:1:p1", "t/n/0x0_0x1", True, now_ms + 5_000, "bob", "first"
            ),
        )
    )
    orders = find_opposites(
        "reject-proposals",
        {"proposals": ["c:1:p0", "c:1:p1"], "why": "no", "for_ms": 9},
        before,
        now_ms,
    )
    assert [command.given for command in orders] == [
        {"kind": "reject-proposals", "proposals": ["c:1:p0"], "why": "undone", "for_ms": 0},
        {"kind": "reject-proposals", "proposals": ["c:1:p1"], "why": "first", "for_ms": 5_000},
    ]
    both = OperatorState(settings={"dry_run": True, "mode": "approve"})
    (command,) = find_opposites("dry-run", {"on": False}, both, now_ms)
    assert command.given == {"kind": "set-config", "values": dict(both.settings)}
