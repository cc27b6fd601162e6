"""`lbctl explain`: every decision of a run, its figures derived again from the tables; and why
nothing happened."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lb_stream.contracts.decisions import Decision, example_decision
from lb_stream.contracts.tables import (
    BROKER_LOADS,
    BUNDLE_AVERAGES,
    DECISIONS,
    OUTCOMES,
    OWNERSHIP,
    REFUSALS,
    ROUNDS,
)
from lb_stream.core.model.memory import Memory, Suspension
from lb_stream.core.model.rules import DECIDES, REFUSES
from lb_stream.core.shedding.base import shedder
from lb_stream.io.messages.shown import figure
from lb_stream.io.messages.times import clock
from lb_stream.query.explanations import explain_decision
from lb_stream.query.lake import open_lake
from lb_stream.query.wording import explain_rule
from lb_stream.sim import SimCluster
from lb_stream.store import Store
from tests.support.lbctl_runner import Result, lbctl
from tests.support.recorded_tables import START_MS, Recorder, batches, record
from tests.support.sim_loop import ClosedLoop
from tests.support.small_scenario import small_scenario
from tests.support.table_rows import decided, fill, query, with_operator_state
from tests.support.wordings import check_wording

BUNDLE = "shop/app-11/0x80000000_0xc0000000"
NO_CLUSTER = "there is no cluster nowhere: there are demo"
READERS = ("decisions", "commands", "brokers", "monitor", "cost", "proposals", "shadow")
FITS = "expected one of those that it fits"


@pytest.fixture
def ask(recorded: Recorder, tmp_path: Path) -> Any:
    """Calls lbctl explain over the recorded run."""

    def call(*arguments: str) -> Result:
        return lbctl("explain", *arguments, "--set", f"stream.tables={recorded.root}", cwd=tmp_path)

    return call


def told(recorded: Recorder, tmp_path: Path, *arguments: str) -> Any:
    result = lbctl(
        "explain", *arguments, "--json", "--set", f"stream.tables={recorded.root}", cwd=tmp_path
    )
    assert result.code == 0, result.err
    return result.objects[0]


def facts(recorded: Recorder, *decision_ids: str) -> list[dict[str, Any]]:
    """What `lbctl explain DECISION --json` prints of each."""
    with open_lake(Store.at(recorded.root)) as lake:
        return [explain_decision(lake, one).to_dict() for one in decision_ids]


# --- a decision ---


def test_every_decision_of_the_run_is_explained_with_the_loads_that_the_tables_have(
    recorded: Recorder,
) -> None:
    loads = {
        (row["seq"], row["broker"]): row for row in query(recorded, "SELECT * FROM broker_loads")
    }
    outcomes = {row["decision_id"]: row for row in query(recorded, "SELECT * FROM outcomes")}
    made = [decision for one in recorded.rounds for decision in one.decisions]
    assert {one.kind for one in made} == {"unload", "assign"}
    for decision, found in zip(
        made, facts(recorded, *(one.decision_id for one in made)), strict=True
    ):
        assert decision.bundle in found["sentence"] and found["sentence"].startswith(
            f"Round {decision.seq} of demo "
        )
        assert [part["broker"] for part in found["parts"]] == [
            one for one in (decision.source, decision.destination) if one
        ]
        for part in found["parts"]:
            before = loads[decision.seq, part["broker"]]
            assert part["before"]["usage_ratio"] == before["usage_ratio"]
            assert part["before"]["bytes_per_s"] == pytest.approx(
                before["latest_throughput_in_bytes_per_s"]
                + before["latest_throughput_out_bytes_per_s"]
            )
            last = (
                found["followed_by"]
                if part["role"] == "destination" and decision.kind != "assign"
                else decision.decision_id
            )
            assert part["after"]["seq"] >= outcomes[last]["seq"]
            assert (
                part["after"]["bundles"] == loads[part["after"]["seq"], part["broker"]]["bundles"]
            )
        assert (
            f"confirmed it after {outcomes[decision.decision_id]['took_ms'] / 1000:.1f} s"
            in found["sentence"]
        )


def test_what_was_seen_the_average_and_the_limit_are_those_of_the_logged_memory(
    recorded: Recorder,
) -> None:
    """ThresholdShedder's smoothed usages are in the memory after the round; the threshold is in the
    round's settings."""
    rounds = {row["seq"]: row for row in query(recorded, "SELECT seq, memory, inputs FROM rounds")}
    unloads = [
        decision
        for one in recorded.rounds
        for decision in one.decisions
        if decision.kind == "unload"
    ]
    assert unloads
    for decision, whole in zip(
        unloads, facts(recorded, *(unload.decision_id for unload in unloads)), strict=True
    ):
        row, found = rounds[decision.seq], whole["decision"]["explain"]
        usage = json.loads(row["memory"])["strategies"]["ThresholdShedder"]["usage"]
        average = sum(usage.values()) / len(usage)
        assert found["saw"] == usage[decision.source]
        assert found["average"] == pytest.approx(average, rel=1e-12)
        assert found["limit"] == pytest.approx(
            average + json.loads(row["inputs"])["settings"]["threshold_percent"] / 100, rel=1e-12
        )
        assert found["saw"] >= found["limit"]


