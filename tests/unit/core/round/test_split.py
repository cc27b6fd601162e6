"""The split check within a round: what is decided, remembered and recorded.

How it goes on is in scenarios/*split*.txt.
"""

from dataclasses import replace
from typing import Any

import pytest

from lb_stream.agent.obey import AgentMemory, judge
from lb_stream.contracts.reports import Ack, BundleStats, SplitAsk
from lb_stream.core.model.memory import Pending
from lb_stream.core.model.operator_state import OperatorState
from lb_stream.core.round.decide import Round
from lb_stream.core.splitting.config import MIB
from tests.support.splitting_cluster import LARGE, LEFT, PARENT, RIGHT, SMALL, Cluster
from tests.support.vectors import vector

OTHER = "t/n/0x40000000_0x80000000"


def records(done: Round) -> list[tuple[str, str, str | None, int]]:
    return [(one.bundle, one.state, one.owner, one.version) for one in done.ownership]


def test_a_decision_to_split_says_everything_that_its_owner_and_a_reader_need() -> None:
    (one,) = Cluster().round({"a": {PARENT: LARGE}, "b": {}}).decisions
    assert (one.kind, one.bundle, one.source, one.destination, one.expected_owner) == (
        "split",
        PARENT,
        "a",
        None,
        "a",
    )
    assert (one.children, one.boundaries, one.algorithm, one.unload_children) == (
        [LEFT, RIGHT],
        [0x20000000],
        "range_equally_divide",
        True,
    )
    assert (one.reason, one.rule, one.strategy) == ("Topics", "max_topics", "BundleSplitterTask")
    assert (one.explain.saw, one.explain.limit, one.explain.unit) == (1200.0, 1000.0, "topics")


@pytest.mark.parametrize(
    ("stats", "reason", "saw", "limit"),
    [
        (BundleStats(topics=2, producer_count=600, consumer_count=401), "Sessions", 1001, 1000),
        (
            BundleStats(topics=2, msg_rate_in=20_000.0, msg_rate_out=10_001.0),
            "MsgRate",
            30_001,
            30_000,
        ),
        (
            BundleStats(topics=2, msg_throughput_in=100.0 * MIB, msg_throughput_out=1.0),
            "Bandwidth",
            100 * MIB + 1,
            100 * MIB,
        ),
    ],
)
def test_every_limit_is_explained_in_its_own_unit(
    stats: BundleStats, reason: str, saw: float, limit: float
) -> None:
    (one,) = Cluster().round({"a": {PARENT: stats}, "b": {}}).decisions
    assert (one.reason, one.explain.saw, one.explain.limit) == (reason, saw, limit)


@pytest.mark.parametrize(
    "case", [one for one in vector("split_trigger")["cases"] if "brokers" in one]
)
def test_a_lone_brokers_bundles_are_not_split(case: dict[str, Any]) -> None:
    assert case["split"] is False
    assert Cluster().round({"a": {PARENT: BundleStats(topics=case["topics"])}}).decisions == ()


@pytest.mark.parametrize(
    "settings", [{"split_enabled": False}, {"enabled": False}, {"load_manager": "extensible"}]
)
def test_nothing_is_split_when_it_is_not_to_be_decided_here(settings: dict[str, Any]) -> None:
    assert Cluster(**settings).round({"a": {PARENT: LARGE}, "b": {}}).decisions == ()


def test_the_modular_manager_judges_long_term_rates_the_simple_one_the_last_report() -> None:
    calm, busy = (
        BundleStats(topics=2, msg_rate_in=10.0),
        BundleStats(topics=2, msg_rate_in=40_000.0),
    )
    for manager, expected in (("modular", []), ("simple", ["MsgRate"])):
        cluster = Cluster(load_manager=manager)
        cluster.round({"a": {PARENT: calm}, "b": {}})
        assert [
            decision.reason for decision in cluster.round({"a": {PARENT: busy}, "b": {}}).decisions
        ] == expected


