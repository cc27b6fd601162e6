"""Why nothing moves: every rule and state of the job is named, of a bundle, a broker and a
cluster."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from lb_stream.contracts.decisions import Candidate, Explain, example_decision
from lb_stream.contracts.tables import (
    BROKER_LOADS,
    BUNDLE_AVERAGES,
    DECISIONS,
    OUTCOMES,
    REFUSALS,
    ROUNDS,
)
from lb_stream.core.model.memory import BackOff, Memory, Pending, Proposal, Suspension
from lb_stream.core.model.operator_state import OperatorState, RejectedProposal, WaitingCommand
from lb_stream.core.model.rollout import RolloutOrder
from lb_stream.core.model.rules import DECIDES, FILTERED_BY, REFUSES, Rule, refuses
from lb_stream.query import QueryError
from lb_stream.query.health import Facts, JobFacts, StandbyFacts
from lb_stream.query.lake import open_lake
from lb_stream.query.why_not import NoMoveExplanation, explain_no_move
from lb_stream.query.wording import explain_refusal
from lb_stream.store import Store
from tests.support.lbctl_runner import lbctl
from tests.support.table_rows import NOW, decided, fill, load
from tests.support.wordings import check_wording
from tests.unit.console.site import client

HOT, COOL, SECOND_MS, HOUR_MS = "b-1:80", "b-2:80", 1_000, 3_600_000
BUNDLES = tuple(f"shop/app-{number:02}/0x00000000_0xffffffff" for number in range(1, 19))
BUNDLE = BUNDLES[0]
NAMESPACE = BUNDLE.rpartition("/")[0]
ACT = {"mode": "act", "shedding_interval_ms": 60_000}
LIVE = JobFacts("p", 1, "host", 42, NOW - HOUR_MS, True, "process 42 on this machine", NOW)
WELL = Facts(NOW + 2 * SECOND_MS, LIVE)
SUBJECTS: Mapping[str, dict[str, str]] = {
    "bundle": {"bundle": BUNDLE},
    "broker": {"broker": HOT},
    "cluster": {},
}


@dataclass
class Tables:
    """The cluster eu after one round, which had a pass: b-1 is hot and has all bundles, b-2 is
    idle."""

    folder: Path

    def round(self, memory: Memory | None = None, **changes: Any) -> None:
        memory = replace(
            memory or Memory(),
            last_shed_ms=(memory or Memory(last_shed_ms=NOW)).last_shed_ms or NOW,
        )
        settings = ACT | changes.pop("settings", {})
        row = {
            "cluster": "eu",
            "seq": 7,
            "log_seq": 7,
            "now_ms": NOW,
            "memory": memory.to_json(),
            "refusals": "[]",
        }
        fill(self.folder, ROUNDS, [row | {"inputs": json.dumps({"settings": settings})} | changes])

    def refuse(self, rule: Rule, **changes: Any) -> None:
        row = {
            "cluster": "eu",
            "rule": rule.name,
            "broker": HOT,
            "count": 1,
            "subjects": [BUNDLE],
            "seq": 7,
        }
        row |= {
            "limit": 0.85,
            "least": 0.91,
            "greatest": 0.95,
            "unit": rule.unit,
            "now_ms": NOW,
            "log_seq": 7,
        }
        fill(self.folder, REFUSALS, [row | changes])

    def ask(self, facts: Facts = WELL, **subject: Any) -> NoMoveExplanation:
        with open_lake(Store.at(self.folder)) as lake:
            return explain_no_move(lake, facts, "eu", **subject)


@pytest.fixture
def tables(tmp_path: Path) -> Tables:
    folder = tmp_path / "tables"
    rows = [
        load("eu", 7, HOT, 900.0) | {"usage_ratio": 0.95},
        load("eu", 7, COOL, 1.0) | {"usage_ratio": 0.01},
    ]
    fill(folder, BROKER_LOADS, [row | {"now_ms": NOW} for row in rows])
    of = {
        "cluster": "eu",
        "owner": HOT,
        "owner_since_ms": NOW - HOUR_MS,
        "part": "eu-0",
        "now_ms": NOW,
    }
    of |= {"short_throughput_in_bytes_per_s": 1e6, "short_throughput_out_bytes_per_s": 1e6}
    fill(folder, BUNDLE_AVERAGES, [of | {"bundle": bundle} for bundle in BUNDLES])
    fill(folder, DECISIONS, [])
    fill(folder, OUTCOMES, [])
    fill(folder, REFUSALS, [])
    return Tables(folder)


def texts(answer: NoMoveExplanation, keeps: bool | None = None) -> list[str]:
    return [
        f"{check.name}: {check.description}"
        for check in answer.checks
        if keeps in (None, check.blocks)
    ]


def named(rule: str, answer: NoMoveExplanation, keeps: bool | None = None) -> bool:
    return any(rule in text or explain_refusal(rule) in text for text in texts(answer, keeps))


REJECTION = RejectedProposal(
    "eu:5:p1", "eu:5:p1", BUNDLE, True, NOW + HOUR_MS, "ann", "its topics go tonight"
)
CLOSED = "0 3 1 1 * 1h UTC"
"""A window on New Year's night only."""
ORDERS: Mapping[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "paused": ({"operator_state": OperatorState(paused=True)}, {}),
    "frozen": ({}, {"freeze": "the year ends"}),
    "outside_window": ({}, {"disruption_windows": [CLOSED]}),
    "pinned": ({"operator_state": OperatorState(pins={BUNDLE: NOW + HOUR_MS})}, {}),
    "rejected": ({"operator_state": OperatorState(rejections=(REJECTION,))}, {}),
    "rollout": (
        {"operator_state": OperatorState(rollout=RolloutOrder("1", "ann", NOW, (HOT, COOL)))},
        {},
    ),
}
"""Rule of an operator's → the memory and the settings in which it holds, without any refusal."""
WORDS = {"pinned": "pinned", "rejected": "reject"}


