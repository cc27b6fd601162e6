"""Systems that Pulsar's documentation names, each as a whole.

Which test shows which of them: tests/checklist.toml.
"""

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from lb_stream.agent import SplitWatch
from lb_stream.contracts.reports import BundleStats, SplitAsk
from lb_stream.contracts.settings import StreamSettings
from lb_stream.contracts.tables import BUNDLE_AVERAGES, OWNERSHIP
from lb_stream.core.averages import FoldConfig, fold
from lb_stream.core.averages.cluster_view import view_of
from lb_stream.core.config.cluster_config import ClusterConfig
from lb_stream.core.filters.preallocation import counted_assignments
from lb_stream.core.model.blocks import (
    BROKER_SCHEMA,
    BUNDLE_SCHEMA,
    Batch,
    Shard,
    from_bytes,
    to_bytes,
)
from lb_stream.core.model.memory import Memory, Pending
from lb_stream.core.model.topics import Ring
from lb_stream.core.model.view import ClusterView
from lb_stream.core.placement import placement
from lb_stream.core.placement.base import Targets
from lb_stream.core.round.decide import Inbox, Round, decide
from lb_stream.core.shedding import shedder
from lb_stream.core.shedding.base import traits_of
from lb_stream.settings.resolve import cluster_config, resolve
from lb_stream.sim import SimBroker, build_cluster
from lb_stream.stream.records import parse_report
from lb_stream.stream.shards.directory import ShardMap
from lb_stream.stream.shards.slicing import ClusterBlocks, DueShard, are_averages_due, due_parts
from tests.support.build import Report, batch_of
from tests.support.documented import decided, played
from tests.support.lbctl_runner import lbctl
from tests.support.scenario import Cluster, bundle_name
from tests.support.split_cases import loads as split_loads
from tests.support.split_cases import task
from tests.support.table_rows import fill
from tests.support.vectors import place

QUIET = {"dry_run": False, "shedding_enabled": False}
X, Y, Z = (f"t/n/0x{at}0000000_0x{at + 1}0000000" for at in range(3))


def folded(
    *sent: tuple[str, dict[str, Any]], shard: Shard | None = None, at_ms: int = 1_000
) -> Shard:
    """After one batch of load reports in Pulsar's JSON, each under its broker's key."""
    records = [parse_report(json.dumps(report).encode(), broker) for broker, report in sent]
    named = [
        {name: _stats(one) for name, one in record.stats.items()} | dict.fromkeys(record.unmeasured)
        for record in records
    ]
    reports = [
        Report(record.broker, at_ms, bundles, offset=at_ms + place, content=json.dumps(report))
        for place, (record, bundles, (_, report)) in enumerate(
            zip(records, named, sent, strict=True)
        )
    ]
    batch = batch_of(reports)
    rows = [
        row | record.fields for row, record in zip(batch.reports.to_pylist(), records, strict=True)
    ]
    table = pa.Table.from_pylist(rows, batch.reports.schema)
    after, refused = fold(
        shard or Shard.empty(), Batch(table, batch.samples, batch.events), at_ms, FoldConfig()
    )
    assert not len(refused)
    return after


def _stats(one: Any) -> BundleStats:
    return BundleStats(**{name: getattr(one, name) for name in BundleStats.model_fields})


def view(shard: Shard, config: ClusterConfig, now_ms: int = 1_000) -> ClusterView:
    return view_of("c", [shard], now_ms, config.balancer.weights)


def rounds(
    shard: Shard,
    config: ClusterConfig,
    memory: Memory | None = None,
    now_ms: int = 1_000,
    inbox: Inbox | None = None,
) -> Round:
    memory = memory or Memory()
    return decide(view(shard, config, now_ms), memory, inbox or Inbox(), config)


# --- load managers ---