def test_the_simple_manager_speaks_of_splits_that_are_switched_off() -> None:
    done = Cluster(load_manager="simple", split_enabled=False).round({"a": {PARENT: LARGE}})
    assert done.decisions == ()
    assert [(refusal.rule, refusal.subjects) for refusal in done.refusals] == [
        ("split_disabled", (PARENT,))
    ]


def test_the_records_tell_of_the_parent_and_the_children() -> None:
    cluster = Cluster(unload_split_bundles=False)
    first = cluster.round({"a": {PARENT: LARGE}, "b": {}})
    assert records(first) == [(PARENT, "Owned", "a", 1), (PARENT, "Splitting", "a", 2)]
    done = cluster.round({"a": {LEFT: SMALL, RIGHT: SMALL}, "b": {}})
    assert sorted(records(done)) == [
        (LEFT, "Owned", "a", 1),
        (PARENT, "Deleted", None, 3),
        (RIGHT, "Owned", "a", 1),
    ]
    assert [outcome.outcome for outcome in done.outcomes] == [
        "confirmed"
    ] and done.memory.pending == ()
    assert cluster.round({"a": {LEFT: SMALL, RIGHT: SMALL}, "b": {}}).decisions == (), (
        "the parent is no orphan"
    )


@pytest.mark.parametrize("refused", [True, False], ids=["refused", "expired"])
def test_a_bundle_that_was_not_split_is_its_owners_again_and_backs_off(refused: bool) -> None:
    cluster = Cluster()
    (one,) = cluster.round({"a": {PARENT: LARGE}, "b": {}}).decisions
    acks = (Ack(decision_id=one.decision_id, outcome="refused", reason="no"),) if refused else ()
    if not refused:
        cluster.round({"a": {PARENT: LARGE}, "b": {}}, wait_ms=1_000)  # it has been published
    done = cluster.round(
        {"a": {PARENT: LARGE}, "b": {}}, acks, wait_ms=1_000 if refused else 60_000
    )
    assert [outcome.outcome for outcome in done.outcomes] == ["refused" if refused else "expired"]
    assert records(done) == [(PARENT, "Owned", "a", 3)]
    assert done.decisions == () and done.memory.retries[PARENT].kind == "split"
    assert [
        decision.kind
        for decision in cluster.round({"a": {PARENT: LARGE}, "b": {}}, wait_ms=60_000).decisions
    ] == ["split"]


def test_a_parent_that_is_forgotten_at_once_is_confirmed_by_its_children() -> None:
    cluster = Cluster(bundle_retention_ms=0)
    cluster.round({"a": {PARENT: LARGE, OTHER: SMALL}, "b": {}})
    assert [
        outcome.outcome
        for outcome in cluster.round(
            {"a": {LEFT: SMALL, RIGHT: SMALL, OTHER: SMALL}, "b": {}}
        ).outcomes
    ] == ["confirmed"]


def test_a_parent_that_only_disappeared_is_waited_for() -> None:
    cluster = Cluster()
    cluster.round({"a": {PARENT: LARGE}, "b": {}})
    done = cluster.round({"a": {}, "b": {}})
    assert done.outcomes == done.decisions == ()
    late = cluster.round({"a": {}, "b": {}}, wait_ms=60_000)
    assert [outcome.outcome for outcome in late.outcomes] == ["expired"]
    assert [(decision.kind, decision.bundle) for decision in late.decisions] == [("assign", PARENT)]


def test_a_parent_that_somebody_else_serves_was_not_split() -> None:
    cluster = Cluster()
    cluster.round({"a": {PARENT: LARGE}, "b": {}})
    done = cluster.round({"a": {}, "b": {PARENT: LARGE}})
    assert [(outcome.outcome, outcome.detail) for outcome in done.outcomes] == [
        ("superseded", "reported by b instead")
    ]