@pytest.mark.parametrize("subject", SUBJECTS)
@pytest.mark.parametrize(
    "rule", [rule.name for rule in REFUSES.values() if rule.place == "operators"]
)
def test_what_an_operator_wants_is_named(tables: Tables, rule: str, subject: str) -> None:
    memory, settings = ORDERS[rule]
    tables.round(Memory(**memory), settings=settings)
    answer = tables.ask(**SUBJECTS[subject])
    assert named(WORDS.get(rule, rule), answer)
    if subject == "bundle" or rule not in WORDS:
        assert named(WORDS.get(rule, rule), answer, keeps=True)


@pytest.mark.parametrize("subject", SUBJECTS)
@pytest.mark.parametrize(
    "rule", [rule for rule in REFUSES.values() if rule.place == "suspension"], ids=str
)
def test_a_state_in_which_a_cluster_is_not_decided_on_is_named(
    tables: Tables, rule: Rule, subject: str
) -> None:
    tables.round(refusals=json.dumps([{"rule": rule.name}]))
    tables.refuse(rule, broker=None, subjects=[])
    assert named(rule.name, tables.ask(**SUBJECTS[subject]), keeps=True)


@pytest.mark.parametrize("subject", SUBJECTS)
@pytest.mark.parametrize(
    ("memory", "rule"),
    [
        (Memory(suspension=Suspension("everything_silent", NOW, NOW, (HOT,))), "everything_silent"),
        (Memory(balances={HOT: ("loadBalancerEnabled",)}), "balances_itself"),
    ],
)
def test_a_state_that_is_not_said_with_every_round_is_named(
    tables: Tables, memory: Memory, rule: str, subject: str
) -> None:
    tables.round(memory)
    assert named(rule, tables.ask(**SUBJECTS[subject]), keeps=True)


OF_THE_LAST_PASS = [
    rule for rule in REFUSES.values() if rule.place not in ("operators", "suspension")
]


@pytest.mark.parametrize("subject", SUBJECTS)
@pytest.mark.parametrize("rule", OF_THE_LAST_PASS, ids=str)
def test_each_rule_that_the_last_pass_refused_by_is_named_with_its_figures(
    tables: Tables, rule: Rule, subject: str
) -> None:
    tables.round()
    tables.refuse(rule)
    answer = tables.ask(**SUBJECTS[subject])
    (text,) = [
        text for text in texts(answer) if rule.name in text and explain_refusal(rule.name) in text
    ]
    assert HOT in text and BUNDLE in text and "saw " in text and "limit " in text
    keeps = rule.place not in ("splitting", "")
    assert named(rule.name, answer, keeps=True) is keeps


