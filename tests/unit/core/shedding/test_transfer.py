"""TransferShedder in whole rounds, on modular reports: what it takes for a broker's load, whom it
asks, what becomes of its moves."""

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest

from lb_stream.contracts.reports import BundleStats
from lb_stream.core.averages import fold
from lb_stream.core.averages.cluster_view import view_of
from lb_stream.core.model.blocks import Shard
from lb_stream.core.model.memory import Memory
from lb_stream.core.model.policies import IsolationPolicy, Policies
from lb_stream.core.model.view import Bools, ClusterView, Rows, with_moves
from lb_stream.core.round.decide import Inbox, Round, decide
from lb_stream.core.shedding import transfer
from lb_stream.core.shedding.base import ShedContext, rows_by_broker
from lb_stream.core.shedding.transfer import (
    TransferMemory,
    TransferShedderConfig,
    build_load_store,
    observe,
)
from lb_stream.settings.resolve import cluster_config
from tests.support.build import Report, batch_of

MB = 1e6
EAGER = {
    "shedding_strategy": "TransferShedder",
    "shedding_interval_ms": 0,
    "hit_count_threshold": 0,
    "dry_run": False,
}


def name(number: int, namespace: str = "t/n") -> str:
    return f"{namespace}/0x{number:08x}_0x{number + 1:08x}"


@dataclass
class Life:
    """A cluster that reports round after round."""

    settings: dict[str, Any] = field(default_factory=dict)
    policies: Policies = field(default_factory=Policies)
    shard: Shard = field(default_factory=Shard.empty)
    memory: Memory = field(default_factory=Memory)
    now_ms: int = 1_000_000
    offset: int = 0

    def reports(
        self, loads: dict[str, tuple[float, dict[str, float]]], content: str | None = None
    ) -> ClusterView:
        """Broker → its cpu usage (ratio) and its bundles' bytes/s in."""
        self.now_ms += 1000
        reports = []
        for broker, (usage, bundles) in loads.items():
            self.offset += 1
            stats = {
                bundle: BundleStats(msg_throughput_in=load, msg_rate_in=load / 1000)
                for bundle, load in bundles.items()
            }
            said = None if content is None else f"{content} {broker}"
            reports.append(
                Report(
                    broker,
                    self.now_ms,
                    stats,
                    {"cpu": (usage * 100, 100.0)},
                    offset=self.offset,
                    content=said,
                )
            )
        config = cluster_config(EAGER | self.settings)
        self.shard, _ = fold(self.shard, batch_of(reports), self.now_ms, config.fold)
        return replace(
            view_of("c", [self.shard], self.now_ms, config.balancer.weights), policies=self.policies
        )

    def round(
        self, loads: dict[str, tuple[float, dict[str, float]]], content: str | None = None
    ) -> Round:
        view = self.reports(loads, content)
        config = cluster_config(EAGER | self.settings)
        done = decide(view, self.memory, Inbox(), config)
        self.memory = Memory.from_json(done.memory.to_json())
        return done

    @property
    def hits(self) -> int:
        """Uneven passes in a row, as remembered."""
        return self.memory.strategies["TransferShedder"]["hits"]  # type: ignore[no-any-return]

    @property
    def brokers(self) -> dict[str, list[float]]:
        """Broker → smoothed load, smoothed throughput and number of bundles, as remembered."""
        return self.memory.strategies["TransferShedder"]["brokers"]  # type: ignore[no-any-return]


UNEVEN = {
    "a:1": (0.9, {name(0): 100 * MB, name(1): 150 * MB, name(2): 250 * MB, name(3): 400 * MB}),
    "b:1": (0.5, {name(4): 250 * MB, name(5): 250 * MB}),
    "c:1": (0.1, {name(6): 30 * MB}),
}


def moves(done: Round) -> list[tuple[str, str, str | None, str | None]]:
    return [
        (decision.kind, decision.bundle, decision.source, decision.destination)
        for decision in done.decisions
    ]


def rules(done: Round) -> dict[str, tuple[str, ...]]:
    return {refusal.rule: refusal.subjects for refusal in done.refusals}