def test_children_whose_owner_dies_at_once_confirm_the_split_and_get_an_owner() -> None:
    cluster = Cluster(report_timeout_ms=10_000)
    cluster.round({"a": {PARENT: LARGE}, "b": {}, "c": {}, "d": {}})
    view = cluster.round({"a": {LEFT: SMALL, RIGHT: SMALL}, "b": {}, "c": {}, "d": {}})
    assert [outcome.outcome for outcome in view.outcomes] == ["confirmed"]
    late = cluster.round({"b": {}, "c": {}, "d": {}}, wait_ms=11_000)
    assert sorted((decision.kind, decision.bundle) for decision in late.decisions) == [
        ("assign", LEFT),
        ("assign", RIGHT),
    ]


def test_splits_in_flight_stay_within_their_limit_and_each_takes_a_place_of_its_namespace() -> None:
    names = {f"t/n/0x{low:08x}_0x{low + 256:08x}": LARGE for low in range(0, 1280, 256)}
    done = Cluster(max_splits_in_flight=2).round({"a": names, "b": {}})
    assert len(done.decisions) == 2
    assert [(refusal.rule, refusal.count, refusal.limit) for refusal in done.refusals] == [
        ("splits_in_flight", 3, 2.0)
    ]
    cluster = Cluster(namespace_max_bundles=7)
    assert len(cluster.round({"a": names, "b": {}}).decisions) == 2
    assert cluster.round({"a": names, "b": {}}).decisions == (), (
        "two splits under way will make it seven"
    )


def test_a_bundle_without_room_for_two_is_refused() -> None:
    done = Cluster().round({"a": {"t/n/0x00000005_0x00000006": LARGE}, "b": {}})
    assert done.decisions == ()
    assert [(refusal.rule, refusal.broker) for refusal in done.refusals] == [
        ("range_too_narrow", "a")
    ]


@pytest.mark.parametrize(
    ("algorithm", "children"),
    [("topic_count_equally_divide", 0), ("flow_or_qps_equally_divide", 0), ("nonsense", 2)],
)
def test_where_topics_are_needed_the_owner_finds_the_boundaries(
    algorithm: str, children: int
) -> None:
    (one,) = Cluster(split_algorithm=algorithm).round({"a": {PARENT: LARGE}, "b": {}}).decisions
    assert (len(one.children), one.algorithm) == (
        children,
        "range_equally_divide" if children else algorithm,
    )


def test_positions_that_nobody_gave_split_nothing() -> None:
    done = Cluster(split_algorithm="specified_positions_divide").round(
        {"a": {PARENT: LARGE}, "b": {}}
    )
    assert done.decisions == () and [refusal.rule for refusal in done.refusals] == ["no_boundary"]


def test_a_broker_whose_figures_are_no_numbers_splits_nothing() -> None:
    cluster = Cluster()
    broken = BundleStats.model_construct(
        **(BundleStats().model_dump() | {"topics": 1200, "msg_rate_in": float("inf")})
    )
    done = cluster.round({"a": {PARENT: broken}, "b": {OTHER: LARGE}, "c": {}})
    assert [(decision.kind, decision.bundle) for decision in done.decisions] == [("split", OTHER)]
    assert [(refusal.rule, refusal.broker) for refusal in done.refusals] == [("not_finite", "a")]


def test_children_are_unloaded_to_where_placement_wants_them() -> None:
    cluster = Cluster()
    cluster.round({"a": {PARENT: LARGE}, "b": {}})
    done = cluster.round({"a": {LEFT: SMALL, RIGHT: SMALL}, "b": {}})
    found = [
        (decision.kind, decision.bundle, decision.source, decision.destination, decision.rule)
        for decision in done.decisions
    ]
    assert found == [("unload", child, "a", "b", "split_child") for child in (LEFT, RIGHT)]
    assert cluster.round({"a": {}, "b": {}}).decisions[0].rule == "released"