@pytest.mark.parametrize("subject", SUBJECTS)
def test_refusals_come_in_the_order_of_the_rules_not_of_their_names(
    tables: Tables, subject: str
) -> None:
    tables.round()
    for rule in reversed(OF_THE_LAST_PASS):
        tables.refuse(rule)
    places = ("limits", "policies", "assigning", "waiting", "strategy", "splitting", "noted")
    answer = tables.ask(**SUBJECTS[subject])
    found = [check.name for check in answer.checks if "refused in the last " in check.description]
    assert found == sorted(found, key=places.index) and set(found) == set(places)
    assert len(found) == len(OF_THE_LAST_PASS)


def test_many_refusals_of_one_rule_are_counted_with_the_brokers_that_they_are_of(
    tables: Tables,
) -> None:
    tables.round()
    for number in range(5):
        tables.refuse(
            REFUSES["shifts_overload"],
            broker=f"b-{number}:80",
            count=10,
            greatest=0.9 + number / 100,
        )
    (text,) = [text for text in texts(tables.ask(), keeps=True) if "shifts_overload" in text]
    assert "shifts_overload, 50 times at b-0:80, b-1:80, b-2:80 and 2 more in round 7" in text
    assert "saw 91.0% to 94.0%, limit 85.0%" in text


@pytest.mark.parametrize("subject", SUBJECTS)
def test_what_an_earlier_pass_refused_is_no_cause_any_more(tables: Tables, subject: str) -> None:
    tables.round(Memory(last_shed_ms=NOW))
    for rule in OF_THE_LAST_PASS:
        tables.refuse(rule, now_ms=NOW - 60_000, seq=6)
    assert not [
        text for text in texts(tables.ask(**SUBJECTS[subject])) if "refused in the last " in text
    ]


def test_a_plug_ins_rule_is_named(tables: Tables) -> None:
    with mock.patch.dict(REFUSES):  # other tests see the rules of this package alone
        rule = refuses("moon_is_full", "the moon is full")
        tables.round()
        tables.refuse(rule)
        assert named("moon_is_full", tables.ask(broker=HOT), keeps=True)
        tables.refuse(Rule("of_another_version", "?"))
        assert named("of_another_version", tables.ask(broker=HOT), keeps=False)


@pytest.mark.parametrize("subject", ["bundle", "broker"])
def test_a_refusal_of_many_bundles_without_a_broker_counts_for_each(
    tables: Tables, subject: str
) -> None:
    """Only twenty are named in it."""
    tables.round()
    others = [f"shop/a-{number:02}/0x0_0x1" for number in range(20)]
    tables.refuse(REFUSES["moves_per_minute"], broker=None, subjects=others, count=38)
    assert named("moves_per_minute", tables.ask(**SUBJECTS[subject]), keeps=True)


def test_another_brokers_refusals_are_not_this_ones(tables: Tables) -> None:
    tables.round()
    tables.refuse(REFUSES["shifts_overload"], broker=COOL, subjects=["other/bundle/0x0_0x1"])
    tables.refuse(
        REFUSES["moves_per_hour"], broker=None, subjects=["x/y/0x0_0x1"], count=30, namespace="x/y"
    )
    for subject in ("bundle", "broker"):
        assert not [
            text
            for text in texts(tables.ask(**SUBJECTS[subject]))
            if "refused in the last " in text
        ]
    assert named("shifts_overload", tables.ask(), keeps=True)


def test_a_move_that_waits_for_room_keeps_its_bundle(tables: Tables) -> None:
    command = {"id": "cmd-7", "kind": "unload", "arguments": {"destination": COOL}}
    operator_state = OperatorState(waiting=(WaitingCommand(command, "", queued=(BUNDLE,)),))
    tables.round(Memory(operator_state=operator_state))
    (text,) = [text for text in texts(tables.ask(bundle=BUNDLE), True) if "pending" in text]
    assert f"the command cmd-7 moves it to {COOL} once limits" in text
    assert "1 pending" in " ".join(texts(tables.ask(broker=HOT)))


@pytest.mark.parametrize("rule", DECIDES)
def test_each_rule_of_an_open_decision_is_named(tables: Tables, rule: str) -> None:
    open_ = Pending("eu:6:0", "unload", BUNDLE, HOT, COOL, NOW, NOW + 60_000, 1)
    tables.round(Memory(pending=(open_,)))
    fill(
        tables.folder,
        DECISIONS,
        [decided(example_decision(cluster="eu", decision_id="eu:6:0", bundle=BUNDLE, rule=rule))],
    )
    (text,) = [
        text
        for text in texts(tables.ask(bundle=BUNDLE), keeps=True)
        if text.startswith("pending: ")
    ]
    assert f"({rule}: " in text


