"""Tables of docs/metrics.md: what the job serves for Prometheus, and the alerts over it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from lb_stream.contracts.settings import Settings
from lb_stream.io.leadership.membership import Member
from lb_stream.job.metrics.broker_metrics import BrokerMetrics
from lb_stream.job.metrics.job_metrics import Metrics
from lb_stream.job.metrics.round_figures import RoundFigures
from lb_stream.job.metrics.standby import standby_metrics
from lb_stream.store import Store

ALERTS = Path(__file__).resolve().parents[2] / "conf" / "prometheus-alerts.yml"

LOOK_INTO = {
    "lb_stream_last_batch_timestamp_seconds": (
        "older than a minute: ticks make a batch at least every `tick_interval_ms`"
    ),
    "lb_stream_lag_records": "it grows for minutes: reports come faster than the job reads them",
    "lb_stream_batch_seconds": "the 95th percentile nears the interval between reports",
    "lb_stream_phase_seconds": (
        "one phase grows over days: `log` and `project` have slow storage, `averages` lacks cores "
        "or storage, `decide` has more state"
    ),
    "lb_stream_input_records_total": "no increase: brokers or Kafka are away",
    "lb_stream_processed_records_per_second": "it stays below the arrivals",
    "lb_stream_state_rows": "it grows without new clusters",
    "lb_stream_state_seconds": "`commit` grows: the checkpoint's storage is slow",
    "lb_stream_epoch": "it changes, and no operator has started the job",
    "lb_stream_leader": (
        "the sum over a pipeline's jobs is not 1 for longer than a change of leader takes"
    ),
    "lb_stream_standbys": "fewer than were started",
    "lb_stream_monitoring_errors_total": "above 0: the job's log names the cause",
    "lb_stream_telemetry_lost_total": (
        "above 0: the collector is away, refuses, or is too slow; the job's log says which"
    ),
    "lb_stream_clusters": "more than you have: a sender misspells a cluster's name",
    "lb_stream_round_errors_total": "above 0: column `error` of `rounds` names the cause",
    "lb_stream_suspended": (
        "1: find out whether the brokers are away or only the way to them; of `errors`, see "
        "column `error` of `rounds`"
    ),
    "lb_stream_dead_brokers": "a dead broker should be alive",
    "lb_stream_self_balancing_brokers": (
        "above 0: the agents refuse every decision; `refusals` names the brokers"
    ),
    "lb_stream_bundles": "sudden changes",
    "lb_stream_proposals": "it grows: no operator answers",
    "lb_stream_rollout_brokers": "one stays `draining`, `empty` or `down`",
    "lb_stream_rollout_broker_since_seconds": "`time()` minus it: how long it has been so",
    "lb_stream_rollout_stands_still": "1: `lbctl rollout status` names the broker",
    "lb_stream_pending_decisions": (
        "it does not fall: brokers do not obey, or their reports do not arrive"
    ),
    "lb_stream_decisions_total": "moves without end: the same bundles back and forth",
    "lb_stream_outcomes_total": (
        "`expired`: agents do not obey; `refused`: table `outcomes` names the reason; "
        "`failed`: bundles did not reach their destination"
    ),
    "lb_stream_refusals_total": "a hot broker, and one rule that always refuses",
    "lb_stream_shadow_rounds_total": "`skipped` or `failed` grow",
    "lb_stream_refused_commands_total": (
        "`not_allowed` or `unsigned` grows: who sends commands without the right, or in another's name?"
    ),
    "lb_stream_rejected_records_total": "above 0: table `rejected_reports` names field and value",
    "lb_stream_broker_alive": "0",
    "lb_stream_broker_throughput_bytes_per_second": "one broker stays far above the others",
    "pulsar_lb_cpu_usage": "near 100",
    "pulsar_lb_resource_usage_stats": "`std` stays above the shedder's target",
}
"""Metric → when to look into it."""


@dataclass(frozen=True, slots=True)
class ServedMetric:
    """One metric as Prometheus sees it. `kind`: counter, gauge or histogram."""

    name: str
    kind: str
    labels: tuple[str, ...]
    about: str

    @property
    def series(self) -> dict[str, frozenset[str]]:
        """Return the names of its series, each with its labels."""
        own = frozenset(self.labels)
        if self.kind != "histogram":
            return {self.name: own}
        parts = {f"{self.name}_{part}": own for part in ("sum", "count")}
        return parts | {f"{self.name}_bucket": own | {"le"}}

    @property
    def is_of_brokers(self) -> bool:
        """Return whether it is served at the path of single brokers."""
        return "broker" in self.labels or self.name == "pulsar_lb_resource_usage_stats"


def served_metrics(with_process: bool = False) -> list[ServedMetric]:
    """Return all metrics that a job or a standby serves. `with_process`: its process' too."""
    figures = RoundFigures(Store.at("nowhere"))
    job = Metrics("pipeline", "version", 1, dict, figures)
    standby = standby_metrics(Member(Settings(), leads=False))
    labels = {
        metric._name: tuple(metric._labelnames)
        for metric in (*vars(job).values(), *job.latencies.values())
        if hasattr(metric, "_labelnames")
    }
    served: dict[str, ServedMetric] = {}
    for registry in (job.registry, BrokerMetrics(figures, dict).registry, standby):
        for family in registry.collect():
            name = family.name + ("_total" if family.type == "counter" else "")
            own = labels.get(family.name, tuple(getattr(family, "_labelnames", ())))
            served.setdefault(name, ServedMetric(name, family.type, own, family.documentation))
    return [
        metric for name, metric in served.items() if with_process or not name.startswith("process_")
    ]