def test_the_lightest_top_bundles_go_to_the_emptiest_broker_with_the_figures_that_say_why() -> None:
    done = Life().round(UNEVEN)
    assert moves(done) == [("transfer", name(0), "a:1", "c:1"), ("transfer", name(1), "a:1", "c:1")]
    first = done.decisions[0]
    assert (first.reason, first.rule, first.strategy) == (
        "Overloaded",
        "std_above_target",
        "TransferShedder",
    )
    assert first.explain.saw == pytest.approx(0.32660, abs=1e-5)
    assert (first.explain.limit, first.explain.average) == (0.25, pytest.approx(0.5))
    assert first.explain.expected_after == pytest.approx(0.65)
    assert [one.state for one in done.ownership if one.decision_id] == ["Releasing", "Releasing"]


def test_only_the_configured_number_of_top_bundles_is_looked_at() -> None:
    done = Life({"top_bundles": 2}).round(UNEVEN)
    assert moves(done) == [("transfer", name(2), "a:1", "c:1")]
    assert rules(Life({"top_bundles": 1}).round(UNEVEN))["sole_bundle"]


def test_a_brokers_load_is_smoothed_over_its_samples_not_over_the_rounds_that_shed() -> None:
    life = Life({"history_ratio": 0.5, "shedding_enabled": False})
    life.round({"a:1": (0.8, {name(0): MB})})
    life.round({"a:1": (0.4, {name(0): 3 * MB})})
    assert life.brokers == {"a:1": [pytest.approx(0.6), pytest.approx(2 * MB), 1]}
    life.round({"a:1": (0.4, {name(0): 3 * MB})}, content="same")
    life.round({"a:1": (0.4, {name(0): 3 * MB})}, content="same")  # no new sample
    assert life.brokers == {"a:1": [pytest.approx(0.5), pytest.approx(2.5 * MB), 1]}


def test_a_broker_whose_bundles_have_changed_starts_anew_with_the_report_that_shows_it() -> None:
    life = Life({"shedding_enabled": False})
    life.round(
        {
            "a:1": (0.9, {name(0): MB, name(1): MB}),
            "b:1": (0.2, {name(2): MB}),
            "c:1": (0.5, {name(3): MB}),
        }
    )
    life.round(
        {
            "a:1": (0.5, {name(0): MB}),
            "b:1": (0.6, {name(2): MB, name(1): MB}),
            "c:1": (0.6, {name(3): MB}),
        }
    )
    assert {broker: row[0] for broker, row in life.brokers.items()} == {
        "a:1": pytest.approx(0.5),  # has lost one
        "b:1": pytest.approx(0.6),  # has gained one
        "c:1": pytest.approx(0.51),
    }
    life.round(
        {
            "a:1": (0.7, {name(0): MB}),
            "b:1": (0.6, {name(1): MB, name(3): MB}),
            "c:1": (0.6, {name(2): MB}),
        }
    )
    assert life.brokers["b:1"] == [
        pytest.approx(0.6),
        2 * MB,
        2,
    ]  # lost one and gained one: as many as before


def test_memory_is_read_back_as_it_was_written() -> None:
    written = {"hits": 3, "brokers": {"a:1": [0.1 + 0.2, 1e9 / 3, 7], "b:1": [0.0, 0.0, 0]}}
    assert TransferMemory.read(written).to_dict() == written
    assert TransferMemory.read({}).to_dict() == {"hits": 0, "brokers": {}}


def test_moves_in_flight_count_in_the_loads_that_the_next_pass_sees() -> None:
    life = Life()
    view, config = life.reports(UNEVEN), cluster_config(EAGER).shedder_config
    assert isinstance(config, TransferShedderConfig)
    memory = observe(view, config, TransferMemory.read({}))
    moved = with_moves(view, view.bundles.rows_of([name(3)]), np.array([2]))
    eligible = np.ones(len(view.bundles), np.bool_)
    store = build_load_store(ShedContext.build(moved, config, memory, eligible, reported=view))
    assert store.load.tolist() == pytest.approx(
        [0.5, 0.5, 0.5], rel=1e-6
    )  # four ninths of the usage of 0.9 moves along
    assert store.throughput.tolist() == pytest.approx([500 * MB, 500 * MB, 430 * MB])
    assert store.throughput_ema.tolist() == pytest.approx([500 * MB, 500 * MB, 430 * MB])
    assert build_load_store(
        ShedContext.build(view, config, memory, eligible, reported=view)
    ).load.tolist() == pytest.approx([0.9, 0.5, 0.1], rel=1e-6)


