"""A hot scalable topic whose segments Pulsar splits every minute: what averages make of it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import pytest

from lb_stream.core.averages import FoldConfig
from lb_stream.core.averages.cluster_view import view_of
from lb_stream.core.least_moves.fleet import build_fleet, observe_fleet
from lb_stream.core.least_moves.memory import LeastMovesMemory
from lb_stream.core.model.blocks import RESOURCES
from lb_stream.core.model.view import ClusterView, Floats
from tests.properties.model import Model, bundle_rows
from tests.properties.strategies import Shards
from tests.support.build import Report
from tests.support.scaling_stream import BROKERS, REPORT_MS, SPLIT_MS, ScalingStream

WEIGHTS = dict.fromkeys(RESOURCES, 1.0)


@dataclass(frozen=True)
class Step:
    """A cluster after a step's reports: its view, and what its bundles carry without noise."""

    now_ms: int
    view: ClusterView
    exact: Floats

    @property
    def since_split(self) -> int:
        """Reports since the last split, with this one; 0 before the first."""
        return 0 if self.now_ms < SPLIT_MS else self.now_ms % SPLIT_MS // REPORT_MS + 1


def steps_of(stream: ScalingStream, config: FoldConfig) -> Iterator[Step]:
    shards = Shards.empty(1, config)
    for now_ms, reports in stream.batches():
        shards.take(reports)
        view = view_of("eu", shards.shards, now_ms, WEIGHTS)
        names = view.bundles.names.to_pylist()
        exact = [stream.load_of(name, now_ms).msg_rate_in for name in names]
        yield Step(now_ms, view, np.array(exact))


@pytest.mark.parametrize("seed", range(3))
def test_averages_of_bundles_between_which_segments_leap_are_those_of_the_definition(
    seed: int,
) -> None:
    shards, model = Shards.empty(2, FoldConfig()), Model(FoldConfig())
    for now_ms, reports in ScalingStream(minutes=8, seed=seed).batches():
        shards.take(reports)
        model.batch(reports, now_ms)
        assert bundle_rows(shards.shards) == model.bundle_rows()


def test_a_short_term_average_follows_a_leap_by_a_tenth_with_each_report() -> None:
    """All bundles have had ten reports, so what a segment leaves and what its halves bring is
    counted once: the sum of short-term averages is right, only its place is late."""
    stream, config = ScalingStream(minutes=12), FoldConfig()
    for step in steps_of(stream, config):
        if step.now_ms >= 10 * REPORT_MS:
            total = step.view.bundles.short.rate.sum() / step.exact.sum()
            assert total == pytest.approx(1.0, abs=0.04)


def test_a_bundle_that_is_new_counts_a_leap_twice_until_the_old_average_has_followed() -> None:
    """Its first report is its whole average, so the bundle of the sealed segment still has nine
    tenths of the load, a tenth less with each report. Long-term averages take longer."""
    stream, shards = ScalingStream(minutes=12), Shards.empty(1, FoldConfig())
    whole = stream.bundle_of(next(iter(stream.segments)))
    for _, reports in ScalingStream(minutes=3, splits=False).batches():
        shards.take([_only(report, {whole}) for report in reports])
    now_ms = 180_000
    sealed, halves = stream.split(now_ms)
    for at in range(1, 13):
        later_ms = now_ms + at * REPORT_MS
        bundles = {name: stream.load_of(name, later_ms) for name in (sealed, *halves)}
        shards.take([Report(BROKERS[0], later_ms, bundles)])
        found = view_of("eu", shards.shards, later_ms, WEIGHTS).bundles
        exact = sum(stats.msg_rate_in for stats in bundles.values())
        twice = stream.rate * 0.9**at / exact
        assert found.short.rate.sum() / exact == pytest.approx(1.0 + twice, abs=0.05)
        longer = stream.rate * 12 / (12 + at) / exact  # twelve reports with the segment
        assert found.long.rate.sum() / exact == pytest.approx(1.0 + longer, abs=0.05)


def _only(report: Report, bundles: set[str]) -> Report:
    """A report that names these bundles alone."""
    kept = {name: stats for name, stats in report.bundles.items() if name in bundles}
    return replace(report, bundles=kept)


def test_a_sealed_segment_is_a_topic_of_its_bundle_until_pulsar_deletes_it() -> None:
    stream = ScalingStream(minutes=2)
    topics = {
        step.now_ms: int(step.view.bundles.topics.sum()) for step in steps_of(stream, FoldConfig())
    }
    whole = 3 * len(stream.ring)
    assert topics[SPLIT_MS - REPORT_MS] == whole + 1
    assert topics[SPLIT_MS] == whole + 3, "the sealed one, and its halves"
    assert topics[2 * SPLIT_MS] == whole + 4, "two sealed at once last a minute each: one is gone"


def test_leastmoves_reckons_with_the_load_after_a_leap_not_with_its_average() -> None:
    """In the report after a split its estimate of each bundle is right to a fifth of what has left
    the sealed segment, where a short-term average is wrong by most of it."""
    memory, stream = LeastMovesMemory(), ScalingStream(minutes=8)
    splits = 0
    for step in steps_of(stream, FoldConfig()):
        memory = observe_fleet(step.view, memory)
        if step.since_split != 1:
            continue
        splits += 1
        demand = build_fleet(step.view, step.view, memory).demand[:, 0]
        moved = stream.rate / 2 ** (splits - 1).bit_length()
        errors = np.abs(demand / demand.sum() * step.exact.sum() - step.exact)
        averages = np.abs(step.view.bundles.short.rate - step.exact)
        assert errors.max() < 0.2 * moved < 0.5 * moved < averages.max()
    assert splits == 8


def test_leastmoves_takes_no_leap_for_noise() -> None:
    noise = []
    for splits in (False, True):
        memory = LeastMovesMemory()
        for step in steps_of(ScalingStream(minutes=30, splits=splits), FoldConfig()):
            memory = observe_fleet(step.view, memory)
        noise.append(memory.noise)
    steady, leaping = noise
    assert steady is not None and leaping is not None
    assert 0.5 * steady < leaping < 1.5 * steady
