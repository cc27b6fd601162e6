"""What a real Pulsar cluster wrote (tests/data), and what this project's core makes of the same
reports.

`replay` goes through the run in the order of its time: load reports as the metadata store took
them, the leader's own averages each minute, its shedding rounds. Both ways of sampling keep their
averages beside it; at each of the leader's moments both are compared with what the leader had. Used
by the tests, and by the tables of docs/real-clusters.md.
"""

import gzip
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from lb_stream.contracts.decisions import Decision
from lb_stream.contracts.keys import key_metadata
from lb_stream.core.averages import FoldConfig, fold
from lb_stream.core.averages.cluster_view import view_of
from lb_stream.core.model.blocks import Batch, Shard, from_bytes
from lb_stream.core.model.memory import Memory
from lb_stream.core.model.rates import RATE_COLUMNS
from lb_stream.core.round.decide import Inbox, Round, decide
from lb_stream.io.local.report_lines import read_line
from lb_stream.settings.load import load_settings
from lb_stream.settings.names import list_known_names, list_models
from lb_stream.settings.resolve import cluster_config
from lb_stream.stream.context import DecodeConfig
from lb_stream.stream.decode import decode
from lb_stream.stream.shard_blocks import ALL_CLUSTERS

DATA = Path(__file__).parent / "data"
LOAD_REPORTS, METADATA, LOG = (
    DATA / f"modular-{name}.gz"
    for name in ("load-reports.jsonl", "metadata.jsonl", "decisions.log")
)
BROKER_CONF = DATA / "modular-broker.conf"

THEIR_FOUR = ("msgThroughputIn", "msgThroughputOut", "msgRateIn", "msgRateOut")
"""The reference's names of FOUR."""

READ_TOGETHER_MS = 30
"""The leader looks this long after a report was written: another one written by then is seen at the
same look."""

WRITES_AFTER_MS = 100
"""The leader's averages in the metadata store are this much older than the store's time of them."""


AT_ITS_START = ("shedding_strategy",)
"""Pulsar's leader takes a change of these, too, and goes on as before until it is started anew;
here they count at once."""


@dataclass(frozen=True, slots=True)
class Captured:
    """One load report: when the metadata store took it (or when it was polled), whose it is, its
    JSON byte for byte."""

    at_ms: int
    broker: str
    value: bytes


def lines(path: Path) -> list[bytes]:
    """The lines of one of the gzipped files."""
    with gzip.open(path) as file:
        return file.read().splitlines()


def polled_reports() -> list[Captured]:
    """The reports asked of each broker every five seconds, in the order in which they came."""
    reports = (read_line(line) for line in lines(LOAD_REPORTS))
    return [
        Captured(int(report.at_ms or 0), report.broker, report.value)
        for report in reports
        if report
    ]


@cache
def _nodes() -> list[dict[str, Any]]:
    return [json.loads(line) for line in lines(METADATA)]


def stored_reports() -> list[Captured]:
    """The reports in the metadata store, in the order in which they were written: those that the
    leader decided on."""
    found = [
        Captured(node["mtimeMs"], report.broker, report.value)
        for node, line in zip(_nodes(), lines(METADATA), strict=True)
        if (report := read_line(line)) is not None
    ]
    return sorted(found, key=lambda report: report.at_ms)


@dataclass(frozen=True, slots=True)
class LeaderAverages:
    """What the leader wrote of its averages at one time: bundle (or broker) → the node's JSON."""

    at_ms: int
    bundles: Mapping[str, Mapping[str, Any]]
    brokers: Mapping[str, Mapping[str, Any]]