def test_what_was_expected_is_the_share_that_all_moves_that_the_shedder_proposed_leave(
    recorded: Recorder,
) -> None:
    several = False
    for one in recorded.rounds:
        for source in sorted(
            {
                decision.source
                for decision in one.decisions
                if decision.kind == "unload" and decision.source
            }
        ):
            unloads = [decision for decision in one.decisions if decision.source == source]
            refused = [
                bundle for each in one.refusals if each.broker == source for bundle in each.subjects
            ]
            rows = one.view.bundles.rows_of([*(decision.bundle for decision in unloads), *refused])
            broker = one.view.brokers.names.index(source)
            left = (
                1
                - one.view.bundles.short.throughput[rows].sum()
                / one.view.brokers.latest.throughput[broker]
            )
            (found,) = facts(recorded, unloads[0].decision_id)
            assert found["moves"] == len(unloads)
            assert found["parts"][0]["expected"] == pytest.approx(
                found["decision"]["explain"]["saw"] * left
            )
            several = several or len(unloads) > 1
    assert several


def test_the_candidates_scores_are_their_long_term_rates_and_the_lowest_was_chosen(
    recorded: Recorder,
) -> None:
    checked = 0
    for one in recorded.rounds:
        first = next((decision for decision in one.decisions if decision.kind == "unload"), None)
        if first is None or first.decision_id.rpartition(":")[2] != "0":
            continue  # later ones count the load of earlier ones
        text = (
            "SELECT broker, long_rate_in_msgs_per_s + long_rate_out_msgs_per_s AS rate FROM "
            f"broker_loads WHERE seq = {one.seq}"
        )
        rates = {row["broker"]: row["rate"] for row in query(recorded, text)}
        candidates = facts(recorded, first.decision_id)[0]["decision"]["explain"]["candidates"]
        scored = {each["broker"]: each["score"] for each in candidates if each["score"] is not None}
        assert scored == pytest.approx({broker: rates[broker] for broker in scored})
        assert first.destination == min(scored, key=lambda broker: scored[broker])
        assert all(each["refused_by"] for each in candidates if each["score"] is None)
        checked += 1
    assert checked


def last_unload(recorded: Recorder) -> Decision:
    return [
        decision
        for one in recorded.rounds
        for decision in one.decisions
        if decision.kind == "unload"
    ][-1]


def test_programs_get_the_same_facts(recorded: Recorder, tmp_path: Path) -> None:
    last = last_unload(recorded).decision_id
    assert told(recorded, tmp_path, last) == json.loads(json.dumps(facts(recorded, last)[0]))


def test_an_unload_and_its_assignment_name_each_other(recorded: Recorder, tmp_path: Path) -> None:
    first = next(
        decision
        for one in recorded.rounds
        for decision in one.decisions
        if decision.kind == "unload"
    )
    then = told(recorded, tmp_path, told(recorded, tmp_path, first.decision_id)["followed_by"])
    assert (then["decision"]["kind"], then["decision"]["bundle"], then["follows"]) == (
        "assign",
        first.bundle,
        first.decision_id,
    )


def test_a_person_reads_the_sentence_then_the_figures(recorded: Recorder, ask: Any) -> None:
    last = last_unload(recorded)
    out = ask(last.decision_id).out
    assert out.startswith(f"Round {last.seq} of demo moved ")
    for words in (
        "saw          ",
        "limit        ",
        f"confirmed in 2.0 s, round {last.seq + 2}",
        f"followed by  demo:{last.seq + 1}:",
        "expected",
        "chosen",
        "even_distribution",
    ):
        assert words in out
    assert max(map(len, out.splitlines())) <= 80


