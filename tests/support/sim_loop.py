"""A closed loop without Kafka or Spark: the model's reports → averages → `decide` → the agents'
rules → the model."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from lb_stream.agent.obey import AgentMemory, addressee, judge
from lb_stream.contracts.base import RESOURCES, canonical_json
from lb_stream.contracts.decisions import Decision
from lb_stream.contracts.reports import Ack
from lb_stream.core.averages import fold
from lb_stream.core.averages.cluster_view import view_of
from lb_stream.core.commands.responder import Received
from lb_stream.core.model.blocks import EVENT_SCHEMA, REPORT_SCHEMA, SAMPLE_SCHEMA, Batch, Shard
from lb_stream.core.model.memory import Memory
from lb_stream.core.model.view import ClusterView
from lb_stream.core.observing.outcomes import Outcome
from lb_stream.core.round.decide import Inbox, Round
from lb_stream.settings.resolve import cluster_config
from lb_stream.sim import SimBroker, SimCluster
from lb_stream.sim.cluster import max_over_mean
from tests.support.commanded_round import decide_with

CAMEL = {
    "cpu": "cpu",
    "memory": "memory",
    "direct_memory": "directMemory",
    "bandwidth_in": "bandwidthIn",
    "bandwidth_out": "bandwidthOut",
}
FOUR = {
    "latest_throughput_in_bytes_per_s": "msgThroughputIn",
    "latest_throughput_out_bytes_per_s": "msgThroughputOut",
    "latest_rate_in_msgs_per_s": "msgRateIn",
    "latest_rate_out_msgs_per_s": "msgRateOut",
}


def batch_of(
    reports: list[tuple[str, Mapping[str, Any]]], append_ms: int, first_offset: int
) -> Batch:
    """One micro-batch of modular reports (broker, JSON object), all appended at one time, in the
    given order."""
    report_rows, sample_rows = [], []
    for number, (broker, report) in enumerate(reports):
        row = {
            "name": broker,
            "topic": "reports",
            "partition": 0,
            "offset": first_offset + number,
            "append_ms": append_ms,
            "kind": "modular",
            "digest": hashlib.blake2b(canonical_json(report).encode(), digest_size=8).digest(),
            "start_timestamp_ms": report["startTimestamp"],
            "last_update_ms": report["lastUpdate"],
            "topics": report["numTopics"],
            "bundles": report["numBundles"],
            "producers": report["numProducers"],
            "consumers": report["numConsumers"],
            "bundle_gains": len(report["lastBundleGains"]),
            "bundle_losses": len(report["lastBundleLosses"]),
            "persistent_topics": True,
            "non_persistent_topics": True,
            "version": report.get("brokerVersionString", ""),
            "load_manager": report["loadManagerClassName"],
        }
        for resource in RESOURCES:
            row |= {
                f"{resource}_{part}": report[CAMEL[resource]][part] for part in ("usage", "limit")
            }
        report_rows.append(row | {ours: report[theirs] for ours, theirs in FOUR.items()})
        sample_rows += [
            {
                "name": bundle,
                "report": number,
                "has_stats": True,
                "topics": stats["topics"],
                "producers": stats["producerCount"],
                "consumers": stats["consumerCount"],
                "cache_size_bytes": stats["cacheSize"],
            }
            | {ours: stats[theirs] for ours, theirs in FOUR.items()}
            for bundle, stats in report["lastStats"].items()
        ]
    return Batch(
        pa.Table.from_pylist(report_rows, REPORT_SCHEMA),
        pa.Table.from_pylist(sample_rows, SAMPLE_SCHEMA),
        EVENT_SCHEMA.empty_table(),
    )


@dataclass
class ClosedLoop:
    """One cluster under one balancer.

    Time goes in steps; what happens in one step is seen by the balancer in the next.
    """

    cluster: SimCluster
    settings: Mapping[str, Any]
    now_ms: int
    memory: Memory = field(default_factory=lambda: Memory(epoch=1))
    shard: Shard = field(default_factory=Shard.empty)
    seen: AgentMemory = field(default_factory=AgentMemory)
    decisions: list[Decision] = field(default_factory=list)
    outcomes: list[Outcome] = field(default_factory=list)
    at_once: list[tuple[str, Mapping[str, Any]]] = field(default_factory=list)
    acks: list[Ack] = field(default_factory=list)
    commands: list[Received] = field(default_factory=list)  # of operators, for the next step
    offset: int = 0
    view: ClusterView | None = None  # what the last round was given

    def __post_init__(self) -> None:
        self.given = {"dry_run": False, **self.settings}
        self.config = cluster_config(self.given)
        self.merging = dict.fromkeys(self.cluster.brokers, True)
        self.brokers = {
            name: SimBroker(self.cluster, name, clock=lambda: self.now_ms)
            for name in self.cluster.brokers
        }

    def step(self, step_ms: int = 1000) -> Round:
        """Every broker reports, the balancer decides, the brokers obey and report at once (in the
        next step's batch)."""
        self.now_ms += step_ms
        reports = [
            *self.at_once,
            *((name, broker.report()) for name, broker in self.brokers.items()),
        ]
        batch = batch_of(reports, self.now_ms, self.offset)
        self.offset += len(reports)
        self.shard, refused = fold(self.shard, batch, self.now_ms, self.config.fold)
        assert not len(refused), "a report of the model was taken for an old one"
        self.view = view = view_of("demo", [self.shard], self.now_ms, self.config.balancer.weights)
        inbox = Inbox(tuple(self.acks), commands=tuple(self.commands), merging=self.merging)
        made = decide_with(view, self.memory, inbox, self.given)
        self.memory = Memory.from_json(made.memory.to_json())
        self.outcomes += made.outcomes
        self.at_once, self.acks, self.commands = [], [], []
        for decision in made.decisions:
            self._obey(decision)
        return made

    def _obey(self, decision: Decision) -> None:
        self.decisions.append(decision)
        self.seen.note_epoch(decision)
        broker = self.brokers[addressee(decision) or ""]
        verdict = judge(
            broker.name, self.seen, decision, all(map(broker.owns, decision.bundles)), self.now_ms
        )
        self.seen.note_done(broker.name, decision, self.now_ms)
        if verdict.action == "release":
            broker.release(decision.bundle)
        elif verdict.action == "acquire":
            broker.acquire(decision.bundle)
        elif verdict.action == "split":
            broker.split(decision.bundle, decision.boundaries, decision.algorithm or "")
        elif verdict.action == "merge":
            broker.merge(decision.bundles, decision.children[0])
        else:
            self.acks.append(
                Ack(decision_id=decision.decision_id, outcome="refused", reason=verdict.reason)
            )
        self.at_once.append((broker.name, json.loads(canonical_json(broker.report()))))

    def run(self, seconds: int) -> list[int]:
        """Steps of a second; returns the number of decisions in each."""
        return [len(self.step().decisions) for _ in range(seconds)]

    def unevenness(self) -> float:
        """Greatest over mean true throughput of the brokers."""
        return max_over_mean(
            load.throughput_bytes_per_s for load in self.cluster.loads(self.now_ms).values()
        )