def test_each_rule_that_takes_a_broker_out_is_named_by_the_decision(tables: Tables) -> None:
    candidates = [
        Candidate(broker=f"b-{number}:80", refused_by=rule)
        for number, rule in enumerate(FILTERED_BY)
    ]
    decision = example_decision(
        cluster="eu", decision_id="eu:6:0", explain=Explain(candidates=candidates)
    )
    fill(tables.folder, DECISIONS, [decided(decision)])
    asked = ("explain", "eu:6:0", "--set", "stream.tables=tables")
    out = " ".join(lbctl(*asked, cwd=tables.folder.parent, env={"COLUMNS": "200"}).out.split())
    assert [
        rule.name for rule in FILTERED_BY.values() if f"{rule.name}: {rule.sentence}" not in out
    ] == []


# --- the job ---

DEAD = replace(
    LIVE, running=False, evidence="its process 42 on this machine has ended", last_batch_ms=NOW
)
THREE_MIN = replace(WELL, now_ms=NOW + 180_000)
JOBS: Mapping[str, tuple[Facts, bool, str]] = {
    "running": (WELL, False, "it runs (process 42 on this machine)"),
    "dead": (
        replace(THREE_MIN, job=DEAD),
        True,
        "the job is not running (its process 42 on this machine has ended)",
    ),
    "stuck": (replace(THREE_MIN, job=LIVE), True, "has finished no batch for 3 min"),
    "silent elsewhere": (
        replace(THREE_MIN, job=replace(LIVE, running=None)),
        True,
        "the job has finished no batch for 3 min",
    ),
    "unseen": (
        replace(WELL, job=replace(LIVE, running=None)),
        False,
        "whether the job runs is not known here",
    ),
    "behind": (
        replace(WELL, job=replace(LIVE, lag_records=6_000)),
        True,
        "6000 records wait to be read",
    ),
    "in pieces": (
        replace(WELL, searches_poison_record=True),
        True,
        "one batch has ended the job repeatedly",
    ),
    "without Kafka": (
        replace(WELL, kafka="nobody answers"),
        True,
        "Kafka doesn't answer (nobody answers)",
    ),
    "never started": (
        replace(WELL, job=JobFacts("p")),
        False,
        "no job of the pipeline p has been started",
    ),
}


@pytest.mark.parametrize("subject", SUBJECTS)
@pytest.mark.parametrize("state", JOBS)
def test_each_state_of_the_job_is_named_first(tables: Tables, state: str, subject: str) -> None:
    facts, keeps, words = JOBS[state]
    memory = Memory(
        proposals=tuple(map(proposal, BUNDLES)), operator_state=OperatorState(paused=True)
    )
    tables.round(memory)
    answer = tables.ask(facts, **SUBJECTS[subject])
    assert answer.checks[0].name == "job"
    assert words in answer.checks[0].description and answer.checks[0].blocks is keeps
    assert (words in answer.sentence) is (keeps or state == "never started")


@pytest.mark.parametrize("state", ["dead", "stuck", "silent elsewhere"])
def test_how_old_the_answer_is_is_said_where_the_job_decides_no_more(
    tables: Tables, state: str
) -> None:
    tables.round()
    for subject in SUBJECTS.values():
        answer = tables.ask(JOBS[state][0], **subject)
        assert "the figures are 3 min old" in answer.sentence and answer.stale is not None


def test_a_standby_is_named_beside_a_dead_leader(tables: Tables) -> None:
    tables.round()
    facts = replace(JOBS["dead"][0], standbys=(StandbyFacts("host-2:7", True),))
    for subject in SUBJECTS.values():
        answer = tables.ask(facts, **subject)
        assert "standby: host-2:7 stands by, and takes over when the leader's ticks stop" in texts(
            answer
        )


# --- the cluster ---


def proposal(bundle: str) -> Proposal:
    number = BUNDLES.index(bundle)
    place = (
        f"eu:5:p{number}",
        "eu:5:p0",
        "unload",
        bundle,
        HOT,
        COOL,
        "Overloaded",
        "above_average",
        "ThresholdShedder",
    )
    return Proposal(*place, {}, 1e6, NOW, NOW + HOUR_MS)