def test_the_last_move_is_explained_by_its_unload(recorded: Recorder, ask: Any) -> None:
    made = [decision for one in recorded.rounds for decision in one.decisions]
    assert (made[-1].kind, made[-1].rule) == ("assign", "released")
    out = " ".join(ask("last").out.split())
    seq = last_unload(recorded).seq
    assert out.startswith(f"Round {seq} of demo moved {made[-1].bundle} from ")
    assert f"followed by {made[-1].decision_id}" in out


@pytest.mark.parametrize(
    ("changes", "outcome", "words"),
    [
        ({}, None, "No report has confirmed it yet."),
        ({"dry_run": True}, None, "Round 42 of eu-1, in a dry run, would have moved"),
        (
            {"kind": "split", "algorithm": "halves", "children": ["a", "b"], "destination": None},
            "confirmed",
            "had broker-7.eu.example:8080 split",
        ),
        (
            {
                "kind": "merge",
                "neighbour": "n",
                "children": ["c"],
                "destination": None,
                "rule": "merge_command",
            },
            "confirmed",
            "merge acme/orders/0x00000000_0x40000000 and n: an operator's command asked for it. A "
            "report confirmed it after 1.2 s.",
        ),
        ({"destination": None}, "expired", "It expired after 1.2 s (in vain)."),
        (
            {"rule": "of_a_plugin"},
            "refused",
            "rule of_a_plugin: saw 62.0%, limit 51.0%, average 41.0%. It was refused",
        ),
    ],
)
def test_every_kind_and_end_has_its_words_without_any_loads(
    tmp_path: Path, changes: dict[str, Any], outcome: str | None, words: str
) -> None:
    decision = example_decision(**changes)
    fill(tmp_path / "tables", DECISIONS, [decided(decision)])
    if outcome is not None:
        ended = {
            "decision_id": decision.decision_id,
            "outcome": outcome,
            "detail": "in vain",
            "took_ms": 1200,
            "at_ms": 1,
            "seq": 43,
        }
        fill(tmp_path / "tables", OUTCOMES, [ended])
    result = lbctl("explain", decision.decision_id, "--set", "stream.tables=tables", cwd=tmp_path)
    assert words in " ".join(result.out.split())


def test_the_last_one_is_the_one_that_ends_the_list_of_decisions(tmp_path: Path) -> None:
    made = [example_decision(decision_id=f"eu-1:42:{number}") for number in range(11)]
    fill(tmp_path / "tables", DECISIONS, [decided(one) for one in reversed(made)])
    given = ("--json", "--set", "stream.tables=tables")
    (last,) = lbctl("explain", "last", *given, cwd=tmp_path).objects
    assert (
        last["decision"]["decision_id"]
        == lbctl("decisions", *given, cwd=tmp_path).objects[-1]["decision_id"]
        == "eu-1:42:10"
    )


# --- a bundle, a broker, a round ---


def test_a_bundles_story_is_its_decisions_in_order(
    recorded: Recorder, ask: Any, tmp_path: Path
) -> None:
    bundle = next(decision.bundle for one in recorded.rounds for decision in one.decisions)
    made = [
        decision.decision_id
        for one in recorded.rounds
        for decision in one.decisions
        if decision.bundle == bundle
    ]
    found = told(recorded, tmp_path, "--bundle", bundle)
    assert [one["decision"]["decision_id"] for one in found["decisions"]] == made
    assert [
        made[0] in ask("--bundle", bundle).out,
        made[0] in ask("--bundle", bundle, "-n", "1").out,
    ] == [True, False]


def test_a_brokers_story_is_what_left_it_and_what_came(recorded: Recorder, tmp_path: Path) -> None:
    found = told(recorded, tmp_path, "--broker", "broker-1", "-n", "100")
    made = [
        decision.decision_id
        for one in recorded.rounds
        for decision in one.decisions
        if "broker-1:8080" in (decision.source, decision.destination)
    ]
    assert [one["decision"]["decision_id"] for one in found["decisions"]] == made