def test_no_pass_is_made_while_moves_are_under_way_nor_within_the_delay_after_the_last_one() -> (
    None
):
    life = Life({"unload_delay_ms": 3000, "hit_count_threshold": 0})
    life.round(UNEVEN)
    assert rules(life.round(UNEVEN))["unloading"] == ("a:1",)
    a = dict(list(UNEVEN["a:1"][1].items())[2:])
    released = life.round(UNEVEN | {"a:1": (0.65, a)})
    assert [
        (decision.kind, decision.destination, decision.rule) for decision in released.decisions
    ] == [("assign", "c:1", "released")] * 2
    assert "cool_down" in rules(released) and life.memory.unloaded_brokers == {
        "a:1": released.now_ms
    }
    after = UNEVEN | {
        "a:1": (0.9, a),
        "c:1": (0.1, UNEVEN["c:1"][1] | {name(0): 100 * MB, name(1): 150 * MB}),
    }
    assert "cool_down" in rules(life.round(after)) and "cool_down" in rules(life.round(after))
    last = life.round(after)  # 3 s after the confirmation
    assert "cool_down" not in rules(last)


def test_a_pass_needs_as_many_uneven_rounds_in_a_row_as_configured() -> None:
    life, even = (
        Life({"hit_count_threshold": 2}),
        UNEVEN | {"a:1": (0.5, UNEVEN["a:1"][1]), "c:1": (0.5, {name(6): 400 * MB})},
    )
    for loads, hits in ((UNEVEN, 1), (UNEVEN, 2)):
        done = life.round(loads)
        assert not done.decisions and life.hits == hits and "hit_count" in rules(done)
    life.settings["history_ratio"] = 0  # so that the next report is believed at once
    assert not life.round(even).refusals and life.hits == 0
    life.round(UNEVEN)
    assert life.hits == 1


@pytest.mark.parametrize(
    "policies",
    [
        Policies(isolation=(IsolationPolicy(("t/n",), (".*",)),)),
        Policies(anti_affinity={"t/n": "group"}),
    ],
    ids=["isolation", "anti-affinity"],
)
def test_bundles_with_policies_are_no_top_bundles_unless_that_is_enabled(
    policies: Policies,
) -> None:
    assert rules(Life(policies=policies).round(UNEVEN)).keys() >= {"no_top_bundles", "no_load_data"}
    if policies.isolation:  # its primary brokers are closed to others
        assert (
            len(Life({"shed_bundles_with_policies": True}, policies).round(UNEVEN).decisions) == 2
        )
        return
    other = {
        broker: (usage, {bundle.replace("t/n", "t/m"): load for bundle, load in own.items()})
        for broker, (usage, own) in UNEVEN.items()
    }
    assert len(Life(policies=policies).round(other).decisions) == 2


def test_a_destination_that_policies_refuse_gets_nothing() -> None:
    only_b = Policies(isolation=(IsolationPolicy(("t/n",), ("a", "b")),))
    done = Life({"shed_bundles_with_policies": True, "max_brokers_per_cycle": 9}, only_b).round(
        UNEVEN
    )
    assert not done.decisions
    refused = {
        refusal.broker: refusal.subjects
        for refusal in done.refusals
        if refusal.rule == "not_transferable"
    }
    assert refused == {"a:1": tuple(name(number) for number in range(4)), "b:1": (name(4), name(5))}


def test_a_destination_with_too_many_topics_gets_nothing() -> None:
    life = Life({"broker_max_topics": 5})
    view = life.reports(UNEVEN)
    full = replace(view, brokers=replace(view.brokers, topics=np.array([0, 0, 6])))
    done = decide(full, Memory(), Inbox(), cluster_config(EAGER | life.settings))
    assert not done.decisions and "not_transferable" in rules(done)


def test_excluded_and_system_namespaces_are_left_alone() -> None:
    assert not Life({"shedding_excluded_namespaces": ["t/n"]}).round(UNEVEN).decisions
    assert Life({"shedding_excluded_namespaces": ["t/m"]}).round(UNEVEN).decisions
    system = {
        broker: (
            usage,
            {bundle.replace("t/n", "pulsar/system"): load for bundle, load in own.items()},
        )
        for broker, (usage, own) in UNEVEN.items()
    }
    assert not Life().round(system).decisions


@pytest.mark.parametrize("strategy", ["ThresholdShedder", "OverloadShedder"])
def test_excluded_namespaces_are_left_alone_by_the_modular_shedders_too(strategy: str) -> None:
    settings = {"shedding_strategy": strategy, "min_throughput_mb": 0}
    assert Life(settings).round(UNEVEN).decisions
    assert not Life(settings | {"shedding_excluded_namespaces": ["t/n"]}).round(UNEVEN).decisions


