"""The job's metrics for Prometheus, from each batch's rows of the log and Spark's progress.

Metrics that Pulsar has too keep its names (`pulsar_lb_…`) and labels, with `cluster` in the place
of its `broker`: here one balancer serves many clusters. The others begin with `lb_stream_`.
Counters count from the start of this process; the tables have the whole history.
"""

from __future__ import annotations

from collections import Counter as Counted
from collections.abc import Iterator, Mapping
from typing import Any, get_args

import msgspec
import pyarrow.compute as pc
from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
    disable_created_metrics,
)
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from lb_stream.contracts.decisions import DecisionKind
from lb_stream.core.model.memory import Mergeable
from lb_stream.core.model.rollout import BEGUN, BrokerPhase
from lb_stream.core.shadow.evaluate import REAL
from lb_stream.job.metrics.round_figures import MemorySource, RoundFigures
from lb_stream.job.metrics.spark_progress import (
    Progress,
    is_batch,
    lag_records,
    read_number,
    read_state,
    spark_phases,
)
from lb_stream.stream.ports import Logged, forgotten_clusters

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
LATENCIES_MS = (1, 10, 100, 200, 1_000, 2_000, 5_000, 10_000, 30_000, 60_000, 300_000)
"""Pulsar's five limits, and longer ones: here a move ends with the report that shows it."""

UNLOAD_RESULTS = (
    *(("Success", reason) for reason in ("Overloaded", "Underloaded", "Admin")),
    *(
        ("Skip", reason)
        for reason in (
            "HitCount",
            "NoBundles",
            "CoolDown",
            "OutDatedData",
            "NoLoadData",
            "NoBrokers",
            "Unknown",
        )
    ),
    ("Failure", "Unknown"),
)
SPLIT_RESULTS = (
    *(("Success", reason) for reason in ("Topics", "Sessions", "MsgRate", "Bandwidth", "Admin")),
    ("Failure", "Unknown"),
)
ASSIGN_RESULTS = ("Success", "Failure", "Skip")

SKIPS = {
    "hit_count": "HitCount",
    "no_bundles_to_move": "NoBundles",
    "no_eligible_bundle": "NoBundles",
    "cool_down": "CoolDown",
    "outdated_data": "OutDatedData",
    "no_load_data": "NoLoadData",
    "no_brokers": "NoBrokers",
    "single_broker": "NoBrokers",
}
"""Refusals of a whole shedding pass → Pulsar's word for it."""

_FAILED = frozenset({"refused", "expired", "failed"})
_ASSIGN_RESULTS = {"confirmed": "Success"} | dict.fromkeys(_FAILED, "Failure")
"""Outcome of an assignment → Pulsar's word for it."""
_LATENCIES = {
    "unload": (
        "pulsar_lb_release_latency",
        "from an unload decision to the report that no longer shows the bundle at its source",
    ),
    "assign": (
        "pulsar_lb_assign_latency",
        "from an assign decision to the report that shows the bundle at its destination",
    ),
    "transfer": (
        "pulsar_lb_unload_latency",
        "from a transfer decision to the report that shows the bundle at its destination",
    ),
}


class _PendingDecision(msgspec.Struct):
    decision_id: str
    kind: DecisionKind


class _RolloutBroker(msgspec.Struct):
    phase: BrokerPhase = "waiting"
    since_ms: int = 0


class _Rollout(msgspec.Struct):
    brokers: dict[str, _RolloutBroker] = {}
    still_ms: int | None = None


class _ClusterMemory(msgspec.Struct):
    pending: list[_PendingDecision] = []
    moves: dict[str, _PendingDecision] = {}
    clashing: int = 0
    dead: list[str] = []
    retry_ms: int = 0
    suspension: dict[str, object] | None = None
    mergeable: dict[str, Mergeable] = {}
    proposals: list[object] = []
    rollout: _Rollout | None = None


_read_memory = msgspec.json.Decoder(_ClusterMemory).decode

# They would be a second series for each counter, without any use.
disable_created_metrics()  # type: ignore[no-untyped-call]