def test_a_round_tells_what_it_saw_decided_and_what_ended(
    recorded: Recorder, ask: Any, tmp_path: Path
) -> None:
    number = next(one.seq for one in recorded.rounds if one.outcomes)
    made = recorded.rounds[number - 1]
    found = told(recorded, tmp_path, "--round", f"demo:{number}")
    assert [one["broker"] for one in found["brokers"]] == list(made.view.brokers.names)
    assert [one["decision_id"] for one in found["decisions"]] == [
        decision.decision_id for decision in made.decisions
    ]
    assert [one["decision_id"] for one in found["outcomes"]] == [
        outcome.decision_id for outcome in made.outcomes
    ]
    out = ask("--round", f"demo:{number}").out
    assert (
        "It saw:" in out,
        "\n\nEarlier decisions that ended in it:\nconfirmed: " in out,
    ) == (True, True)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "expected one of DECISION"),
        (("demo:1:0", "--bundle", "x"), "expected one of DECISION"),
        (("demo:999:0",), "there is no decision demo:999:0"),
        (("--round", "demo"), "expected CLUSTER:SEQ"),
        (("--round", "demo:999"), "expected one from 1 to 60"),
        (("--round", "nowhere:1"), "no round of nowhere is in the log: expected one of demo"),
        (
            ("--broker", "broker-17"),
            "broker broker-17: expected a broker's name, or its host without domain and port; "
            "nearest: broker-1:8080",
        ),
        (
            ("--broker", "broker-17:8080"),
            "no round has seen a broker broker-17:8080: lbctl brokers lists them, with their ports",
        ),
        (("--broker", "broker-1:8080", "--cluster", "nowhere"), NO_CLUSTER),
        (("--why-not", "no/such/0x00000000_0x40000000"), "no report names no/such"),
        (("--why-not", "broker-17:8080"), "no round has seen a broker broker-17:8080"),
        (("--why-not", "shop"), f"bundle shop/: {FITS}: shop/app-01/0x00000000_0x40000000, "),
        (("--why-not", "shop/app-11"), f"bundle shop/app-11: {FITS}: shop/app-11/0x00000000_"),
        (("--bundle", "shop/app-11"), f"bundle shop/app-11: {FITS}: shop/app-11/0x00000000_"),
        (("--bundle", "shop/app-1"), f"bundle shop/app-1: {FITS}: shop/app-10/0x00000000_"),
        (("--bundle", "shop/app-17"), "no report names shop/app-17: "),
        (("--bundle", "shop/app-17"), "nearest are shop/app-01, shop/app-07, shop/app-10"),
        (("--bundle", "zzz"), "namespaces are shop/app-01, shop/app-02, "),
        (("--bundle", f"{BUNDLE}1"), f"no report names {BUNDLE}1"),
        (("demo:5",), f"decision demo:5: {FITS}: demo:5:0, demo:5:1"),
        (("last", "--cluster", "nowhere"), NO_CLUSTER),
        (("--bundle", BUNDLE, "--cluster", "nowhere"), NO_CLUSTER),
        (("--why-not", BUNDLE, "--cluster", "nowhere"), NO_CLUSTER),
        (("--why-not", "broker-1", "--cluster", "nowhere"), NO_CLUSTER),
    ],
)
def test_what_cannot_be_explained_says_what_can(
    ask: Any, arguments: tuple[str, ...], words: str
) -> None:
    result = ask(*arguments)
    assert (result.code, result.out) == (2, "")
    assert words in result.err


@pytest.mark.parametrize("option", ["--bundle", "--why-not"])
@pytest.mark.parametrize("given", ["shop/app-11/0x8", BUNDLE[:-4], f"persistent://{BUNDLE}"])
def test_the_begin_of_one_bundles_name_is_taken_for_it(ask: Any, option: str, given: str) -> None:
    result = ask(option, given)
    assert (result.code, result.err) == (0, f"{given} is taken for {BUNDLE}\n")
    assert BUNDLE in result.out


