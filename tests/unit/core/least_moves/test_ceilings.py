"""Ceilings: a broker to which bundles come, and that carries no more than before."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from lb_stream import ask
from lb_stream.contracts.reports import BundleStats
from lb_stream.core.averages import FoldConfig, fold
from lb_stream.core.averages.cluster_view import view_of
from lb_stream.core.least_moves.capacities import IN, OUT
from lb_stream.core.least_moves.fleet import build_fleet, observe_fleet
from lb_stream.core.least_moves.memory import Ceiling, LeastMovesMemory
from lb_stream.core.model.blocks import Shard
from lb_stream.core.model.view import ClusterView
from lb_stream.query.doubtful_limits import describe_doubtful_limits
from lb_stream.recorded import Memory
from tests.support.build import Report, batch_of
from tests.unit.core.least_moves.plans import AT_ONCE, a_name

WEIGHTS = {"cpu": 1.0, "bandwidth_in": 1.0, "bandwidth_out": 1.0}
MB = 1e6
TEN_GBIT = 10_000_000.0  # kbit/s
STEP_MS = 30_000
COUNTS = {"a": 10, "b": 8, "c": 10}
"""Bundles of 10 MB/s; b has room by its cpu."""
NUMBERS = {"a": 0, "b": 100, "c": 200}


class Cluster:
    """Brokers that report every half minute what they carry, up to what they truly can."""

    def __init__(self, most: Mapping[str, float], counts: Mapping[str, int] = COUNTS) -> None:
        self.most = most  # broker → bytes/s
        self.part = dict[str, float]()  # bundle → what it is asked for, of the usual
        self.owned = {
            name: [a_name(NUMBERS[name] + at) for at in range(count)]
            for name, count in counts.items()
        }
        self.shard, self.now_ms, self.memory = Shard.empty(), 1_000, LeastMovesMemory()
        self.asked = 10 * MB
        self.without_figures = False  # of bundles that have just come
        for _ in range(12):
            self.report()

    def move(self, source: str, destination: str, count: int) -> None:
        moved = self.owned[source][-count:]
        self.owned[source] = self.owned[source][:-count]
        self.owned[destination] = self.owned[destination] + moved
        self.moved = moved

    def report(self, only_of: str | None = None, cpu: float = 4.0) -> ClusterView:
        self.now_ms += STEP_MS
        reports = []
        for number, (broker, bundles) in enumerate(self.owned.items()):
            asked = {name: self.asked * self.part.get(name, 1.0) for name in bundles}
            wanted = sum(asked.values())
            part = min(1.0, self.most.get(broker, 1e12) / max(wanted, 1.0))
            # Samples differ a little, so that the noise is known.
            jitter = 1.0 + 0.002 * ((self.now_ms // STEP_MS + number) % 3 - 1)
            stats = {
                name: BundleStats(
                    msg_rate_in=each * part * jitter / 1e4,
                    msg_throughput_in=each * part * jitter,
                    msg_throughput_out=each * part * jitter,
                    topics=2,
                )
                for name, each in asked.items()
            }
            if self.without_figures:
                stats |= {name: BundleStats() for name in self.moved if name in stats}
            carried = wanted * part * jitter
            kbit = carried / 125
            resources = {
                "cpu": (cpu * carried / self.asked, 100.0),
                "bandwidth_in": (kbit, TEN_GBIT),
                "bandwidth_out": (kbit, TEN_GBIT),
                "memory": (1.0, 1_000.0),
                "direct_memory": (1.0, 4_096.0),
            }
            reports.append(Report(broker, self.now_ms + number, stats, resources))
        self.shard = fold(self.shard, batch_of(reports), self.now_ms + 10, FoldConfig())[0]
        view = view_of("c", [self.shard], self.now_ms + 10, WEIGHTS)
        self.memory = observe_fleet(view, self.memory)
        return view


def test_a_broker_that_gets_bundles_and_carries_no_more_has_a_ceiling() -> None:
    cluster = Cluster({"b": 80 * MB})
    cluster.move("a", "b", 2)
    view = cluster.report()
    first = cluster.memory.ceilings["b"]
    assert not first.is_sure, "one report may be chance"
    fleet = build_fleet(view, view, cluster.memory)
    assert fleet.closed.tolist() == [False, True, False], "but until it is known, nothing comes"
    view = cluster.report()
    sure = cluster.memory.ceilings["b"]
    assert sure.is_sure and sure.since_ms == first.since_ms
    assert (sure.into, sure.out) == pytest.approx((80 * MB, 80 * MB), rel=0.01)
    assert sure.expected == pytest.approx(200 * MB, rel=0.05)  # in and out
    assert set(cluster.memory.ceilings) == {"b"}
    fleet = build_fleet(view, view, cluster.memory)
    assert fleet.capacity[1, [IN, OUT]] == pytest.approx([80 * MB, 80 * MB], rel=0.01)
    assert fleet.capacity[0, IN] == TEN_GBIT * 125
    assert not fleet.closed.any(), "once it is known, the broker takes what it can carry"
    # It is in the memory of the next round, and stays although nothing comes any more.
    cluster.memory = LeastMovesMemory.read(cluster.memory.to_dict())
    for _ in range(20):
        cluster.report()
    assert cluster.memory.ceilings["b"].is_sure


def test_a_broker_with_a_ceiling_is_relieved_and_its_refusal_has_both_figures() -> None:
    cluster = Cluster({"b": 80 * MB})
    cluster.move("a", "b", 2)
    for _ in range(2):
        view = cluster.report()
    done = ask(view, Memory(strategies={"LeastMoves": cluster.memory.to_dict()}), **AT_ONCE)
    assert {decision.source for decision in done.decisions} == {"b"}
    (refused,) = [refusal for refusal in done.refusals if refusal.rule == "carries_no_more"]
    assert refused.broker == "b" and refused.least is not None and refused.limit is not None
    assert refused.least == pytest.approx(160 * MB, rel=0.01) and refused.limit > 190 * MB
    (warning,) = describe_doubtful_limits(cluster.memory)
    assert warning.startswith("b ") and "160" in warning


def test_a_broker_that_carries_what_came_has_none() -> None:
    cluster = Cluster({})
    cluster.move("a", "b", 2)
    for _ in range(5):
        cluster.report()
    assert not cluster.memory.ceilings


def test_load_that_falls_everywhere_is_no_sign() -> None:
    cluster = Cluster({})
    cluster.move("a", "b", 2)
    for _ in range(5):
        cluster.asked *= 0.9
        cluster.report()
    assert not cluster.memory.ceilings


def test_bundles_whose_figures_come_late_are_no_sign() -> None:
    cluster = Cluster({})
    cluster.move("a", "b", 2)
    cluster.without_figures = True
    for _ in range(5):
        cluster.report()
    assert not cluster.memory.ceilings


def test_a_broker_that_is_full_by_what_it_reports_has_no_other_ceiling() -> None:
    cluster = Cluster({"b": 80 * MB})
    cluster.move("a", "b", 2)
    for _ in range(2):
        cluster.report(cpu=11.5)
    assert not cluster.memory.ceilings


def test_a_ceiling_is_dropped_once_the_broker_carries_more_or_after_hours() -> None:
    cluster = Cluster({"b": 80 * MB})
    cluster.move("a", "b", 2)
    for _ in range(2):
        cluster.report()
    learned = cluster.memory
    cluster.most = {}  # an operator has changed the card
    cluster.report()
    assert not cluster.memory.ceilings
    old = {
        name: ceiling._replace(since_ms=0, seen_ms=0) for name, ceiling in learned.ceilings.items()
    }
    cluster.most, cluster.memory = {"b": 80 * MB}, replace(learned, ceilings=old)
    cluster.now_ms += 5 * 3_600_000
    cluster.report()
    assert not cluster.memory.ceilings
    assert not learned.without_forgotten(["a"]).ceilings
    assert learned.until(5).ceilings["b"].seen_ms == 5


def test_a_few_bundles_that_fall_are_no_sign() -> None:
    cluster = Cluster({})
    cluster.move("a", "b", 2)
    cluster.moved, cluster.without_figures = cluster.owned["b"][:1], True  # its load has ended
    for _ in range(5):
        cluster.report()
    assert not cluster.memory.ceilings


def test_one_bundle_that_comes_to_a_broker_that_is_full_already_is_a_sign() -> None:
    # The broker is asked for 1.5 times what it can carry, which no report shows.
    cluster = Cluster({"b": 80 * MB}, {"a": 16, "b": 12, "c": 16})
    cluster.move("a", "b", 1)
    cluster.report()
    assert not cluster.memory.ceilings["b"].is_sure
    cluster.report()
    assert cluster.memory.ceilings["b"].is_sure
    assert cluster.memory.ceilings["b"].into == pytest.approx(80 * MB, rel=0.01)


def test_it_is_no_sign_if_only_those_that_came_fall_or_only_the_others() -> None:
    for those in ("came", "others"):
        cluster = Cluster({})
        cluster.move("a", "b", 2)
        came = set(cluster.moved)
        cluster.part = {
            name: 0.8 for name in cluster.owned["b"] if (name in came) == (those == "came")
        }
        for _ in range(5):
            cluster.report()
        assert not cluster.memory.ceilings, those


def test_a_fall_of_a_namespace_at_all_its_brokers_is_no_sign() -> None:
    cluster = Cluster({})
    cluster.owned["d"] = [a_name(number, "t/other") for number in range(40)]
    for _ in range(12):
        cluster.report()
    cluster.move("a", "b", 2)
    for _ in range(5):
        # Most bundles carry what they did; those of the namespace t/n fall at every broker.
        cluster.part = {name: 0.8 for broker in "abc" for name in cluster.owned[broker]}
        cluster.report()
    assert not cluster.memory.ceilings


@pytest.mark.parametrize("is_true", [True, False])
def test_a_ceiling_ends_if_the_bundles_that_stay_do_not_rise_once_others_left(
    is_true: bool,
) -> None:
    cluster = Cluster({"b": 80 * MB}, {"a": 10, "b": 10 if is_true else 8, "c": 10})
    view = cluster.report()
    found = Ceiling(80 * MB, 80 * MB, 200 * MB, view.now_ms, view.now_ms, is_sure=True)
    cluster.memory = replace(cluster.memory, ceilings={"b": found})
    cluster.move("b", "a", 4)
    left = {name: ("b", view.now_ms) for name in cluster.moved}
    cluster.memory = replace(cluster.memory, left=left)
    cluster.report()
    assert ("b" in cluster.memory.ceilings) == is_true


def test_a_ceiling_stays_when_a_later_plan_moves_more_bundles_away() -> None:
    cluster = Cluster({"b": 80 * MB}, {"a": 10, "b": 6, "c": 10})
    view = cluster.report()
    found = Ceiling(80 * MB, 80 * MB, 200 * MB, view.now_ms, view.now_ms, is_sure=True)
    cluster.memory = replace(cluster.memory, ceilings={"b": found})
    first = {a_name(300): ("b", view.now_ms)}
    for _ in range(4):
        view = cluster.report()  # the others have risen long ago
    cluster.move("b", "a", 1)
    left = first | {name: ("b", view.now_ms) for name in cluster.moved}
    cluster.memory = replace(cluster.memory, ceilings={"b": found}, left=left)
    cluster.report()
    assert "b" in cluster.memory.ceilings