class Metrics:
    """All metrics of the stream and its clusters; `broker_metrics` has those of single brokers.

    Costly ones are read when they are requested: `memories` gives what clusters remember, `figures`
    their loads.
    """

    def __init__(
        self, pipeline: str, version: str, epoch: int, memories: MemorySource, figures: RoundFigures
    ) -> None:
        self.registry = CollectorRegistry()
        known = [_read_memory(text) for text in memories().values()]
        # Id of each pending decision → its kind.
        self.pending_kinds = {
            decision.decision_id: decision.kind
            for memory in known
            for decision in (*memory.pending, *memory.moves.values())
        }
        ProcessCollector(registry=self.registry)
        self._define_stream()
        self._define_clusters()
        self._define_pulsar()
        self.registry.register(_Clusters(memories, figures))
        self.info.labels(pipeline, version).set(1)
        self.epoch.set(epoch)
        self.leader.set(1)

    def _define_stream(self) -> None:
        own = self.registry

        def seconds(name: str, text: str, *labels: str) -> Histogram:
            return Histogram(
                f"lb_stream_{name}_seconds", text, labels, registry=own, buckets=SECONDS
            )

        self.info = Gauge(
            "lb_stream_info",
            "always 1; the labels name the pipeline and the version",
            ["pipeline", "version"],
            registry=own,
        )
        self.epoch = Gauge(
            "lb_stream_epoch",
            "epoch of the job, which grows with every start",
            registry=own,
        )
        self.leader = Gauge(
            "lb_stream_leader", "1: this job leads its pipeline; 0: it stands by", registry=own
        )
        self.standbys = Gauge(
            "lb_stream_standbys", "jobs that stand by, as far as the leader knows", registry=own
        )
        self.batches = Counter("lb_stream_batches_total", "micro-batches finished", registry=own)
        last = "time when the last micro-batch was finished; at first, when the job began"
        self.last_batch = Gauge("lb_stream_last_batch_timestamp_seconds", last, registry=own)
        self.batch_seconds = seconds("batch", "duration of a micro-batch, as Spark measures it")
        self.phase_seconds = seconds("phase", "duration of a phase of a micro-batch", "phase")
        self.state_seconds = seconds("state", "time for the state, summed over tasks", "part")
        self.state_rows = Gauge(
            "lb_stream_state_rows", "keys in the state, which are shards of clusters", registry=own
        )
        self.state_bytes = Gauge(
            "lb_stream_state_bytes", "memory that the state store uses", registry=own
        )
        self.input_records = Counter(
            "lb_stream_input_records_total", "records read from Kafka", registry=own
        )
        self.input_rate = Gauge(
            "lb_stream_input_records_per_second",
            "rate at which records arrived, by the last micro-batch",
            registry=own,
        )
        self.processed_rate = Gauge(
            "lb_stream_processed_records_per_second",
            "rate at which records were processed, by the last micro-batch",
            registry=own,
        )
        self.lag = Gauge(
            "lb_stream_lag_records",
            "records in a topic that the last micro-batch left unread",
            ["topic"],
            registry=own,
        )
        self.monitoring_errors = Counter(
            "lb_stream_monitoring_errors_total",
            "failures of the monitoring itself",
            ["part"],
            registry=own,
        )
        self.telemetry_lost = Counter(
            "lb_stream_telemetry_lost_total",
            "spans, and points of metrics, for OpenTelemetry that were not delivered",
            ["signal", "reason"],
            registry=own,
        )

    def _define_clusters(self) -> None:
        def counter(name: str, text: str, *labels: str) -> Counter:
            return Counter(
                f"lb_stream_{name}_total", text, ["cluster", *labels], registry=self.registry
            )

        def gauge(name: str, text: str) -> Gauge:
            return Gauge(f"lb_stream_{name}", text, ["cluster"], registry=self.registry)

        self.rounds = counter("rounds", "rounds that were logged")
        self.last_round = gauge(
            "last_round_timestamp_seconds", "time of the cluster's last round in the log"
        )
        self.decisions = counter(
            "decisions", "decisions that were logged", "kind", "reason", "strategy", "dry_run"
        )
        self.outcomes = counter("outcomes", "decisions that have an outcome", "kind", "outcome")
        self.refusals = counter("refusals", "refusals of rules", "rule")
        self.refused_commands = counter(
            "refused_commands", "commands that were refused, by the rule that refused them", "rule"
        )
        self.rejected = counter("rejected_records", "records that were rejected")
        self.round_errors = counter(
            "round_errors", "rounds that failed, in which nothing was decided"
        )
        self.shadow_rounds = counter(
            "shadow_rounds",
            "rounds that a shadow should have evaluated, by outcome",
            "shadow",
            "outcome",
        )
        self.shadow_decisions = counter(
            "shadow_decisions", "decisions that a shadow would have made", "shadow", "kind"
        )
        of_policies = (
            "max usage: as reported (policy real), or as a shadow predicts it with its own moves"
        )
        self.shadow_usage = Gauge(
            "lb_stream_shadow_max_usage_ratio",
            of_policies,
            ["cluster", "policy"],
            registry=self.registry,
        )

    def _define_pulsar(self) -> None:
        def counter(name: str, text: str, *labels: str) -> Counter:
            return Counter(
                f"pulsar_lb_{name}_total",
                text,
                ["cluster", "metric", *labels],
                registry=self.registry,
            )

        self.unload_brokers = counter(
            "unload_broker", "brokers that were asked to unload, counted once in each round"
        )
        self.unload_bundles = counter(
            "unload_bundle", "bundles that were asked to leave their broker"
        )
        self.splits = counter("bundles_split", "bundles that were asked to split")
        self.unload_results = counter(
            "unload_broker_breakdown",
            "unloads that were decided, skipped or failed",
            "result",
            "reason",
        )
        self.split_results = counter(
            "bundles_split_breakdown", "splits that were decided or failed", "result", "reason"
        )
        self.assign_results = counter(
            "assign_broker_breakdown",
            "assignments that were confirmed, failed or superseded",
            "result",
        )
        self.latencies = {
            kind: Histogram(
                name,
                f"ms {text}",
                ["cluster", "metric"],
                buckets=LATENCIES_MS,
                registry=self.registry,
            )
            for kind, (name, text) in _LATENCIES.items()
        }

    def count(self, logged: Logged) -> dict[str, int]:
        """Count a batch's rounds. A cluster's series begin, at 0, with its first round.

        Returns the numbers of rounds, decisions, refusals and failed rounds.
        """
        totals = dict.fromkeys(("rounds", "decisions", "refusals", "errors"), 0)
        rows = logged.rounds.select(["cluster", "now_ms", "error"]).to_pylist()
        # Columns are parsed when they are needed: a round with an unreadable one is counted anyway.
        for at, row in enumerate(rows):
            cluster = row["cluster"]
            self._begin(cluster)
            self.rounds.labels(cluster).inc()
            self.last_round.labels(cluster).set(row["now_ms"] / 1000)
            decisions, refusals = logged.entries("decisions")[at], logged.entries("refusals")[at]
            self._count_decisions(cluster, decisions)
            self._count_outcomes(cluster, logged.entries("outcomes")[at])
            self._count_refusals(cluster, refusals)
            self._count_refused_commands(cluster, logged.entries("results")[at])
            self.round_errors.labels(cluster).inc(row["error"] is not None)
            self._count_shadows(cluster, logged.entries("shadows")[at])
            totals["rounds"] += 1
            totals["decisions"] += len(decisions)
            totals["refusals"] += sum(refusal["count"] for refusal in refusals)
            totals["errors"] += row["error"] is not None
        for cluster in forgotten_clusters(logged):
            self._end(cluster)
        return totals

    def _end(self, cluster: str) -> None:
        """Remove the series of a forgotten cluster."""
        for metric in (*vars(self).values(), *self.latencies.values()):
            if isinstance(metric, Counter | Gauge | Histogram) and "cluster" in metric._labelnames:
                metric.remove_by_labels({"cluster": cluster})

    def count_rejected(self, records: Mapping[str, int]) -> None:
        """Count rejected records; `records`: their number by cluster."""
        for cluster, count in records.items():
            self.rejected.labels(cluster).inc(count)

    def record_progress(self, progress: Progress) -> None:
        """Record Spark's progress of a batch; without a batch, only its figures about the input."""
        for topic, records in lag_records(progress).items():
            self.lag.labels(topic).set(records)
        self.input_rate.set(read_number(progress, "inputRowsPerSecond"))
        self.processed_rate.set(read_number(progress, "processedRowsPerSecond"))
        if not is_batch(progress):
            return
        self.input_records.inc(read_number(progress, "numInputRows"))
        self.batch_seconds.observe(progress["durationMs"]["triggerExecution"] / 1000)
        for phase, milliseconds in spark_phases(progress).items():
            self.phase_seconds.labels(phase).observe(milliseconds / 1000)
        state = read_state(progress)
        self.state_seconds.labels("updates").observe(state["state_updates_ms"] / 1000)
        self.state_seconds.labels("commit").observe(state["state_commit_ms"] / 1000)
        self.state_rows.set(state["state_rows"])
        self.state_bytes.set(state["state_bytes"])

    def _begin(self, cluster: str) -> None:
        for metric in (self.rejected, self.round_errors):
            metric.labels(cluster)
        for metric in (self.unload_brokers, self.unload_bundles):
            metric.labels(cluster, "bundleUnloading")
        self.splits.labels(cluster, "bundlesSplit")
        for result, reason in UNLOAD_RESULTS:
            self.unload_results.labels(cluster, "bundleUnloading", result, reason)
        for result, reason in SPLIT_RESULTS:
            self.split_results.labels(cluster, "bundlesSplit", result, reason)
        for result in ASSIGN_RESULTS:
            self.assign_results.labels(cluster, "assign", result)

    def _count_decisions(self, cluster: str, decisions: list[dict[str, Any]]) -> None:
        for decision in decisions:
            self.decisions.labels(
                cluster,
                decision["kind"],
                decision["reason"],
                decision["strategy"],
                str(decision["dry_run"]).lower(),
            ).inc()
        # A dry run's decisions aren't published, and have no outcome.
        made = [decision for decision in decisions if not decision["dry_run"]]
        self.pending_kinds |= {decision["decision_id"]: decision["kind"] for decision in made}
        unloads = [decision for decision in made if decision["kind"] in ("unload", "transfer")]
        self.unload_brokers.labels(cluster, "bundleUnloading").inc(
            len({unload["source"] for unload in unloads})
        )
        self.unload_bundles.labels(cluster, "bundleUnloading").inc(len(unloads))
        for unload in unloads:
            self.unload_results.labels(
                cluster, "bundleUnloading", "Success", unload["reason"]
            ).inc()
        for decision in made:
            if decision["kind"] == "split":
                self.splits.labels(cluster, "bundlesSplit").inc()
                self.split_results.labels(
                    cluster, "bundlesSplit", "Success", decision["reason"]
                ).inc()

    def _count_outcomes(self, cluster: str, outcomes: list[dict[str, Any]]) -> None:
        for outcome in outcomes:
            kind = self.pending_kinds.pop(outcome["decision_id"], "unknown")
            self.outcomes.labels(cluster, kind, outcome["outcome"]).inc()
            if kind == "assign":
                result = _ASSIGN_RESULTS.get(outcome["outcome"], "Skip")
                self.assign_results.labels(cluster, "assign", result).inc()
            elif outcome["outcome"] in _FAILED:
                if kind == "split":
                    self.split_results.labels(cluster, "bundlesSplit", "Failure", "Unknown").inc()
                # The reference has no metric of merges, as it merges nothing.
                elif kind != "merge":
                    self.unload_results.labels(
                        cluster, "bundleUnloading", "Failure", "Unknown"
                    ).inc()
            if outcome["outcome"] == "confirmed" and kind in self.latencies:
                waited_ms = outcome["took_ms"]
                if kind == "unload" and outcome.get("released_ms") is not None:
                    waited_ms -= outcome["at_ms"] - outcome["released_ms"]
                self.latencies[kind].labels(cluster, "bundleUnloading").observe(waited_ms)

    def _count_shadows(self, cluster: str, entries: list[dict[str, Any]]) -> None:
        for entry in entries:
            policy = entry["policy"]
            if entry.get("max_ratio") is not None:
                self.shadow_usage.labels(cluster, policy).set(entry["max_ratio"])
            if policy == REAL:
                continue
            for outcome in ("done", "skipped", "failed"):
                self.shadow_rounds.labels(cluster, policy, outcome).inc(entry["outcome"] == outcome)
            for kind, count in Counted(
                decision["kind"] for decision in entry.get("decisions", ())
            ).items():
                self.shadow_decisions.labels(cluster, policy, kind).inc(count)

    def _count_refused_commands(self, cluster: str, results: list[dict[str, Any]]) -> None:
        """Count each refused command once, also if it was sent again."""
        for result in results:
            if result["outcome"] == "refused" and not result["repeated"]:
                self.refused_commands.labels(cluster, result["rule"]).inc()

    def _count_refusals(self, cluster: str, refusals: list[dict[str, Any]]) -> None:
        for refusal in refusals:
            self.refusals.labels(cluster, refusal["rule"]).inc(refusal["count"])
            if refusal["rule"] in SKIPS:
                self.unload_results.labels(
                    cluster, "bundleUnloading", "Skip", SKIPS[refusal["rule"]]
                ).inc()