def test_a_namespace_with_one_bundle_is_taken_for_it(tmp_path: Path) -> None:
    """Though the name of another one begins so, too."""
    names = ("shop/app-1/0x0_0xf", "shop/app-16/0x0_0x8", "shop/app-16/0x8_0xf")
    rows = [{"cluster": "eu-1", "bundle": name, "part": "eu-1"} for name in names]
    fill(tmp_path / "tables", BUNDLE_AVERAGES, rows)
    fill(tmp_path / "tables", DECISIONS, [decided(example_decision(bundle=names[0]))])
    fill(tmp_path / "tables", OUTCOMES, [])
    asked = ("--bundle", "shop/app-1", "--json", "--set", "stream.tables=tables")
    (found,) = lbctl("explain", *asked, cwd=tmp_path).objects
    assert found["bundle"] == names[0]
    assert found["decisions"][0]["decision"]["decision_id"] == "eu-1:42:0"


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("what-if --cluster nowhere --drain broker-1", NO_CLUSTER),
        ("undo --since 10m --cluster nowhere --preview", NO_CLUSTER),
        ("undo demo:5 --preview", f"decision or command demo:5: {FITS}: demo:5:0, demo:5:1"),
        ("config overrides --cluster nowhere", NO_CLUSTER),
        ("namespaces bundles shop/app-17", "nearest are shop/app-01"),
        ("namespaces bundles shop/app-11 --cluster nowhere", NO_CLUSTER),
        ("lookup shop/app-17/orders", "no bundle of shop/app-17 is known; nearest are shop/app-01"),
        ("plan --cluster nowhere", NO_CLUSTER),
        ("report --cluster nowhere --out page.html", "demo"),
        ("commands --id nowhere", "no command with the id nowhere"),
        *((f"{name} --cluster nowhere", NO_CLUSTER) for name in READERS),
    ],
)
def test_every_command_that_reads_answers_an_unknown_name_with_what_there_is(
    recorded: Recorder, tmp_path: Path, line: str, words: str
) -> None:
    result = lbctl(*line.split(), "--set", f"stream.tables={recorded.root}", cwd=tmp_path)
    assert result.code != 0 and result.out == ""
    assert words in result.err


def test_a_decision_of_another_cluster_than_the_named_one_is_not_explained(tmp_path: Path) -> None:
    made = [example_decision(), example_decision(cluster="us-1", decision_id="us-1:7:0", seq=7)]
    fill(tmp_path / "tables", DECISIONS, [decided(decision) for decision in made])
    asked = ("eu-1:42:0", "--cluster", "us-1", "--set", "stream.tables=tables")
    result = lbctl("explain", *asked, cwd=tmp_path)
    assert (result.code, "eu-1:42:0 is of eu-1, not of us-1" in result.err) == (2, True)


def test_nothing_to_tell_points_at_why_not(ask: Any) -> None:
    assert (
        "--why-not shop/app-01/0x40000000_0x80000000"
        in ask("--bundle", "shop/app-01/0x40000000_0x80000000").err
    )


# --- why not ---


@pytest.mark.parametrize(
    ("settings", "steps", "keeps"),
    [
        ({}, 5, "pending"),
        ({}, 12, "grace period"),
        ({"mode": "observe"}, 12, "dry run"),
        ({"mode": "approve"}, 12, "approval"),
        ({"enabled": False}, 12, "balancing"),
        ({"shedding_enabled": False}, 12, "shedding"),
        (
            {"shedding_excluded_namespaces": [f"shop/app-{number:02}" for number in range(1, 13)]},
            12,
            "namespace",
        ),
        ({"min_throughput_mb": 1e6}, 12, "strategy"),
        ({"max_moves_in_flight": 0}, 12, "limits: moves in flight"),
        ({"min_dwell_ms": 60_000}, 12, "dwell time"),
        ({"min_dwell_ms": 1_000, "threshold_percent": 99}, 12, "numbers"),
        ({"threshold_percent": 99}, 12, "numbers"),
    ],
)
def test_why_nothing_happened_to_the_hottest_brokers_bundle(
    tmp_path: Path, settings: dict[str, Any], steps: int, keeps: str
) -> None:
    """The bundle that is moved first where nothing keeps it."""
    made = record(tmp_path / "tables", steps, settings=settings)
    bundle = "shop/app-11/0x80000000_0xc0000000"
    found = told(made, tmp_path, "--why-not", bundle)
    keeping = [check["name"] for check in found["checks"] if check["blocks"]]
    assert keeping[:1] == [keeps]
    assert f"is not moved ({keeps}): " in found["sentence"]
    assert found["sentence"] in " ".join(
        lbctl(
            "explain", "--why-not", bundle, "--set", "stream.tables=tables", cwd=tmp_path
        ).out.split()
    )


