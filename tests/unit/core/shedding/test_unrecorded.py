"""What has no recorded decisions, against plain implementations on generated clusters:
RangeThresholdShedder, the simple manager."""

from random import Random
from typing import Any

import numpy as np
import pytest

from lb_stream.contracts.reports import BundleStats
from lb_stream.core.averages import FoldConfig, fold
from lb_stream.core.averages.cluster_view import view_of
from lb_stream.core.model.blocks import RESOURCES, Shard
from lb_stream.core.model.quotas import (
    INITIAL,
    BundleFigures,
    Factors,
    Quotas,
    allocated,
    default_quota,
    learn_factors,
)
from lb_stream.core.model.rules import Decides
from lb_stream.core.model.view import ClusterView
from lb_stream.core.shedding.base import ShedContext
from lb_stream.settings.resolve import cluster_config
from tests.support.build import Report, batch_of
from tests.support.scalar_shedding import (
    QUOTA,
    PlainBroker,
    PlainRangeThreshold,
    factors_after,
    quota_sample,
    quota_value,
    simple_manager_sheds,
)

SEEDS = range(150)


def stats(random: Random) -> BundleStats:
    """Figures with many ties, also once they are rounded, and some zeros."""
    amounts = [0.0, 40_000.0, 50_000.0, 150_000.0, 2e6, random.uniform(0, 3e7)]
    return BundleStats(
        msg_throughput_in=random.choice(amounts),
        msg_throughput_out=random.choice(amounts),
        msg_rate_in=random.choice([0.0, 49.9, 50.0, 149.0, random.uniform(0, 5000)]),
        msg_rate_out=random.choice([0.0, 0.1, 100.0, random.uniform(0, 5000)]),
        topics=random.choice([0, 1, 499, 500, 2000]),
        producer_count=random.choice([0, 1, 300]),
        consumer_count=random.choice([0, 700]),
    )


def cluster(random: Random, brokers: int) -> dict[str, PlainBroker]:
    count = 0
    found = {}
    for number in range(brokers):
        load = random.choice([0, 20, 50, 64.9, 65, 85, 85.1, 95, random.uniform(0, 120)])
        resources = {
            name: (min(load, random.uniform(0, 120)), random.choice([0.0, 100.0, 100.0, 100.0]))
            for name in RESOURCES
        }
        resources[random.choice(RESOURCES)] = (load, 100.0)
        mine = random.choice([0, 1, 2, 5, 9])
        bundles = {
            f"t/n/0x{at:08x}_0x{at + 1:08x}": stats(random) for at in range(count, count + mine)
        }
        count += mine
        found[f"b{number}:1"] = PlainBroker(resources, bundles)
    return found


def view(brokers: dict[str, PlainBroker], now_ms: int = 1) -> ClusterView:
    """The same, reported once: short-term averages are the latest statistics."""
    reports = [Report(name, now_ms, one.bundles, one.resources) for name, one in brokers.items()]
    shard, _ = fold(Shard.empty(), batch_of(reports), now_ms, FoldConfig())
    return view_of("c", [shard], now_ms, cluster_config({}).balancer.weights)


def chosen(seen: ClusterView, unloads: Any) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for proposal in unloads.proposals:
        found.setdefault(seen.brokers.names[proposal.source], []).append(
            seen.bundles.name(proposal.bundle)
        )
    return found


def some(random: Random, brokers: dict[str, PlainBroker]) -> set[str]:
    return {name for broker in brokers.values() for name in broker.bundles if random.random() < 0.2}


def not_among(seen: ClusterView, names: set[str]) -> np.ndarray:
    return np.array([name not in names for name in seen.bundles.names.to_pylist()], np.bool_)


@pytest.mark.parametrize("seed", SEEDS)
def test_range_threshold_sheds_as_the_plain_implementation_over_several_rounds(seed: int) -> None:
    random = Random(seed)
    threshold, history, least = (
        random.choice([0, 5, 10, 30]),
        random.choice([0, 0.5, 0.9]),
        random.choice([0, 1, 10]),
    )
    config = cluster_config(
        {
            "profile": "pulsar-4.0",
            "shedding_strategy": "RangeThresholdShedder",
            "threshold_percent": threshold,
            "history_ratio": history,
            "min_throughput_mb": least,
        }
    )
    plain = PlainRangeThreshold(threshold / 100, history, least)
    memory = config.shedder.memory({})
    brokers = cluster(random, random.choice([1, 2, 3, 6]))
    for _ in range(4):
        recently = some(random, brokers)
        seen = view(brokers)
        unloads, memory = config.shedder.function(
            ShedContext.build(seen, config.shedder_config, memory, not_among(seen, recently))
        )
        assert chosen(seen, unloads) == plain.shed(brokers, recently)
        assert memory.usage == pytest.approx(plain.smoothed, rel=1e-12)
        for broker in brokers.values():
            broker.resources["cpu"] = (random.uniform(0, 100), 100.0)