def _table(metrics: Iterable[ServedMetric]) -> str:
    lines = ["| metric | kind | labels | meaning | look into it when |", "|---|---|---|---|---|"]
    for metric in metrics:
        labels = ", ".join(f"`{label}`" for label in metric.labels if label != "cluster")
        cells = (f"`{metric.name}`", metric.kind, labels, metric.about)
        lines.append(f"| {' | '.join(cells)} | {LOOK_INTO.get(metric.name, '')} |")
    return "\n".join(lines)


def stream_metrics_table() -> str:
    """Return the metrics of the stream as a whole."""
    return _table(metric for metric in served_metrics() if "cluster" not in metric.labels)


def cluster_metrics_table(of_pulsar: bool) -> str:
    """Return the metrics of clusters: those with names of Pulsar's, or this project's own."""
    return _table(
        metric
        for metric in served_metrics()
        if "cluster" in metric.labels
        and not metric.is_of_brokers
        and metric.name.startswith("pulsar_") == of_pulsar
    )


def broker_metrics_table() -> str:
    """Return the metrics of single brokers."""
    return _table(metric for metric in served_metrics() if metric.is_of_brokers)


def alerts_table() -> str:
    """Return the alerts of conf/prometheus-alerts.yml: condition, meaning, and runbook."""
    groups: list[dict[str, Any]] = yaml.safe_load(ALERTS.read_text())["groups"]
    lines = ["| alert | severity | condition | what it means | runbook |", "|---|---|---|---|---|"]
    for rule in (rule for group in groups for rule in group["rules"]):
        condition = " ".join(rule["expr"].split()).replace("|", "\\|")
        lasts = f" for {rule['for']}" if "for" in rule else ""
        about = " ".join(rule["annotations"]["description"].split())
        cells = (
            f"`{rule['alert']}`",
            rule["labels"]["severity"],
            f"`{condition}`{lasts}",
            about,
            _runbook_link(rule["annotations"]["runbook_url"]),
        )
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _runbook_link(address: str) -> str:
    """Return a link from a page of docs to a heading; its anchor gives the words."""
    page, _, anchor = address.partition("#")
    return f"[{anchor.replace('-', ' ')}]({page.removeprefix('docs/')}#{anchor})"