_CLUSTER_GAUGES: dict[str, tuple[str, ...]] = {
    "clusters": ("known clusters",),
    "pending_decisions": (
        "pending decisions: published, and without an outcome yet",
        "cluster",
        "kind",
    ),
    "dead_brokers": ("brokers that are dead or departed", "cluster"),
    "self_balancing_brokers": (
        "brokers whose own load manager balances although decisions are published",
        "cluster",
    ),
    "merge_advice": ("pairs of bundles that could be one, by merge advice", "cluster"),
    "proposals": ("proposals that wait for approval", "cluster"),
    "rollout_brokers": ("brokers of the rollout that is on, by phase", "cluster", "phase"),
    "rollout_broker_since_seconds": (
        "when a broker of the rollout became draining, empty or down (Unix time)",
        "cluster",
        "broker",
        "phase",
    ),
    "rollout_stands_still": (
        "1: the rollout waits for a broker for longer than rollout_back_within_ms, or rests as "
        "decisions are not published",
        "cluster",
    ),
    "suspended": ("1: nothing is decided for the cluster, for this reason", "cluster", "reason"),
    "brokers": ("known brokers, including dead ones", "cluster"),
    "bundles": ("bundles that have an owner", "cluster"),
}
"""Gauge of clusters → its description and its labels."""


