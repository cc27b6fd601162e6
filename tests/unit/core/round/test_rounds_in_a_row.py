"""Rounds one after another: what of the last one must not show in the next, and what a round must
not do in vain."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from lb_stream.contracts.reports import BundleStats
from lb_stream.core.averages import fold
from lb_stream.core.averages.cluster_view import view_of
from lb_stream.core.model.blocks import Shard
from lb_stream.core.model.memory import Memory
from lb_stream.core.ownership import records
from lb_stream.core.round.decide import Inbox, Round, decide
from lb_stream.settings.resolve import cluster_config
from tests.support.build import Report, batch_of

STATS = BundleStats(topics=1, msg_throughput_in=1e6, msg_rate_in=1e3)
OWNED = {
    "a": ["t/n/0x00000000_0x40000000", "t/n/0x40000000_0x80000000"],
    "b": ["t/n/0x80000000_0xffffffff"],
}


def round_after(memory: Memory, **settings: Any) -> Round:
    """The round in which every broker reports, under these settings, and some seconds after the
    last one."""
    config, now_ms = (
        cluster_config({"dry_run": False, "shedding_interval_ms": 0} | settings),
        1_000_000 + 10_000 * memory.seq,
    )
    reports = [
        Report(name, now_ms, dict.fromkeys(bundles, STATS), {"cpu": (50.0, 100.0)}, offset=place)
        for place, (name, bundles) in enumerate(OWNED.items())
    ]
    shard, _ = fold(Shard.empty(), batch_of(reports), now_ms, config.fold)
    view = view_of("c", [shard], now_ms, config.balancer.weights)
    return decide(view, memory, Inbox(), config)


def test_a_dry_run_does_not_make_records_of_all_bundles_that_nobody_will_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    live = round_after(Memory())
    assert len(live.ownership) == 3
    nothing_new = replace(
        live.view, bundles=replace(live.view.bundles, gained=np.zeros(3, np.bool_))
    )
    memory, config = live.memory, cluster_config({"dry_run": True})
    with monkeypatch.context() as patched:
        patched.setattr(
            records, "Ownership", lambda **fields: pytest.fail(f"a record of {fields['bundle']}")
        )
        for _ in range(2):
            memory = decide(nothing_new, memory, Inbox(), config).memory
    assert len(round_after(memory).ownership) == 3, (
        "all are published anew when the dry run is over"
    )


def test_in_a_dry_run_what_somebody_else_has_moved_is_left_alone_for_the_grace_period() -> None:
    bundle, grace_ms = OWNED["a"][1], 60_000
    config = cluster_config(
        {"dry_run": True, "shedding_interval_ms": 0, "shedding_grace_period_ms": grace_ms}
    )
    shard, memory = Shard.empty(), Memory()
    remembered = []
    for number, owned in enumerate(
        [OWNED, {"a": OWNED["a"][:1], "b": [*OWNED["b"], bundle]}, {}, {"a": OWNED["a"][:1]}]
    ):
        now_ms = 1_000_000 + 35_000 * number
        reports = [
            Report(name, now_ms, dict.fromkeys(names, STATS), offset=place)
            for place, (name, names) in enumerate(owned.items())
        ]
        shard, _ = fold(shard, batch_of(reports), now_ms, config.fold)
        memory = decide(
            view_of("c", [shard], now_ms, config.balancer.weights), memory, Inbox(), config
        ).memory
        remembered.append(dict(memory.recently_unloaded))
    assert remembered == [{}, {bundle: 1_035_000}, {bundle: 1_035_000}, {}]


def test_a_strategy_that_is_chosen_again_starts_anew() -> None:
    first = round_after(
        Memory(),
        shedding_strategy="ThresholdShedder",
        placement_strategy="RoundRobinBrokerSelector",
    )
    assert "ThresholdShedder" in first.memory.strategies
    other = round_after(first.memory, shedding_strategy="OverloadShedder")
    assert "ThresholdShedder" not in other.memory.strategies
    quiet = round_after(first.memory, shedding_strategy="ThresholdShedder", shedding_enabled=False)
    assert "ThresholdShedder" in quiet.memory.strategies, "it is only not asked for the moment"