def simple_report(cpu: float, *bundles: str) -> dict[str, Any]:
    """Limits at which each bundle's quota of outbound bandwidth is a fifth of the broker's."""
    limits = {
        "memory": 100_000,
        "directMemory": 100_000,
        "bandwidthIn": 12_000,
        "bandwidthOut": 12_000,
    }
    usage = {name: {"usage": 0, "limit": limit} for name, limit in limits.items()} | {
        "cpu": {"usage": cpu, "limit": 10_000}
    }
    stats = {
        "msgRateIn": 40.0,
        "msgRateOut": 120.0,
        "msgThroughputIn": 100_000.0,
        "msgThroughputOut": 300_000.0,
        "topics": 1,
    }
    return {"systemResourceUsage": usage, "bundleStats": dict.fromkeys(bundles, stats)}


@pytest.mark.parametrize(
    "manager",
    [
        "",
        "com.example.NoSuchManager",
        "org.apache.pulsar.broker.loadbalance.impl.SimpleLoadManagerImpl",
    ],
)
def test_simple_load_manager_runs_for_a_blank_or_wrong_class_reads_system_resource_usage_and_ranks_by_quotas(
    manager: str,
) -> None:
    config = cluster_config(QUIET | {"loadManagerClassName": manager})
    assert (config.balancer.load_manager, config.placement.name) == ("simple", "leastLoadedServer")
    names = [f"t/n/0x0000000{at}_0x0000000{at + 1}" for at in range(6)]
    first = folded(("a", simple_report(300, *names[:4])), ("b", simple_report(900, *names[4:])))
    seen = view(first, config)
    assert seen.brokers.resources["cpu"][0].tolist() == [300.0, 900.0]
    assert seen.brokers.usage.tolist() == pytest.approx([0.03, 0.09])
    memory = rounds(first, config).memory
    # Measured, a is the idler one; by the quotas of their bundles b is. Nobody has the last bundle
    # any more.
    now = folded(
        ("a", simple_report(301, *names[:4])),
        ("b", simple_report(901, names[4])),
        shard=first,
        at_ms=2_000,
    )
    (one,) = rounds(now, config, memory, 2_000).decisions
    assert (one.kind, one.bundle, one.destination, one.strategy) == (
        "assign",
        names[5],
        "b",
        "leastLoadedServer",
    )


PAIRS = [
    (shed_by, placed_by)
    for shed_by in shedder.names
    for placed_by in placement.names
    if traits_of(shedder[shed_by]).manager == "modular"
    and (placed_by != "AvgShedder" or shed_by == "AvgShedder")
]
"""As placement AvgShedder needs itself as shedder."""
AT_ONCE = {
    "shedding_interval_ms": 0,
    "history_ratio": 0,
    "hit_count_high": 0,
    "hit_count_low": 0,
    "overloaded_threshold_percent": 85,
}


@pytest.mark.parametrize(("shed_by", "placed_by"), PAIRS)
def test_modular_load_manager_lets_its_leader_decide_with_any_of_its_shedders_and_any_placement(
    shed_by: str, placed_by: str
) -> None:
    strategies = {
        "shedding_strategy": shed_by,
        "placement_strategy": placed_by,
        "loadManagerClassName": "ModularLoadManagerImpl",
    }
    cluster = Cluster(settings=AT_ONCE | strategies, memory=Memory(epoch=7))
    for command in (
        "brokers a=0.95 b=0.90 c=0.10 d=0.10",
        "bundles a: t/a/0=60MB t/a/1=10MB t/a/2=9MB",
        "bundles b: t/b/0=55MB t/b/1=5MB",
    ):
        list(cluster.do(command))
    list(cluster.do("round"))
    assert cluster.last is not None and cluster.last.decisions
    assert {
        (decision.kind, decision.strategy, decision.epoch) for decision in cluster.last.decisions
    } == {("unload", shed_by, 7)}
    assert {decision.destination for decision in cluster.last.decisions} <= {"a", "b", "c", "d"}
    unloaded = {decision.bundle: decision.destination for decision in cluster.last.decisions}
    list(cluster.do("obey"))
    list(cluster.do("round"))
    assert {
        decision.bundle: decision.destination
        for decision in cluster.last.decisions
        if decision.kind == "assign"
    } == unloaded