CLUSTERS: Mapping[str, tuple[Memory, dict[str, Any], str, str]] = {
    "observe": (Memory(), {"settings": {"mode": "observe"}}, "dry run", "not published"),
    "approve": (
        Memory(proposals=tuple(map(proposal, BUNDLES))),
        {"settings": {"mode": "approve"}},
        "approval",
        "wait",
    ),
    "switched off": (Memory(), {"settings": {"enabled": False}}, "balancing", "enabled = false"),
    "shedding off": (
        Memory(),
        {"settings": {"shedding_enabled": False}},
        "shedding",
        "shedding_enabled = false",
    ),
    "paused": (
        Memory(operator_state=OperatorState(paused=True)),
        {},
        "operators",
        "an operator has paused balancing",
    ),
    "frozen": (
        Memory(),
        {"settings": {"freeze": "the year ends"}},
        "disruption windows",
        "the year ends",
    ),
    "out of its window": (
        Memory(),
        {"settings": {"disruption_windows": [CLOSED]}},
        "disruption windows",
        "until ",
    ),
    "suspended": (
        Memory(suspension=Suspension("mass_disappearance", NOW, NOW)),
        {},
        "suspension",
        "mass_disappearance since",
    ),
    "failing": (
        Memory(errors=1),
        {"error": "Traceback\nKeyError: 'x'"},
        "last round",
        "failed: KeyError: 'x'",
    ),
    "suspended after failures": (
        Memory(retry_ms=NOW + HOUR_MS),
        {},
        "suspension",
        "the last rounds failed",
    ),
}


@pytest.mark.parametrize("subject", SUBJECTS)
@pytest.mark.parametrize("state", CLUSTERS)
def test_each_state_of_the_cluster_is_named(tables: Tables, state: str, subject: str) -> None:
    memory, changes, check, words = CLUSTERS[state]
    tables.round(memory, **changes)
    answer = tables.ask(**SUBJECTS[subject])
    keeping = answer.blockers[0]
    assert (keeping.name, words in keeping.description) == (check, True)
    assert keeping.description in answer.sentence


def test_nothing_is_said_to_hold_up_what_nothing_holds_up(tables: Tables) -> None:
    tables.round(settings={"shedding_strategy": "OverloadShedder"})
    for subject, begin in (
        ("cluster", "No rule keeps eu from being balanced"),
        ("broker", f"No rule keeps the load of {HOT}"),
    ):
        answer = tables.ask(**SUBJECTS[subject])
        assert (answer.blockers, answer.stale) == ((), None)
        assert (
            answer.sentence.startswith(begin)
            and "the last pass of OverloadShedder, at " in answer.sentence
            and "; the next is due at " in answer.sentence
            and "next pass of OverloadShedder decides" not in answer.sentence
        )


# --- the bundles of a broker ---


HELD: Mapping[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "pinned": (
        {"operator_state": OperatorState(pins=dict.fromkeys(BUNDLES[1:], NOW + HOUR_MS))},
        {},
    ),
    "rejected by an operator": (
        {
            "operator_state": OperatorState(
                rejections=tuple(replace(REJECTION, bundle=bundle) for bundle in BUNDLES[1:])
            )
        },
        {},
    ),
    "waiting for approval": ({"proposals": tuple(map(proposal, BUNDLES[1:]))}, {"mode": "approve"}),
    "of excluded namespaces": (
        {},
        {"shedding_excluded_namespaces": [name.rpartition("/")[0] for name in BUNDLES[1:]]},
    ),
    "of namespaces whose budget of moves is used up": (
        {"spent": {name.rpartition("/")[0]: ((NOW + HOUR_MS, 1),) for name in BUNDLES[1:]}},
        {f"namespace.{name.rpartition('/')[0]}.moves_per_hour": 1 for name in BUNDLES[1:]},
    ),
    "of namespaces that are frozen or outside their windows": (
        {},
        {f"namespace.{name.rpartition('/')[0]}.freeze": "a launch" for name in BUNDLES[1:]},
    ),
    "pending": (
        {
            "pending": tuple(
                Pending(f"eu:6:{n}", "split", name, HOT, None, NOW, NOW + 60_000, 1)
                for n, name in enumerate(BUNDLES[1:])
            )
        },
        {},
    ),
    "backing off": (
        {"retries": {name: BackOff(1, NOW + HOUR_MS, "unload") for name in BUNDLES[1:]}},
        {},
    ),
    "in their grace period": ({"recently_unloaded": dict.fromkeys(BUNDLES[1:], NOW)}, {}),
}