@pytest.mark.parametrize("strategy", ["UniformLoadShedder", "AvgShedder"])
def test_a_pass_that_found_no_fitting_bundle_is_named_in_figures(
    tmp_path: Path, strategy: str
) -> None:
    """One broker has all load in two bundles, each more than a fifth of the difference."""
    settings = {
        "mode": "act",
        "shedding_strategy": strategy,
        "shedding_interval_ms": 1000,
        "split_enabled": False,
    }
    settings |= (
        {"hit_count_high": 1, "placement_strategy": "AvgShedder"}
        if strategy == "AvgShedder"
        else {}
    )
    scenario = small_scenario(
        [0, 0, 1], brokers=2, loads=[9000.0, 8000.0, 100.0], capacities=[20000.0] * 2
    )
    root = tmp_path / "tables"
    root.mkdir()
    made = Recorder(
        root,
        ClosedLoop(SimCluster(scenario, START_MS), settings, START_MS, Memory(epoch=1)),
        settings,
    )
    made.run(8)
    batches(root, 8)
    (refused,) = made.rounds[-1].refusals
    assert not any(one.decisions for one in made.rounds)
    for asked in (refused.subjects[0], str(refused.broker)):
        found = told(made, tmp_path, "--why-not", asked)
        (strategy,) = [
            check for check in found["checks"] if check["blocks"] and check["name"] == "strategy"
        ]
        assert "no_fitting_bundle" in strategy["description"]
        assert "msg/s, limit 3" in strategy["description"]


def test_what_the_last_pass_decided_is_said_and_not_that_the_next_one_decides(
    tmp_path: Path,
) -> None:
    """LeastMoves has nothing to say of a broker that is as full as it should be."""
    settings = {"shedding_strategy": "LeastMoves", "placement_strategy": "LeastMoves"}
    made = record(tmp_path / "tables", 4, workload="steady", settings=settings)
    sentence = told(made, tmp_path, "--why-not", "broker-2:8080")["sentence"]
    assert sentence.startswith(
        "No rule keeps the load of broker-2:8080: the last pass of LeastMoves, at "
    )
    assert "decided no moves out of it; the next comes with the next report" in sentence


def test_a_brokers_own_namespace_stays_with_it(tmp_path: Path) -> None:
    made = record(tmp_path / "tables", 3)
    bundle = "pulsar/demo/broker-1:8080/0x00000000_0xffffffff"
    fill(
        tmp_path / "tables",
        BUNDLE_AVERAGES,
        [{"cluster": "demo", "bundle": bundle, "part": "own", "owner": "broker-1:8080"}],
    )
    found = told(made, tmp_path, "--why-not", bundle)
    assert [check["name"] for check in found["checks"] if check["blocks"]][:1] == ["namespace"]
    assert "belongs to its broker" in found["sentence"]


def test_what_operators_have_commanded_counts(tmp_path: Path) -> None:
    """Their settings lie over the job's, and a pause is named."""
    made = record(tmp_path / "tables", 3)
    table = tmp_path / "tables" / "rounds"
    last = made.rounds[-1].memory
    for operator_state, keeps in (
        (replace(last.operator_state, paused=True), "operators"),
        (replace(last.operator_state, settings={"shedding_enabled": False}), "shedding"),
    ):
        row = query(made, "SELECT * FROM rounds ORDER BY log_seq DESC LIMIT 1")[0]
        row |= {
            "log_seq": row["log_seq"] + 1,
            "memory": replace(last, operator_state=operator_state).to_json(),
        }
        fill(table.parent, ROUNDS, [row])
        checks = told(made, tmp_path, "--why-not", "shop/app-01/0x00000000_0x40000000")["checks"]
        assert [check["name"] for check in checks if check["blocks"]][:1] == [keeps]


def test_what_held_once_is_no_cause_any_more_a_drain_and_a_limit_are(tmp_path: Path) -> None:
    """A pause refused the last pass and is over; the bundle's broker is being drained, and the
    cluster's limit is used up."""
    made = record(tmp_path / "tables", 12, settings={"max_moves_per_minute": 2})
    now_ms = made.rounds[-1].now_ms
    paused = {
        "cluster": "demo",
        "rule": "paused",
        "broker": None,
        "count": 1,
        "subjects": [],
        "seq": 12,
        "now_ms": now_ms,
        "log_seq": 11,
    }
    fill(made.root, REFUSALS, [paused])
    owner = query(made, f"SELECT owner FROM bundle_averages WHERE bundle = '{BUNDLE}'")[0]["owner"]
    with_operator_state(
        made,
        drained=(owner,),
        moved=((now_ms - 20_000, 2, 1e6),),
        recently_unloaded={BUNDLE: now_ms},
    )
    found = told(made, tmp_path, "--why-not", BUNDLE)
    assert [check["name"] for check in found["checks"] if check["blocks"]] == [
        "limits: moves a minute"
    ]
    assert f"{owner} is being drained" in found["sentence"]
    room = next(
        check["description"]
        for check in found["checks"]
        if check["name"] == "limits: moves a minute"
    )
    assert room == f"2 of 2; room at {clock(now_ms + 40_000)}"