@pytest.mark.parametrize(
    "settings",
    [
        {"unload_split_bundles": False},
        {"load_manager": "extensible"},
        {"assign_unowned": "on_lookup"},
        {"max_moves_in_flight": 0},
    ],
)
def test_children_stay_where_they_are_unless_they_are_to_be_unloaded_here(
    settings: dict[str, Any],
) -> None:
    cluster = Cluster()
    cluster.round({"a": {PARENT: LARGE}, "b": {}})
    cluster.settings |= settings
    if settings == {"unload_split_bundles": False}:  # it is the decision's word that counts
        cluster.memory = replace(
            cluster.memory,
            pending=tuple(replace(one, unload_children=False) for one in cluster.memory.pending),
        )
    assert cluster.round({"a": {LEFT: SMALL, RIGHT: SMALL}, "b": {}}).decisions == ()


@pytest.mark.parametrize("limit", ["max_moves_in_flight", "max_moves_per_minute"])
def test_children_count_in_the_limits_of_one_another(limit: str) -> None:
    cluster = Cluster()
    cluster.round({"a": {PARENT: LARGE}, "b": {}})
    cluster.settings |= {limit: 1}
    done = cluster.round({"a": {LEFT: SMALL, RIGHT: SMALL}, "b": {}})
    assert [decision.bundle for decision in done.decisions] == [LEFT]
    assert [refusal.subjects for refusal in done.refusals] == [(RIGHT,)]


def test_a_split_whose_message_is_lost_is_decided_anew_and_an_unload_meanwhile_makes_it_stale() -> (
    None
):
    cluster = Cluster()
    (first,) = cluster.round({"a": {PARENT: LARGE}, "b": {}}).decisions
    cluster.round({"a": {PARENT: LARGE}, "b": {}}, wait_ms=1_000)  # it has been published
    assert cluster.round({"a": {PARENT: LARGE}, "b": {}}, wait_ms=60_000).decisions == ()
    (again,) = cluster.round({"a": {PARENT: LARGE}, "b": {}}, wait_ms=60_000).decisions
    assert (again.kind, again.bundle, again.decision_id == first.decision_id) == (
        "split",
        PARENT,
        False,
    )
    assert again.expected_version == first.expected_version + 2, (
        "the first one can't be taken for it"
    )
    seen = AgentMemory()
    for record in cluster.last.ownership:
        seen.note_record(record.bundle, record, cluster.now_ms)
    fresh = {"now_ms": again.issued_ms, "owns": True}
    assert (
        judge("a", seen, first.model_copy(update={"expires_ms": again.expires_ms}), **fresh).action
        == "refuse"
    )
    assert judge("a", seen, again, **fresh).action == "split"


# --- the extensible manager: brokers look, and ask ---


def ask(bundle: str = PARENT, at: int = 0x20000000, **changes: Any) -> SplitAsk:
    fields = {
        "reason": "MsgRate",
        "boundaries": [at],
        "algorithm": "range_equally_divide",
        "saw": 31_000.0,
        "limit": 30_000.0,
    }
    return SplitAsk(bundle=bundle, **fields | changes)


def asked(
    *asks: tuple[str, SplitAsk], memory: dict[str, Any] | None = None, **settings: Any
) -> Round:
    """A round in which brokers ask: a owns two bundles, b one of another namespace."""
    cluster = Cluster(**{"load_manager": "extensible"} | settings)
    owned = {"a": {PARENT: SMALL, OTHER: SMALL}, "b": {"t/m/0x00000000_0xffffffff": SMALL}}
    cluster.round(owned)
    cluster.memory = replace(cluster.memory, **memory or {})
    return cluster.round(owned, asks=asks)


def test_a_broker_gets_the_split_that_it_asks_for() -> None:
    (one,) = asked(("a", ask())).decisions
    assert (one.kind, one.bundle, one.source, one.boundaries, one.children) == (
        "split",
        PARENT,
        "a",
        [0x20000000],
        [LEFT, RIGHT],
    )
    assert (one.reason, one.rule, one.strategy, one.unload_children) == (
        "MsgRate",
        "max_rate",
        "DefaultNamespaceBundleSplitStrategyImpl",
        False,
    )
    assert (one.explain.saw, one.explain.limit, one.explain.unit) == (31_000.0, 30_000.0, "msg/s")