class _Clusters(Collector):
    """Gauges of clusters, read on request: parsing large memories would slow every batch."""

    def __init__(self, memories: MemorySource, figures: RoundFigures) -> None:
        self._memories, self._figures = memories, figures
        self._read: dict[str, tuple[str, _ClusterMemory]] = {}

    def collect(self) -> Iterator[Metric]:
        """Yield a gauge for each cluster and figure."""
        gauges = {
            name: GaugeMetricFamily(f"lb_stream_{name}", text, labels=labels)
            for name, (text, *labels) in _CLUSTER_GAUGES.items()
        }
        # Of memories: a copy, as the stream goes on meanwhile.
        memories = dict(self._memories())
        self._read = {cluster: self._known(cluster, text) for cluster, text in memories.items()}
        gauges["clusters"].add_metric([], len(memories))
        for cluster, (_, memory) in self._read.items():
            kinds = Counted(decision.kind for decision in memory.pending)
            for kind in get_args(DecisionKind):
                gauges["pending_decisions"].add_metric([cluster, kind], kinds[kind])
            gauges["dead_brokers"].add_metric([cluster], len(memory.dead))
            gauges["self_balancing_brokers"].add_metric([cluster], memory.clashing)
            advised = sum(pair.advised_ms > 0 for pair in memory.mergeable.values())
            gauges["merge_advice"].add_metric([cluster], advised)
            gauges["proposals"].add_metric([cluster], len(memory.proposals))
            rollout = memory.rollout or _Rollout()
            phases = Counted(broker.phase for broker in rollout.brokers.values())
            for phase in get_args(BrokerPhase):
                gauges["rollout_brokers"].add_metric([cluster, phase], phases[phase])
            since = gauges["rollout_broker_since_seconds"]
            for name, broker in rollout.brokers.items():
                if broker.phase in BEGUN:
                    since.add_metric([cluster, name, broker.phase], broker.since_ms / 1_000)
            is_still = rollout.still_ms is not None
            gauges["rollout_stands_still"].add_metric([cluster], is_still)
            suspended = gauges["suspended"]
            suspended.add_metric([cluster, "errors"], memory.retry_ms > 0)
            suspended.add_metric([cluster, "brokers_vanished"], memory.suspension is not None)
        # Of the latest loads.
        for cluster, rows in dict(self._figures.loads).items():
            gauges["brokers"].add_metric([cluster], len(rows))
            owned = pc.sum(rows.filter(rows["alive"])["bundles"]).as_py()
            gauges["bundles"].add_metric([cluster], owned or 0)
        yield from gauges.values()

    def _known(self, cluster: str, text: str) -> tuple[str, _ClusterMemory]:
        before = self._read.get(cluster)
        return before if before is not None and before[0] is text else (text, _read_memory(text))