def test_extensible_load_balancer_transfers_to_a_destination_chosen_before_and_lets_owners_look_for_splits() -> (
    None
):
    extensible = {
        "loadManagerClassName": "org.apache.pulsar.broker.loadbalance.extensions.ExtensibleLoadManagerImpl"
    }
    resolved = resolve(extensible)
    config = resolved.config
    assert (config.shedder.name, resolved.warnings) == ("TransferShedder", ())
    setup = (
        "brokers a=0.90 b=0.10",
        "bundles a: t/n/0=10MB,5000topics t/n/1=20MB t/n/2=30MB",
        "round",
    )
    cluster = played(
        *setup, **extensible, shedding_interval_ms=0, history_ratio=0, hit_count_threshold=0
    )
    assert cluster.last is not None
    assert {
        (decision.kind, decision.source, decision.destination, decision.strategy)
        for decision in cluster.last.decisions
    } == {("transfer", "a", "b", "TransferShedder")}
    # 5 000 topics are too many, and the leader leaves that to the bundle's owner, who asks after
    # its fourth look.
    quiet = played("brokers a=0.20 b=0.10", *setup[1:], **extensible, **QUIET)
    assert decided(quiet) == []
    model = build_cluster(brokers=2, bundles=24, workload_name="steady")
    watch_of = SplitWatch.for_cluster(
        cluster_config(extensible | {"bundle_max_msgs_per_s": 0, "max_splits_per_cycle": 1})
    )
    assert watch_of is not None and SplitWatch.for_cluster(cluster_config({})) is None
    watch, broker = watch_of(), SimBroker(model, "broker-1:8080", "extensible", clock=lambda: 1_000)
    looks = [watch.find_splits(broker) for _ in range(4)]
    assert looks[:3] == [[], [], []] and len(looks[3]) == 1
    ask = SplitAsk(
        bundle=bundle_name("t/n/0"),
        reason="Topics",
        boundaries=[1 << 27],
        algorithm="range_equally_divide",
        saw=5000,
        limit=1000,
    )
    done = rounds(quiet.shard, cluster_config(extensible | QUIET), inbox=Inbox(asks=(("a", ask),)))
    assert [
        (decision.kind, decision.bundle, decision.source, decision.destination)
        for decision in done.decisions
    ] == [("split", bundle_name("t/n/0"), "a", None)]


OWN_PLACEMENT = """
import numpy as np
from lb_stream.plugins import Best, KeyModel, key, placement
SEEN = []

class LastBrokerConfig(KeyModel):
    patience: int = key(3, "a key of its own")

@placement("LastBroker", config=LastBrokerConfig)
def last_broker(context):
    SEEN.append((context.targets, context.candidates.tolist(), context.bundle, context.config))
    return Best(context.candidates[-1:], np.zeros(len(context.candidates)), "turn"), context.memory
"""