def test_range_threshold_takes_from_the_highest_broker_even_if_nobody_is_above_the_range() -> None:
    idle = dict.fromkeys(RESOURCES, (0.0, 100.0))
    brokers = {
        f"b{number}:1": PlainBroker(idle | {"cpu": (80.0, 100.0)}, {}) for number in range(10)
    } | {"z:1": PlainBroker(idle, {})}
    loads = {
        f"t/n/0x{at:08x}_0x{at + 1:08x}": BundleStats(msg_throughput_in=3e7 - at) for at in range(3)
    }
    brokers["b0:1"] = PlainBroker(brokers["b0:1"].resources, loads)
    config = cluster_config(
        {"shedding_strategy": "org.apache.pulsar.RangeThresholdShedder", "min_throughput_mb": 1}
    )
    seen = view(brokers)
    unloads, _ = config.shedder.function(
        ShedContext.build(seen, config.shedder_config, config.shedder.memory({}))
    )
    assert chosen(seen, unloads) == {"b0:1": [next(iter(loads))]}  # a tenth of its 90 MB/s
    assert [proposal.rule for proposal in unloads.proposals] == [Decides.BELOW_RANGE]


@pytest.mark.parametrize("seed", SEEDS)
def test_the_simple_manager_sheds_as_the_plain_implementation(seed: int) -> None:
    random = Random(seed)
    overloaded, comfort = random.choice([50, 85]), random.choice([0, 65, 100])
    config = cluster_config(
        {
            "load_manager": "simple",
            "overloaded_threshold_percent": overloaded,
            "comfort_percent": comfort,
        }
    )
    brokers = cluster(random, random.choice([1, 2, 3, 6]))
    recently, seen = some(random, brokers), view(brokers)
    forbidden = {
        (name, other)
        for broker in brokers.values()
        for name in broker.bundles
        for other in brokers
        if random.random() < 0.2
    }

    def may_take(bundle: int, broker: int) -> bool:
        return (seen.bundles.name(bundle), seen.brokers.names[broker]) not in forbidden

    eligible, movable = not_among(seen, recently), np.ones(len(seen.bundles), np.bool_)
    unloads, _ = config.shedder.function(
        ShedContext.build(
            seen, config.shedder_config, None, eligible, movable=movable, may_take=may_take
        )
    )
    assert chosen(seen, unloads) == simple_manager_sheds(
        brokers, overloaded, comfort, recently, forbidden
    )


def figures(bundles: list[BundleStats]) -> BundleFigures:
    return BundleFigures(
        *(
            np.array([getattr(bundle, f"msg_{name}") for bundle in bundles], float)
            for name in ("rate_in", "rate_out", "throughput_in", "throughput_out")
        ),
        connections=np.array(
            [bundle.topics + bundle.producer_count + bundle.consumer_count for bundle in bundles],
            np.int64,
        ),
    )


@pytest.mark.parametrize("seed", range(40))
def test_quotas_follow_their_samples_as_in_the_plain_implementation(seed: int) -> None:
    random = Random(seed)
    bundles, factors = random.choice([1, 30, 31, 60]), Factors()
    quotas, default = Quotas.initial(bundles), dict(INITIAL)
    plain = [dict(QUOTA) for _ in range(bundles)]
    plain_default, plain_cpu, plain_memory = dict(QUOTA), factors.cpu, factors.memory
    for _ in range(6):
        now = [stats(random) for _ in range(bundles)]
        elapsed_ms = random.choice([0, 1, 60_000, 30 * 60_000, 3 * 86_400_000])
        cpu_used, memory_used = random.uniform(0, 4000), random.uniform(0, 60_000)
        quotas = quotas.smoothed(figures(now).samples(factors), elapsed_ms)
        default = default_quota(default, figures(now), factors, elapsed_ms)
        samples = [quota_sample(one, factors.memory) for one in now]
        plain = [
            {name: quota_value(name, old[name], sample[name], elapsed_ms) for name in QUOTA}
            for old, sample in zip(plain, samples, strict=True)
        ]
        if bundles > 30:
            means = {name: sum(sample[name] for sample in samples) / bundles for name in QUOTA}
            plain_default = {
                name: quota_value(name, plain_default[name], means[name], elapsed_ms)
                for name in QUOTA
            }
        factors = learn_factors(factors, figures(now), cpu_used, memory_used, elapsed_ms)
        plain_cpu, plain_memory = factors_after(
            plain_cpu, plain_memory, now, cpu_used, memory_used, elapsed_ms
        )
        for name in QUOTA:
            assert quotas.columns[name].tolist() == pytest.approx(
                [one[name] for one in plain], rel=1e-12
            )
        assert default == pytest.approx(plain_default, rel=1e-12)
        assert (factors.cpu, factors.memory) == pytest.approx((plain_cpu, plain_memory), rel=1e-12)


def test_a_quota_is_learned_in_half_an_hour_upwards_and_in_a_day_downwards() -> None:
    heavy = Quotas({name: np.array([value * 2]) for name, value in INITIAL.items()})
    light = Quotas({name: np.array([value / 2]) for name, value in INITIAL.items()})
    assert Quotas.initial(1).smoothed(heavy, 30 * 60_000).columns["rate_in"].tolist() == [80.0]
    assert Quotas.initial(1).smoothed(heavy, 15 * 60_000).columns["rate_in"].tolist() == [60.0]
    assert Quotas.initial(1).smoothed(light, 30 * 60_000).columns["rate_in"][0] == pytest.approx(
        40 - 20 / 48
    )
    assert Quotas.initial(1).smoothed(light, 24 * 3_600_000).columns["rate_in"].tolist() == [20.0]


def test_what_is_allocated_to_a_broker_are_its_bundles_quotas_and_their_rates_in_cpu() -> None:
    sums = allocated(Quotas.initial(4), np.array([1, -1, 1, 0]), 3, Factors())
    assert sums["memory"].tolist() == [80.0, 160.0, 0.0]
    assert sums["cpu"].tolist() == pytest.approx([160 * 0.025, 320 * 0.025, 0.0])