def leader_averages() -> list[LeaderAverages]:
    """The leader's averages, minute by minute; minutes in which it wrote none of a bundle are left
    out."""
    minutes: dict[int, list[dict[str, Any]]] = {}
    for node in _nodes():
        if not node["path"].startswith("/loadbalance/brokers/"):
            minutes.setdefault((node["mtimeMs"] + 30_000) // 60_000, []).append(node)
    found = []
    for nodes in minutes.values():
        bundles, brokers = (
            {
                node["path"].removeprefix(prefix): node["data"]
                for node in nodes
                if node["path"].startswith(prefix)
            }
            for prefix in ("/loadbalance/bundle-data/", "/loadbalance/broker-time-average/")
        )
        if bundles:
            found.append(LeaderAverages(min(node["mtimeMs"] for node in nodes), bundles, brokers))
    return sorted(found, key=lambda written: written.at_ms)


@dataclass(frozen=True, slots=True)
class LeaderShed:
    """One bundle that the leader unloaded.

    `candidates`: long-term message rate (messages/s) of each broker that it ranked.
    """

    bundle: str
    source: str
    destination: str
    candidates: Mapping[str, float]


@dataclass(slots=True)
class LeaderRound:
    """One shedding round in the leader's log.

    `hot`: broker above the threshold → (usage, average), ratios. `splitting`: bundles that the
    leader had just decided to split; it has forgotten their averages, so that they can't be chosen.
    """

    at_ms: int
    splitting: set[str]
    calm: set[str] = field(default_factory=set)
    hot: dict[str, tuple[float, float]] = field(default_factory=dict)
    sheds: list[LeaderShed] = field(default_factory=list)


_TIME = re.compile(r"^\S+ (\S+)Z ")
_CALM = re.compile(r"ThresholdShedder - \[(\S+)\] broker is not overloaded")
_HOT = re.compile(
    r"shed load on (\S+), .* threshold ([\d.]+)% > ([\d.]+)% \+ [\d.]+% -- Offloading"
)
_RATE = re.compile(r"Broker http://(\S+) has long term message rate ([\d.]+)")
_UNLOAD = re.compile(
    r"\[ThresholdShedder\] Unloading bundle: (\S+) from broker (\S+) to dest broker (\S+)"
)
_SETTING = re.compile(r"Updated Service configuration (\w+)/(\S+)")
_SPLIT = re.compile(r"BundleSplitStrategy - The bundle (\S+) is considered to be unload")
_ROUND_LASTS_MS = 10_000
_SPLITS_LAST_MS = 1_000


def _log() -> Iterator[tuple[int, str]]:
    for raw in lines(LOG):
        line = raw.decode()
        found = _TIME.match(line)
        assert found, line
        yield round(datetime.fromisoformat(found[1]).replace(tzinfo=UTC).timestamp() * 1000), line


def leader_rounds() -> list[LeaderRound]:
    """The leader's shedding rounds, one a minute, from its log."""
    rounds: list[LeaderRound] = []
    ranked: dict[str, float] = {}
    splits: dict[str, int] = {}
    for at_ms, line in _log():
        calm, hot, rate, unload, split = (
            pattern.search(line) for pattern in (_CALM, _HOT, _RATE, _UNLOAD, _SPLIT)
        )
        if (calm or hot) and (not rounds or at_ms - rounds[-1].at_ms > _ROUND_LASTS_MS):
            rounds.append(
                LeaderRound(
                    at_ms,
                    {
                        bundle
                        for bundle, since in splits.items()
                        if at_ms - since <= _SPLITS_LAST_MS
                    },
                )
            )
        if calm:
            rounds[-1].calm.add(calm[1])
        elif hot:
            rounds[-1].hot[hot[1]] = (float(hot[2]) / 100, float(hot[3]) / 100)
        elif rate:
            ranked[rate[1]] = float(rate[2])
        elif unload:
            rounds[-1].sheds.append(LeaderShed(*unload.groups(), ranked))
            ranked = {}
        elif split:
            splits[split[1]] = at_ms
    return rounds


def settings_at(at_ms: int) -> dict[str, Any]:
    """The balancer's settings of the captured cluster at one time: its broker.conf, then what its
    log says was changed.

    A key that can't change at run time keeps its value: the cluster accepted such a change, too,
    and it had no effect.
    """
    given = dict(load_settings(broker_conf=BROKER_CONF, environment={}).balancer)
    for changed_ms, line in _log():
        found = _SETTING.search(line)
        if found and changed_ms <= at_ms and found[1] in list_known_names():
            name, factor = list_known_names()[found[1]]
            model = next(model for model in list_models() if name in model.model_fields)
            if key_metadata(model, name).dynamic and name not in AT_ITS_START:
                given[name] = float(found[2]) * factor
    return given


def decoded(report: Captured) -> Batch:
    """One report as the stream's own decoder hands it to the fold, appended at its captured
    time."""
    record = {
        "key": [f"captured/{report.broker}".encode()],
        "value": [report.value],
        "kind": [None],
        "topic": ["reports"],
        "partition": [0],
        "offset": [0],
        "append_ms": [report.at_ms],
    }
    types = (pa.binary(), pa.binary(), pa.string(), pa.string(), pa.int32(), pa.int64(), pa.int64())
    batch = pa.record_batch(
        [pa.array(column, kind) for column, kind in zip(record.values(), types, strict=True)],
        list(record),
    )
    rows = (
        row
        for block in decode([batch], DecodeConfig("default", "commands", {}))
        for row in block.to_pylist()
    )
    (row,) = (row for row in rows if row["cluster"] != ALL_CLUSTERS)
    return Batch(from_bytes(row["reports"]), from_bytes(row["samples"]), Batch.empty().events)


class PerReport:
    """Our default: a bundle gets a sample when a new report of its broker arrives, and is
    remembered for a while without one."""

    def __init__(self) -> None:
        self.shard, self.config = Shard.empty(), FoldConfig()

    def take(self, reports: Iterable[tuple[Captured, Batch]], at_ms: int) -> None:
        """New reports."""
        for _, batch in reports:
            self.shard, refused = fold(self.shard, batch, at_ms, self.config)
            assert not len(refused)

    def resample(self, at_ms: int) -> None:
        """The leader writes its averages down: nothing to us."""


class Reference:
    """The reference's way: at each report, and before it writes its averages, every broker's last
    report is a sample once more.

    Bundles that no broker names any more are forgotten at once.
    """

    def __init__(self) -> None:
        self.shard, self.config = Shard.empty(), FoldConfig(bundle_retention_ms=0)
        self.last: dict[str, Batch] = {}
        self._looks = 0

    def take(self, reports: Iterable[tuple[Captured, Batch]], at_ms: int) -> None:
        """New reports, seen at one look."""
        self.last |= {report.broker: batch for report, batch in reports}
        self.resample(at_ms)

    def resample(self, at_ms: int) -> None:
        """One look at all brokers' last reports."""
        self._looks += 1
        everybody = [self.last[name] for name in sorted(self.last)]
        reports, samples = [], []
        for number, one in enumerate(everybody):
            again = {
                "append_ms": at_ms,
                "offset": number,
                "digest": self._looks.to_bytes(8, "big"),
            }  # as if it had just come
            reports.append(
                pa.Table.from_pylist(
                    [row | again for row in one.reports.to_pylist()], one.reports.schema
                )
            )
            of_report = pa.array(np.full(len(one.samples), number, np.int32))
            samples.append(one.samples.set_column(1, one.samples.schema.field("report"), of_report))
        batch = Batch(pa.concat_tables(reports), pa.concat_tables(samples), Batch.empty().events)
        self.shard, refused = fold(self.shard, batch, at_ms, self.config)
        assert not len(refused)


Mode = PerReport | Reference


Average = tuple[int, tuple[float, ...]]
"""Number of samples, and the averages in the order of FOUR."""

Averages = tuple[Average, Average, int]
"""Short-term, long-term, number of topics."""


@dataclass(frozen=True, slots=True)
class BundleBeside:
    """One bundle's averages when the leader wrote its own down. `ours`: mode → the same."""

    at_ms: int
    bundle: str
    leader: Averages
    ours: Mapping[str, Averages]


@dataclass(frozen=True, slots=True)
class BrokerBeside:
    """One broker's sums over its bundles at such a time: FOUR of the short term, then FOUR of the
    long term."""

    at_ms: int
    broker: str
    leader: tuple[float, ...]
    ours: Mapping[str, tuple[float, ...]]


@dataclass(frozen=True, slots=True)
class RoundBeside:
    """One of the leader's shedding rounds and what we decide at that moment.

    `ours`: mode → our round. In `reference` mode, too: `spared`, if the bundles that the leader is
    splitting may not leave; `alone`, for each bundle that the leader unloaded, if no other one may
    leave.
    """

    leader: LeaderRound
    ours: Mapping[str, Round]
    spared: Round
    alone: Mapping[str, Decision | None]


@dataclass(frozen=True, slots=True)
class Replay:
    """The whole run."""

    bundles: tuple[BundleBeside, ...]
    brokers: tuple[BrokerBeside, ...]
    rounds: tuple[RoundBeside, ...]


def replay(read_together_ms: int = READ_TOGETHER_MS) -> Replay:
    """Go through the run. `read_together_ms` concerns the reference's way only."""
    modes: dict[str, Mode] = {"reference": Reference(), "per_report": PerReport()}
    reports = [(report, decoded(report)) for report in stored_reports()]
    rounds = [one for one in leader_rounds() if one.at_ms >= reports[0][0].at_ms]
    memories = dict.fromkeys(modes, memory_before())
    moments: list[tuple[int, Any]] = [(report.at_ms, (report, batch)) for report, batch in reports]
    moments += [(average.at_ms - WRITES_AFTER_MS, average) for average in leader_averages()] + [
        (one.at_ms, one) for one in rounds
    ]
    bundles: list[BundleBeside] = []
    brokers: list[BrokerBeside] = []
    decided: list[RoundBeside] = []
    for at_ms, what in sorted(moments, key=lambda moment: moment[0]):
        if isinstance(what, LeaderAverages):
            for mode in modes.values():
                mode.resample(at_ms)
            bundles += _bundles_beside(what, modes)
            brokers += _brokers_beside(what, modes)
        elif isinstance(what, LeaderRound):
            decided.append(_round_beside(what, in_grace(what, rounds), modes, memories))
            memories = {name: one.memory for name, one in decided[-1].ours.items()}
        else:
            seen = [
                (report, batch)
                for report, batch in reports
                if at_ms <= report.at_ms <= at_ms + read_together_ms
            ]
            modes["reference"].take(seen, at_ms)
            modes["per_report"].take([what], at_ms)
    return Replay(tuple(bundles), tuple(brokers), tuple(decided))


def memory_before() -> Memory:
    """What the shedder remembers when the capture begins: one round, in which each broker's usage
    was 0.00 % as the log says."""
    return Memory(
        strategies={
            "ThresholdShedder": {
                "usage": dict.fromkeys({report.broker for report in stored_reports()}, 0.0)
            }
        }
    )


def _bundles_beside(written: LeaderAverages, modes: Mapping[str, Mode]) -> Iterator[BundleBeside]:
    ours = {
        name: {row["name"]: _averages(row) for row in mode.shard.bundles.to_pylist()}
        for name, mode in modes.items()
    }
    for bundle, data in sorted(written.bundles.items()):
        short, long = (
            (data[span]["numSamples"], tuple(data[span][name] for name in THEIR_FOUR))
            for span in ("shortTermData", "longTermData")
        )
        yield BundleBeside(
            written.at_ms,
            bundle,
            (short, long, data["topics"]),
            {name: mode[bundle] for name, mode in ours.items()},
        )


def _averages(row: Mapping[str, Any]) -> Averages:
    short, long = (
        (row[f"{span}_samples"], tuple(row[f"{span}_{value}"] for value in RATE_COLUMNS))
        for span in ("short", "long")
    )
    return short, long, row["topics"]


def _brokers_beside(written: LeaderAverages, modes: Mapping[str, Mode]) -> Iterator[BrokerBeside]:
    views = {
        name: view_of("captured", [mode.shard], written.at_ms, {"cpu": 1.0}).brokers
        for name, mode in modes.items()
    }
    for broker, data in sorted(written.brokers.items()):
        leader = tuple(
            data[f"{span}Term{name[0].upper()}{name[1:]}"]
            for span in ("short", "long")
            for name in THEIR_FOUR
        )
        rows = {name: view.names.index(broker) for name, view in views.items()}
        ours = {
            name: views[name].short.row(row) + views[name].long.row(row)
            for name, row in rows.items()
        }
        yield BrokerBeside(written.at_ms, broker, leader, ours)


def decide_beside(
    shard: Shard, memory: Memory, leader: LeaderRound, left_alone: Iterable[str]
) -> Round:
    """Our shedding round at the leader's moment.

    The bundles `left_alone` have been unloaded just now: they may not leave.
    """
    config = cluster_config(
        settings_at(leader.at_ms)
        | {"dry_run": True, "assign_unowned": "on_lookup", "split_enabled": False}
    )
    memory = Memory(
        seq=memory.seq,
        recently_unloaded=dict.fromkeys(left_alone, leader.at_ms),
        strategies=memory.strategies,
    )
    view = view_of("captured", [shard], leader.at_ms, config.balancer.weights)
    return decide(view, memory, Inbox(), config)


def _round_beside(
    leader: LeaderRound,
    in_grace: list[str],
    modes: Mapping[str, Mode],
    memories: Mapping[str, Memory],
) -> RoundBeside:
    shard, memory = modes["reference"].shard, memories["reference"]
    names = shard.bundles["name"].to_pylist()
    alone = {
        shed.bundle: decide_beside(
            shard, memory, leader, [name for name in names if name != shed.bundle]
        )
        for shed in leader.sheds
    }
    return RoundBeside(
        leader,
        ours={
            name: decide_beside(mode.shard, memories[name], leader, in_grace)
            for name, mode in modes.items()
        },
        spared=decide_beside(shard, memory, leader, [*in_grace, *leader.splitting]),
        alone={bundle: next(iter(one.decisions), None) for bundle, one in alone.items()},
    )


def in_grace(leader: LeaderRound, rounds: list[LeaderRound]) -> list[str]:
    """What the leader has unloaded within the grace period.

    The cluster did what the leader said, so it is this that counts.
    """
    grace_ms = settings_at(leader.at_ms)["shedding_grace_period_ms"]
    return [
        shed.bundle
        for one in rounds
        for shed in one.sheds
        if leader.at_ms - grace_ms <= one.at_ms < leader.at_ms
    ]


def clock(at_ms: int) -> str:
    """Time of day, UTC."""
    return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%H:%M:%S")