def test_limits_on_moves_hold_for_transfers_too() -> None:
    done = Life({"max_moves_in_flight_per_broker": 1}).round(UNEVEN)
    assert len(done.decisions) == 1 and rules(done)["moves_in_flight_of_broker"] == (name(1),)


@pytest.mark.parametrize(
    ("settings", "rule"),
    [
        ({"max_moves_in_flight": 2}, "moves_in_flight"),
        ({"max_moves_in_flight_per_broker": 1}, "moves_in_flight_of_broker"),
        ({"max_moves_in_flight": 3, "max_moves_in_flight_per_broker": 2}, None),
    ],
)
def test_an_exchange_is_decided_as_a_whole_or_not_at_all(
    settings: dict[str, int], rule: str | None
) -> None:
    loads = {
        "a:1": (1.0, {name(0): 450 * MB, name(1): 550 * MB}),
        "b:1": (0.2, {name(2): 20 * MB, name(3): 150 * MB}),
    }
    done = Life(settings).round(loads)
    if rule is None:
        back = [("transfer", name(2), "b:1", "a:1"), ("transfer", name(3), "b:1", "a:1")]
        assert moves(done) == [*back, ("transfer", name(0), "a:1", "b:1")] and not done.refusals
    else:
        assert not done.decisions and rules(done)[rule] == (name(0), name(2), name(3))


def test_a_source_that_reports_no_throughput_of_its_own_gives_a_decision_that_can_be_written() -> (
    None
):
    life = Life({"shedding_enabled": False})
    loads = {
        "a:1": (0.0, {name(0): MB}),
        "b:1": (0.0, {name(1): 10 * MB, name(2): 20 * MB, name(3): 30 * MB}),
    }
    life.round(loads)
    life.settings["shedding_enabled"] = True
    view = life.reports(loads)
    silent = replace(
        view.brokers.latest, throughput_in=np.zeros(2)
    )  # what it reported before counts in its smoothed one
    silent_view = replace(view, brokers=replace(view.brokers, latest=silent))
    done = decide(silent_view, life.memory, Inbox(), cluster_config(EAGER | life.settings))
    assert moves(done) == [("transfer", name(1), "b:1", "a:1"), ("transfer", name(2), "b:1", "a:1")]
    for decision in done.decisions:
        assert (decision.rule, decision.explain.expected_after) == ("idle_broker", None)
        decision.to_json()
    done.memory.to_json()


def test_few_searches_find_the_top_bundles_of_many_brokers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    searched = list[list[int]]()

    def count(view: ClusterView, brokers: Rows, movable: Bools) -> dict[int, Rows]:
        searched.append(brokers.tolist())
        return rows_by_broker(view, brokers, movable)

    monkeypatch.setattr(transfer, "rows_by_broker", count)
    loads = {
        f"b{at:02d}:1": (
            0.9 if at < 20 else 0.1,
            {name(2 * at): 40 * MB, name(2 * at + 1): 50 * MB},
        )
        for at in range(40)
    }
    done = Life({"target_std": 0.0, "max_brokers_per_cycle": 20}).round(loads)
    assert len({decision.source for decision in done.decisions}) == 20
    assert [len(brokers) for brokers in searched] == [6, 6, 12, 16]
    assert sorted(broker for brokers in searched for broker in brokers) == list(range(40))


@pytest.mark.parametrize("brokers", [[], [3], [11, 0, 7], list(range(11, 0, -1))])
def test_bundles_of_few_brokers_and_of_many_are_the_eligible_ones_of_each(
    brokers: list[int],
) -> None:
    loads = {f"b{at:02d}:1": (0.5, {name(at): MB, name(20 + at): MB}) for at in range(12)}
    view = Life().reports(loads)
    owner = view.bundles.owner.copy()
    owner[:3], owner[5] = -1, 7
    view = replace(view, bundles=replace(view.bundles, owner=owner))
    eligible = np.arange(len(owner)) % 5 > 0
    found = rows_by_broker(view, np.array(brokers, np.intp), eligible)
    assert {broker: rows.tolist() for broker, rows in found.items()} == {
        broker: [row for row in range(len(owner)) if owner[row] == broker and eligible[row]]
        for broker in brokers
    }