def test_the_causes_come_in_their_order_of_precedence(tmp_path: Path) -> None:
    settings = {
        "min_dwell_ms": 10**9,
        "max_moves_in_flight_per_broker": 0,
        "shedding_excluded_namespaces": ["shop/app-11"],
    }
    made = record(tmp_path / "tables", 4, settings=settings | {"threshold_percent": 99})
    with_operator_state(made, paused=True, retry_ms=made.rounds[-1].now_ms + 60_000)
    checks = told(made, tmp_path, "--why-not", BUNDLE)["checks"]
    keeping = [check["name"] for check in checks if check["blocks"]]
    assert keeping == [
        "operators",
        "suspension",
        "limits: moves in flight of its broker",
        "namespace",
        "dwell time",
        "numbers",
    ]
    assert [check["name"] for check in checks[:2]] == ["job", "drain"]


def test_a_suspension_holds_though_the_last_round_did_not_repeat_it(tmp_path: Path) -> None:
    made = record(tmp_path / "tables", 3)
    began_ms = made.rounds[0].now_ms
    with_operator_state(made, suspension=Suspension("everything_silent", began_ms, began_ms))
    found = told(made, tmp_path, "--why-not", BUNDLE)
    assert (
        f"is not moved (suspension): everything_silent since {clock(began_ms)}: all brokers "
        "are silent" in found["sentence"]
    )


def test_of_a_broker_it_is_said_what_keeps_it_hot(tmp_path: Path) -> None:
    made = record(tmp_path / "tables", 12, settings={"threshold_percent": 99})
    found = told(made, tmp_path, "--why-not", "broker-1")
    assert (found["broker"], found["bundle"]) == ("broker-1:8080", None)
    assert (
        "The load of broker-1:8080 stays (numbers): ThresholdShedder: broker-1:8080: "
        in found["sentence"]
    )
    assert ", below " in found["sentence"] and "bundles may move" in json.dumps(found["checks"])
    held = record(tmp_path / "held", 12, settings={"min_dwell_ms": 10**9})
    found = told(held, tmp_path, "--why-not", "broker-1:8080")
    assert next(check["name"] for check in found["checks"] if check["blocks"]) == "bundles"
    assert "in their dwell time" in found["sentence"]


def test_a_bundle_of_two_clusters_needs_the_clusters_name(tmp_path: Path) -> None:
    fill(
        tmp_path / "tables",
        BUNDLE_AVERAGES,
        [{"cluster": name, "bundle": "a/b/0x0_0x1", "part": name} for name in ("eu-1", "us-1")],
    )
    result = lbctl(
        "explain", "--why-not", "a/b/0x0_0x1", "--set", "stream.tables=tables", cwd=tmp_path
    )
    assert (result.code, "--cluster: expected one of eu-1, us-1" in result.err) == (2, True)


@pytest.mark.parametrize("bundle", ["a/b/0x0_0x1", "a/b/0x1_0x2"])
def test_both_bundles_that_were_merged_name_what_has_become_of_them(
    tmp_path: Path, bundle: str
) -> None:
    merge = example_decision(
        kind="merge", bundle="a/b/0x0_0x1", neighbour="a/b/0x1_0x2", children=["a/b/0x0_0x2"]
    )
    fill(tmp_path / "tables", DECISIONS, [decided(merge)])
    fill(
        tmp_path / "tables",
        OUTCOMES,
        [{"decision_id": merge.decision_id, "outcome": "confirmed", "took_ms": 1}],
    )
    result = lbctl("explain", "--why-not", bundle, "--set", "stream.tables=tables", cwd=tmp_path)
    check_wording(result.err)


def test_a_bundle_that_was_split_names_its_children(tmp_path: Path) -> None:
    split = example_decision(
        kind="split", children=["a/b/0x0_0x1", "a/b/0x1_0x2"], bundle="a/b/0x0_0x2"
    )
    fill(tmp_path / "tables", DECISIONS, [decided(split)])
    fill(
        tmp_path / "tables",
        OUTCOMES,
        [{"decision_id": split.decision_id, "outcome": "confirmed", "took_ms": 1}],
    )
    result = lbctl(
        "explain", "--why-not", "a/b/0x0_0x2", "--set", "stream.tables=tables", cwd=tmp_path
    )
    check_wording(result.err)