@pytest.mark.parametrize("why", HELD)
def test_bundles_that_may_not_move_are_not_counted_as_free(tables: Tables, why: str) -> None:
    memory, settings = HELD[why]
    tables.round(Memory(**memory), settings=settings)
    (check,) = [check for check in tables.ask(broker=HOT).checks if check.name == "bundles"]
    assert (check.description, check.blocks) == (f"1 of its 18 bundles may move, 17 {why}", False)


def test_bundles_that_the_last_pass_refused_are_not_counted_as_free(tables: Tables) -> None:
    tables.round()
    tables.refuse(REFUSES["no_other_allowed"], subjects=list(BUNDLES), count=18)
    (check,) = [check for check in tables.ask(broker=HOT).checks if check.name == "bundles"]
    assert (check.description, check.blocks) == (
        "0 of its 18 bundles may move, 18 refused by the last pass",
        True,
    )


def test_a_drained_broker_without_a_bundle_has_none_to_give(tables: Tables) -> None:
    tables.round(Memory(operator_state=OperatorState(drained=(COOL,))))
    found = tables.ask(broker=COOL)
    drain, bundles = (check for check in found.checks if check.name in ("drain", "bundles"))
    assert (bundles.description, bundles.blocks) == ("it has no bundle", True)
    assert drain.description == f"{COOL} is drained: it has no bundle, and gets none"


@pytest.mark.parametrize("count", [1, 2])
def test_one_pinned_bundle_is_one(tables: Tables, count: int) -> None:
    pins = dict.fromkeys(BUNDLES[:count], NOW + HOUR_MS)
    tables.round(Memory(operator_state=OperatorState(pins=pins)))
    (check,) = [check for check in tables.ask().checks if check.name == "pins"]
    begin = {1: "1 bundle is pinned", 2: "2 bundles are pinned"}[count]
    assert check.description == f"{begin} by operators' commands"


def test_a_drain_moves_what_only_balancing_leaves_alone(tables: Tables) -> None:
    operator_state = OperatorState(drained=(HOT,), pins=dict.fromkeys(BUNDLES, NOW + HOUR_MS))
    tables.round(Memory(operator_state=operator_state))
    (check,) = [check for check in tables.ask(broker=HOT).checks if check.name == "bundles"]
    check_wording(check.description)


# --- who asks ---


def test_the_command_line_the_console_and_the_report_give_the_same_answer(tables: Tables) -> None:
    """Of tables that no job has signed, whose age only differs between the moments of asking."""
    tables.round(Memory(proposals=tuple(map(proposal, BUNDLES))), settings={"mode": "approve"})
    for _ in range(3):
        tables.refuse(REFUSES["shifts_overload"])
    page, given = client(tables.folder), ("--set", f"stream.tables={tables.folder}")
    for kind, name in (("broker", HOT), ("bundle", BUNDLE)):
        subject: dict[str, Any] = {kind: name}
        asked = ("explain", "--why-not", name, "--json", *given)
        (found,) = lbctl(*asked, cwd=tables.folder.parent).objects
        shown = page.get(f"/{kind}?cluster=eu&name={name}").text
        assert found["sentence"].partition(" Not up to date")[0] in shown
        expected = tables.ask(replace(WELL, job=JobFacts("lb-stream")), **subject)
        assert found["checks"][1:] == json.loads(
            json.dumps([asdict(check) for check in expected.checks[1:]])
        )
    keeping = tables.ask().blockers
    assert [check.name for check in keeping] == ["approval", "policies"]
    shown = page.get("/cluster?name=eu").text
    (figures,) = lbctl("report", "--json", *given, cwd=tables.folder.parent).objects
    held = [check["description"] for check in figures["why_no_moves"]["checks"] if check["blocks"]]
    assert held == [check.description for check in keeping] and all(text in shown for text in held)
    html = lbctl("report", "--out", "-", *given, cwd=tables.folder.parent).out
    assert all(text in html for text in held)


def test_a_cluster_without_a_round_is_said_to_have_none(tables: Tables) -> None:
    with pytest.raises(QueryError) as error:
        tables.ask(broker=HOT)
    check_wording(error.value)