@pytest.mark.parametrize(
    ("broker", "request_", "settings", "rule"),
    [
        ("b", ask(), {}, "not_its_owner"),
        ("a", ask("t/n/0x80000000_0xc0000000"), {}, "not_its_owner"),
        ("a", ask(at=0x40000000), {}, "boundary_outside"),
        ("a", ask(boundaries=[]), {}, "no_boundary"),
        ("a", ask(), {"namespace_max_bundles": 2}, "namespace_max_bundles"),
        (
            "a",
            ask(boundaries=[0x10000000, 0x20000000]),
            {"namespace_max_bundles": 3},
            "namespace_max_bundles",
        ),
        ("a", ask(), {"max_splits_in_flight": 0}, "splits_in_flight"),
    ],
)
def test_what_a_broker_does_not_know_is_looked_at_when_it_asks(
    broker: str, request_: SplitAsk, settings: dict[str, Any], rule: str
) -> None:
    done = asked((broker, request_), **settings)
    assert done.decisions == () and [refusal.rule for refusal in done.refusals] == [rule]


@pytest.mark.parametrize("settings", [{"split_enabled": False}, {"load_manager": "modular"}])
def test_brokers_ask_in_vain_where_their_manager_does_not_split_so(
    settings: dict[str, Any],
) -> None:
    done = asked(("a", ask()), **settings)
    assert done.decisions == done.refusals == ()


def test_brokers_ask_in_vain_during_a_pause() -> None:
    assert (
        asked(("a", ask()), memory={"operator_state": OperatorState(paused=True)}).decisions == ()
    )
    assert (
        len(asked(("a", ask()), memory={"operator_state": OperatorState(paused=False)}).decisions)
        == 1
    )


def test_a_bundle_on_its_way_or_beside_one_that_is_being_split_waits() -> None:
    moving = Pending("c:1:0", "transfer", PARENT, "a", "b", 1_001_000, 1_061_000, 2)
    assert [
        refusal.rule for refusal in asked(("a", ask()), memory={"pending": (moving,)}).refusals
    ] == ["not_free"]
    neighbour = "t/n/0x00000000_0x20000000"
    splitting = Pending("c:1:0", "split", neighbour, "a", None, 1_001_000, 1_061_000, 2)
    cluster = Cluster(load_manager="extensible")
    owned = {"a": {PARENT: SMALL, neighbour: SMALL}, "b": {}}
    cluster.round(owned)
    cluster.memory = replace(cluster.memory, pending=(splitting,))
    assert [refusal.rule for refusal in cluster.round(owned, asks=(("a", ask()),)).refusals] == [
        "neighbour_is_splitting"
    ]


def test_two_who_ask_for_one_namespace_share_the_places_that_are_left() -> None:
    done = asked(("a", ask()), ("a", ask(OTHER, 0x60000000)), namespace_max_bundles=3)
    assert [decision.bundle for decision in done.decisions] == [PARENT]
    assert [(refusal.rule, refusal.subjects) for refusal in done.refusals] == [
        ("namespace_max_bundles", (OTHER,))
    ]


@pytest.mark.parametrize("elsewhere", [False, True])
def test_a_broker_that_asks_to_split_what_is_split_already_is_refused(elsewhere: bool) -> None:
    cluster = Cluster(load_manager="extensible")
    owned = {"a": {PARENT: LARGE, LEFT: SMALL}, "b": {}}
    owned["b" if elsewhere else "a"][RIGHT] = SMALL
    done = cluster.round(owned, asks=(("a", ask()),))
    assert done.decisions == ()
    assert [(refusal.rule, refusal.broker, refusal.subjects) for refusal in done.refusals] == [
        ("overlaps", "a", (PARENT,))
    ]