@pytest.mark.parametrize(
    ("owner", "words"),
    [("broker-3:8080", "broker-3:8080 has the bundle now"), (None, "no broker has the bundle now")],
)
def test_a_move_that_did_not_come_to_its_destination_is_told_with_who_has_the_bundle(
    tmp_path: Path, owner: str | None, words: str
) -> None:
    move = example_decision(bundle="a/b/0x0_0x2")
    given = {"cluster": move.cluster, "bundle": move.bundle}
    ended = {
        "decision_id": move.decision_id,
        "outcome": "failed",
        "detail": "it left broker-7, then broker-9 was dead",
        "took_ms": 31_000,
    }
    fill(tmp_path / "tables", DECISIONS, [decided(move)])
    fill(tmp_path / "tables", OUTCOMES, [given | ended | {"seq": 43}])
    fill(tmp_path / "tables", OWNERSHIP, [given | {"state": "Owned", "owner": owner}])
    fill(
        tmp_path / "tables", BROKER_LOADS, [{"cluster": move.cluster, "broker": "other", "seq": 1}]
    )
    result = lbctl(
        "explain", move.decision_id, "--json", "--set", "stream.tables=tables", cwd=tmp_path
    )
    (found,) = result.objects
    assert found["sentence"].endswith(
        f"It failed after 31.0 s (it left broker-7, then broker-9 was dead); {words}."
    )


def test_a_move_of_a_plan_tells_its_cost_its_gain_and_what_the_plan_needs_at_least(
    tmp_path: Path,
) -> None:
    plain = example_decision()
    told = plain.explain.model_copy(
        update={
            "cost": 1.25,
            "client_seconds": 84.5,
            "gain": 0.061,
            "plan_moves": 12,
            "plan_fewest": 11,
        }
    )
    fill(
        tmp_path / "tables",
        DECISIONS,
        [
            decided(plain.model_copy(update={"explain": told, "decision_id": "eu-1:42:1"})),
            decided(plain),
        ],
    )
    fill(tmp_path / "tables", OUTCOMES, [])
    fill(tmp_path / "tables", BROKER_LOADS, [])
    shown, without = (
        lbctl(
            "explain", one, "--set", "stream.tables=tables", cwd=tmp_path, env={"COLUMNS": "200"}
        ).out
        for one in ("eu-1:42:1", "eu-1:42:0")
    )
    for line in (
        "cost         1.25 (1: the average bundle's)",
        "clients lose 84.5 client-seconds",
        "gain         6.1% off its source",
        "plan         12 moves, 11 at least are needed",
    ):
        assert line in shown and line.split()[0] not in without.replace("explain", "")


# --- words ---


def emitted(recorder: Recorder) -> set[str]:
    return {refusal.rule for made in recorder.rounds for refusal in made.refusals}


@pytest.mark.parametrize("name", [name for name in shedder.names if name[0].isupper()])
def test_what_rounds_refuse_and_decide_under_every_shedder_has_words(
    tmp_path: Path, name: str
) -> None:
    manager = {"TransferShedder": "extensible", "SimpleLoadManager": "simple"}.get(name, "modular")
    made = record(
        tmp_path / "tables", 12, settings={"shedding_strategy": name, "load_manager": manager}
    )
    assert emitted(made) <= set(REFUSES)
    assert {decision.rule for each in made.rounds for decision in each.decisions} <= set(DECIDES)
    found = told(made, tmp_path, "--why-not", "broker-1")
    assert next(
        check["description"] for check in found["checks"] if check["name"] == "numbers"
    ).startswith(f"{name}: broker-1:8080: ")


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (None, "ratio", "-"),
        (0.123, "ratio", "12.3%"),
        (50.0, "%", "50.0%"),
        (2.5e6, "bytes/s", "2.50 MB/s"),
        (7.0, "topics", "7 topics"),
    ],
)
def test_figures_have_their_units(value: float | None, unit: str, text: str) -> None:
    assert figure(value, unit) == text


@pytest.mark.parametrize("rule", DECIDES)
def test_every_rule_reads_as_a_sentence_with_its_figures(rule: str) -> None:
    text = explain_rule(
        rule, "b-1:80", {"saw": 0.5, "limit": 0.25, "average": 0.125, "unit": "ratio"}
    )
    assert "{" not in text and not text.endswith(".")