def test_modular_load_manager_strategy_of_another_package_is_loaded_by_name_and_gets_candidates_bundle_data_all_load_data_and_config(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from importlib.metadata import EntryPoint

    module = "own_placement_of_a_test"
    (tmp_path / f"{module}.py").write_text(OWN_PLACEMENT)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(placement, "_strategies", dict(placement._strategies))
    points = {placement.group: [EntryPoint("LastBroker", module, placement.group)]}
    monkeypatch.setattr(
        "lb_stream.core.model.registry.entry_points", lambda group: points.get(group, [])
    )
    try:
        settings = {
            "loadBalancerLoadPlacementStrategy": "com.example.LastBroker",
            "patience": 5,
            "distribute_bundles_evenly": False,
        }
        cluster = played(
            "brokers a=0.10 b=0.20 c=0.30 d=0.40",
            "bundles a: t/n/0=7MB,9topics t/n/1=3MB",
            "bundles b: t/m/0=2MB",
            "round",
            "bundles a: t/n/1",
            "goodbye d",
            "round",
            shedding_enabled=False,
            **settings,
        )
        ((targets, candidates, row, config),) = sys.modules[module].SEEN
    finally:
        sys.modules.pop(module, None)
    assert decided(cluster) == [("assign", bundle_name("t/n/0"), None, "c")]
    names, bundles = targets.view.brokers.names, targets.view.bundles
    assert ([names[candidate] for candidate in candidates], config.patience) == (["a", "b", "c"], 5)
    assert (bundles.name(row), bundles.topics[row], bundles.latest.throughput[row]) == (
        bundle_name("t/n/0"),
        9,
        7 * 2**20,
    )
    assert names == ("a", "b", "c", "d") and targets.view.brokers.usage.round(6).tolist() == [
        0.1,
        0.2,
        0.3,
        0.4,
    ]
    assert bundles.names.to_pylist() == [
        bundle_name("t/m/0"),
        bundle_name("t/n/0"),
        bundle_name("t/n/1"),
    ]


# --- data ---

USAGES = {
    "cpu": 50.0,
    "memory": 20.0,
    "directMemory": 10.0,
    "bandwidthIn": 5.0,
    "bandwidthOut": 4.0,
}


def modular_report(
    factor: float = 1.0, bundles: tuple[str, ...] = (X, Y), **more: Any
) -> dict[str, Any]:
    stats = {
        "msgRateIn": 10.0,
        "msgThroughputIn": 1000.0,
        "msgRateOut": 20.0,
        "msgThroughputOut": 2000.0,
    }
    stats = {name: value * factor for name, value in stats.items()}
    sums = {name: value * len(bundles) for name, value in stats.items()}
    counts = {"topics": 3, "producerCount": 2, "consumerCount": 1}
    totals = {
        "numTopics": 3 * len(bundles),
        "numBundles": len(bundles),
        "numProducers": 2 * len(bundles),
        "numConsumers": len(bundles),
    }
    resources = {name: {"usage": value * factor, "limit": 100.0} for name, value in USAGES.items()}
    return {
        **resources,
        **sums,
        **totals,
        "bundles": list(bundles),
        "lastStats": dict.fromkeys(bundles, stats | counts),
        "loadReportType": "LocalBrokerData",
        "lastUpdate": int(1_000 * factor),
        **more,
    }


def test_load_data_is_one_view_of_bundle_data_and_broker_data() -> None:
    seen = view(
        folded(("a", modular_report()), ("b", modular_report(2.0, (Z,)))), cluster_config({})
    )
    assert isinstance(seen, ClusterView)
    assert (seen.brokers.names, seen.bundles.names.to_pylist()) == (("a", "b"), [X, Y, Z])
    assert seen.bundles.owner.tolist() == [0, 0, 1]


def test_broker_data_holds_a_local_and_a_historical_part_and_what_is_preallocated_at_each_broker() -> (
    None
):
    config = cluster_config({})
    seen = view(
        folded(("a", modular_report(2.0)), shard=folded(("a", modular_report())), at_ms=2_000),
        config,
    )
    assert seen.brokers.latest.row(0) == (4000.0, 8000.0, 40.0, 80.0), "local: the last report"
    assert seen.brokers.short.row(0) == seen.brokers.long.row(0) == (3000.0, 6000.0, 30.0, 60.0), (
        "historical: the mean of two samples"
    )
    released = folded(
        ("a", modular_report(2.0, (Y,))),
        ("b", modular_report(bundles=())),
        shard=folded(("a", modular_report())),
        at_ms=2_000,
    )
    two = view(released, config)
    pending = Pending("c:1:0", "assign", X, None, "b", 0, 9, 1)
    (given,) = counted_assignments(two, (pending,), "on_report")
    assert (given.bundle, given.broker, given.long_rate, given.topics) == (X, "b", 30.0, 3)
    targets = Targets.from_view(two)
    targets.add(0, 1)
    assert (targets.long_rate.tolist(), targets.topics.tolist()) == ([45.0, 30.0], [3, 3])


def test_local_broker_data_keeps_its_eight_contents_and_has_them_anew_with_each_report() -> None:
    """Cpu; heap; direct memory; bandwidth; latest rates; totals; names of bundles; last changes of
    bundles."""
    first = folded(("a", modular_report(lastBundleGains=[X, Y])))
    after = folded(
        ("a", modular_report(2.0, (Y, Z), lastBundleGains=[Z], lastBundleLosses=[X])),
        shard=first,
        at_ms=2_000,
    )
    for shard, factor, changes in ((first, 1.0, (2, 0)), (after, 2.0, (1, 1))):
        (row,) = shard.brokers.to_pylist()
        ours = ("cpu", "memory", "direct_memory", "bandwidth_in", "bandwidth_out")
        assert [row[f"{name}_usage"] for name in ours] == [
            value * factor for value in USAGES.values()
        ]
        assert [row[f"{name}_limit"] for name in ours] == [100.0] * 5
        four = (
            "throughput_in_bytes_per_s",
            "throughput_out_bytes_per_s",
            "rate_in_msgs_per_s",
            "rate_out_msgs_per_s",
        )
        assert [row[f"latest_{name}"] for name in four] == [
            2000.0 * factor,
            4000.0 * factor,
            20.0 * factor,
            40.0 * factor,
        ]
        assert (row["topics"], row["bundles"], row["producers"], row["consumers"]) == (6, 2, 4, 2)
        assert (row["bundle_gains"], row["bundle_losses"]) == changes
    owned = {row["name"] for row in after.bundles.to_pylist() if row["owner"] == 0}
    assert owned == {Y, Z}


def test_fewer_samples_than_the_maximum_count_as_their_plain_mean() -> None:
    values, shard, config = (
        [3.0, 90.0, 14.0, 8.0, 35.0, 1.0, 77.0],
        Shard.empty(),
        FoldConfig(short_samples=10, long_samples=1000),
    )
    for number, value in enumerate(values, 1):
        report = Report(
            "a", number, {X: BundleStats(msg_rate_in=value, msg_throughput_out=value * 7)}
        )
        shard, _ = fold(shard, batch_of([report]), number, config)
        (row,) = shard.bundles.to_pylist()
        for span in ("short", "long"):
            assert row[f"{span}_samples"] == number
            assert row[f"{span}_rate_in_msgs_per_s"] == pytest.approx(
                np.mean(values[:number]), rel=1e-15
            )
            assert row[f"{span}_throughput_out_bytes_per_s"] == pytest.approx(
                7 * np.mean(values[:number]), rel=1e-15
            )


def test_any_brokers_report_is_in_the_leaders_memory_in_the_batch_that_carries_it() -> None:
    config = cluster_config(QUIET)
    first = folded(("a", modular_report()), ("b", modular_report(bundles=(Z,))))
    after = folded(("b", modular_report(3.0, (Z,))), shard=first, at_ms=2_000)
    before, now = view(first, config), view(after, config, 2_000)
    assert (before.brokers.latest.rate_in.tolist(), now.brokers.latest.rate_in.tolist()) == (
        [20.0, 10.0],
        [20.0, 30.0],
    )
    assert now.brokers.short.rate_in.tolist() == [
        20.0,
        20.0,
    ] and now.brokers.usage.tolist() == pytest.approx([0.5, 1.5])


def test_averages_are_written_every_few_seconds_and_never_wait_for_pulsars_period() -> None:
    blocks = (("brokers", "names", "values"),)
    for now_ms in (1_000, 1_001, 2_000):
        (part,) = due_parts(
            {"c": ShardMap(1, blocks)}, {"c": ClusterBlocks(now_ms, blocks, sampled=True)}
        ).values()
        assert part == [DueShard("c", 0, now_ms, blocks[0])]
    assert not due_parts(
        {"c": ShardMap(1, blocks)}, {"c": ClusterBlocks(900_000_000, blocks, sampled=False)}
    ), "nothing new, nothing to write"
    interval_ms = StreamSettings().averages_interval_ms
    written = {"c": ShardMap(1, blocks, averages_ms=1_000)}
    assert 0 < interval_ms < 60_000
    for later_ms, due in ((interval_ms - 1, False), (interval_ms, True)):
        after = {"c": ClusterBlocks(1_000 + later_ms, blocks, sampled=True)}
        assert are_averages_due(written, after, interval_ms) is due
    (warning,) = resolve({"loadBalancerResourceQuotaUpdateIntervalMinutes": 5}).warnings
    assert "says how often the job writes table bundle_averages" in warning


SHORT_MODULAR = {"cpu": {"usage": 5.7, "limit": 2400.0}, "bundles": [X], "lastUpdate": 17}
SHORT_SIMPLE = {
    "name": "b.example:8080",
    "bundleStats": {X: {"msgRateIn": 4.0, "topics": 2}},
    "systemResourceUsage": {
        "cpu": {"usage": 5.7, "limit": 2400.0},
        "memory": {"usage": 388.0, "limit": 1000.0},
    },
}


def test_modular_json_report_is_read_whether_short_or_full_and_what_is_missing_is_defaulted() -> (
    None
):
    full = parse_report(json.dumps(modular_report()).encode(), "a")
    assert (full.fields["kind"], set(full.stats), full.fields["topics"]) == ("modular", {X, Y}, 6)
    short = parse_report(json.dumps(SHORT_MODULAR).encode(), "a")
    assert (short.fields["kind"], short.stats, short.unmeasured) == ("modular", {}, [X])
    assert (short.fields["cpu_usage"], short.fields["cpu_limit"], short.fields["memory_limit"]) == (
        5.7,
        2400.0,
        0.0,
    )
    assert (short.fields["persistent_topics"], short.fields["version"], short.fields["topics"]) == (
        True,
        None,
        0,
    )
    assert (
        short.fields["last_update_ms"],
        short.fields["bundle_gains"],
        short.fields["start_timestamp_ms"],
    ) == (17, 0, 0)


def test_simple_json_report_is_read_and_told_from_a_modular_one_without_any_setting() -> None:
    simple, modular = (
        parse_report(json.dumps(form).encode(), "")
        for form in (SHORT_SIMPLE, SHORT_MODULAR | {"webServiceUrl": "http://m:1"})
    )
    assert (simple.broker, simple.fields["kind"], modular.broker, modular.fields["kind"]) == (
        "b.example:8080",
        "simple",
        "m:1",
        "modular",
    )
    assert simple.fields["cpu_usage"] == modular.fields["cpu_usage"] == 5.7
    assert (
        simple.fields["memory_usage"],
        simple.fields["bandwidth_in_usage"],
        simple.fields["latest_rate_in_msgs_per_s"],
    ) == (
        388.0,
        -1.0,
        4.0,
    )
    assert (simple.fields["topics"], simple.fields["bundles"]) == (2, 1)


def test_a_report_is_noticed_immediately_by_the_round_of_its_own_batch_and_batches_wait_for_nothing() -> (
    None
):
    assert StreamSettings().trigger_interval_ms == 0, (
        "the next batch begins as soon as there is a record"
    )
    cluster = played(
        "brokers a=0.20 b=0.20",
        "bundles a: t/n/0=60MB t/n/1=40MB",
        "round",
        shedding_interval_ms=0,
        history_ratio=0,
    )
    assert decided(cluster) == []
    list(cluster.do("brokers a=0.90"))
    list(cluster.do("round"))
    assert decided(cluster) == [("unload", bundle_name("t/n/0"), "a", "b")]
    assert (
        cluster.last is not None
        and cluster.last.decisions[0].issued_ms == cluster.last.now_ms == cluster.now_ms
    )


def test_bundle_ranges_and_the_brokers_that_have_them_are_written_down_and_read_back() -> None:
    config = cluster_config(QUIET)
    shard = folded(("a", modular_report()), ("b", modular_report(bundles=(Z,))))
    again = Shard(from_bytes(to_bytes(shard.brokers)), from_bytes(to_bytes(shard.bundles)))
    before, after = view(shard, config), view(again, config)
    assert before.bundles.names.equals(
        after.bundles.names
    ) and before.bundles.owner.tolist() == after.bundles.owner.tolist() == [0, 0, 1]
    made = rounds(shard, config)
    records = {one.bundle: (one.state, one.owner) for one in made.ownership}
    assert records == {X: ("Owned", "a"), Y: ("Owned", "a"), Z: ("Owned", "b")}
    assert Memory.from_json(made.memory.to_json()) == made.memory
    assert {"bundle", "owner"} <= set(OWNERSHIP.schema.names) & set(BUNDLE_AVERAGES.schema.names)


def test_statistics_and_owners_are_kept_by_bundle_and_never_by_topic() -> None:
    """Topics' shares of a bundle's load, of the few heaviest bundles, name hashes and no topic."""
    for schema in (BUNDLE_SCHEMA, BROKER_SCHEMA, BUNDLE_AVERAGES.schema, OWNERSHIP.schema):
        by_topic = {
            name for name in schema.names if "topic" in name and not name.endswith("topics")
        }
        assert by_topic <= {"topic_shares", "topic_hashes", "hottest_topic_ratio"}
        assert [
            name
            for name in schema.names
            if "topics" in name and pa.types.is_string(schema.field(name).type)
        ] == []
    stats = BundleStats(msg_rate_in=7.0, topics=4000)
    shard, _ = fold(
        Shard.empty(), batch_of([Report("a", 1, {X: stats, Y: stats})]), 1, FoldConfig()
    )
    assert len(shard.bundles) == 2 and shard.bundles["topics"].to_pylist() == [4000, 4000]


# --- placement ---


def test_a_broker_above_the_overload_threshold_is_not_considered_its_score_is_infinite() -> None:
    brokers = {"a": {"longRate": 1, "usage": 0.86}, "b": {"longRate": 1e9, "usage": 0.84}}
    for profile in ("pulsar-4.0", "documented"):
        best, scores = place(brokers, {"profile": profile})
        assert (best, scores["a"], bool(np.isfinite(scores["b"]))) == (["b"], np.inf, True)


def test_partitions_of_one_topic_are_topics_of_their_own_in_several_bundles() -> None:
    ring = Ring.new("t/n", 4)
    found = [ring.bundle_of(f"t/n/orders-partition-{number}") for number in range(16)]
    assert set(found) == set(ring.names)
    whole = [f"persistent://t/n/orders-partition-{number}" for number in range(16)]
    assert found == [ring.bundle_of(topic) for topic in whole]


def test_bundles_are_assigned_one_by_one_each_independent_of_the_others() -> None:
    cluster = played(
        "brokers a=0.10 b=0.10 c=0.10",
        "bundles a: t/n/0=1MB t/n/1=1MB t/m/0=1MB t/m/1=1MB",
        "round",
        "isolate t/m primary=x",
        "bundles a: none",
        "round",
        shedding_enabled=False,
    )
    assert [(kind, bundle) for kind, bundle, *_ in decided(cluster)] == [
        ("assign", bundle_name(name)) for name in ("t/n/0", "t/n/1")
    ]
    assert cluster.last is not None
    assert len({decision.decision_id for decision in cluster.last.decisions}) == 2
    assert len({decision.destination for decision in cluster.last.decisions}) == 2, (
        "the first one counts when the second is placed"
    )
    refused = {
        name
        for refusal in cluster.last.refusals
        if refusal.rule == "no_candidate"
        for name in refusal.subjects
    }
    assert refused == {bundle_name("t/m/0"), bundle_name("t/m/1")}, "their trouble holds nobody up"


def test_the_first_use_of_a_bundle_finds_it_assigned_by_load() -> None:
    """A namespace is made; nobody has reported or looked up any of its bundles yet."""
    cluster = played(
        "brokers a=0.10 b=0.10 c=0.10",
        "bundles a: t/m/0=50MB",
        "bundles c: t/m/1=40MB",
        "round",
        "command create-namespace namespace=t/new bundles=1",
        "round",
        shedding_enabled=False,
        distribute_bundles_evenly=False,
    )
    ring = Ring.new("t/new", 1)
    assert decided(cluster) == [("assign", ring.bundle_of("t/new/topic"), None, "b")]
    assert cluster.last is not None
    scores = {
        candidate.broker: candidate.score
        for candidate in cluster.last.decisions[0].explain.candidates
    }
    assert scores["b"] == 0.0 < (scores["c"] or 0) < (scores["a"] or 0), (
        "their long-term rates decide"
    )


def test_lookup_of_a_bundle_without_owner_says_so_until_its_assignment_leads_to_the_owner(
    tmp_path: Path,
) -> None:
    cluster = played(
        "brokers a=0.10 b=0.10",
        "bundles a: t/m/0=50MB",
        "round",
        "command create-namespace namespace=t/new bundles=1",
        "round",
        shedding_enabled=False,
    )
    assert cluster.last is not None
    ((kind, bundle, _, destination),) = decided(cluster)
    assert (kind, bundle, destination) == (
        "assign",
        Ring.new("t/new", 1).bundle_of("t/new/topic"),
        "b",
    )

    def looked_up(folder: Path) -> tuple[str | None, str]:
        fill(
            folder,
            OWNERSHIP,
            [one.model_dump() for one in cluster.last.ownership if one.bundle == bundle],
        )
        (row,) = lbctl(
            "lookup",
            "persistent://t/new/topic",
            "--json",
            "--set",
            f"stream.tables={folder}",
            cwd=tmp_path,
        ).objects
        assert row["bundle"] == bundle
        return row["owner"], row["state"]

    assert looked_up(tmp_path / "before") == (None, "Assigning")
    list(cluster.do("bundles b: t/new/0-15=1MB"))
    list(cluster.do("round"))
    assert looked_up(tmp_path / "after") == ("b", "Owned")


# --- splitting ---

ONE_LIMIT = {
    "topics": {"topics": 1001},
    "sessions": {"sessions": 1001},
    "rate": {"rate": 30_001.0},
    "bandwidth": {"throughput": 100.1 * 2**20},
}


@pytest.mark.parametrize("threshold", ONE_LIMIT)
def test_any_one_of_the_four_thresholds_suffices_for_a_split(threshold: str) -> None:
    word = {
        "topics": "Topics",
        "sessions": "Sessions",
        "rate": "MsgRate",
        "bandwidth": "Bandwidth",
    }[threshold]
    assert task(split_loads(**ONE_LIMIT[threshold])) == [word]
    assert (
        task(split_loads(topics=1000, sessions=1000, rate=30_000.0, throughput=100.0 * 2**20)) == []
    )


def test_small_bundles_are_never_merged_and_a_namespace_at_its_maximum_is_split_no_further() -> (
    None
):
    small, hours = "bundles a: t/n/0=0MB t/n/1=0MB t/n/2=0MB t/n/3=0MB", ["round", "wait 400s"] * 13
    advised = {
        "shedding_enabled": False,
        "merge_advice_enabled": True,
        "namespace_default_bundles": 1,
    }
    left = played("brokers a=0.20 b=0.20", "merges a b", small, *hours, **advised)
    assert [one.advised_ms > 0 for one in left.memory.mergeable.values()] == [
        True,
        True,
    ] and left.decided == {}, "only advised"
    bundles = "bundles a: t/n/0=0MB,0topics t/n/1=0MB,0topics t/n/2=9MB,5000topics"
    few = played(
        "brokers a=0.20 b=0.20", bundles, "round", shedding_enabled=False, namespace_max_bundles=4
    )
    assert [kind for kind, *_ in decided(few)] == ["split"]
    full = played(
        "brokers a=0.20 b=0.20",
        bundles,
        "round",
        "round",
        shedding_enabled=False,
        namespace_max_bundles=3,
    )
    assert decided(full) == [] and full.last is not None
    assert [(refusal.rule, refusal.limit) for refusal in full.last.refusals] == [
        ("namespace_max_bundles", 3.0)
    ]
