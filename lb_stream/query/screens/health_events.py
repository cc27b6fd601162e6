"""Find the events that people are notified of, now.

Events are the grave findings of `lbctl status`, and what the tables show of moves and loads. A new
event has its name in `contracts.settings.Event`, its headline in `query.wording`, and a function
here that `_find_table_events` calls.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from lb_stream.access.refusals import AccessRefusal
from lb_stream.contracts.decisions import MOVES
from lb_stream.contracts.settings import Event, NotifySettings
from lb_stream.core.model.rules import Refuses
from lb_stream.io.messages.times import clock
from lb_stream.query import NoTables
from lb_stream.query.health import Facts, Finding, explain_staleness, judge
from lb_stream.query.lake import LAST_LOADS, Row, open_lake, records, run
from lb_stream.query.present.proposals import load_waiting_proposals
from lb_stream.query.status_facts import add_kafka_facts, gather_table_facts

if TYPE_CHECKING:
    from lb_stream.contracts.settings import Settings
    from lb_stream.query.lake import Lake
    from lb_stream.store import Store

EXHAUSTED_FOR_MS = 300_000
"""A budget for which no time is known at which it has room counts as exhausted for this long after
its last refusal."""
FAILED = ("refused", "expired", "failed")
_BUNDLE_KINDS = (*MOVES, "assign")

_USAGES = f"""
    SELECT cluster, broker, usage_ratio
    FROM {LAST_LOADS}
    WHERE active AND usage_ratio IS NOT NULL
"""
_FAILING = f"""
    SELECT cluster, bundle, count(*) AS times, arg_max(detail, at_ms) AS detail
    FROM (
        SELECT outcomes.*, max(at_ms) FILTER (WHERE outcome NOT IN {FAILED})
                               OVER (PARTITION BY cluster, bundle) AS well_ms
        FROM outcomes
        SEMI JOIN (SELECT decision_id FROM decisions WHERE kind IN {_BUNDLE_KINDS})
        USING (decision_id)
        WHERE at_ms > $1
    )
    WHERE outcome IN {FAILED} AND at_ms > coalesce(well_ms, 0)
    GROUP BY cluster, bundle HAVING times >= $2 ORDER BY cluster, bundle
"""
_BUDGETS = f"""
    SELECT cluster, namespace, max("limit")::BIGINT AS budget, max(until_ms) AS until_ms
    FROM refusals
    WHERE rule = '{Refuses.MOVES_PER_HOUR}' AND namespace IS NOT NULL AND now_ms > $1 - 3600000
    GROUP BY cluster, namespace
    HAVING coalesce(max(until_ms), 0) > $1 OR max(now_ms) > $1 - {EXHAUSTED_FOR_MS}
    ORDER BY cluster, namespace
"""


@dataclass(frozen=True, slots=True)
class HealthEvent:
    """A finding that people are notified of.

    `subject`: a broker, bundle or namespace; empty: the event is about the cluster, or the job.
    Name, cluster and subject identify the event; its texts may change.
    """

    name: Event
    cluster: str
    subject: str
    description: str
    advice: str

    @property
    def key(self) -> tuple[str, str, str]:
        """Return what identifies the event."""
        return self.name, self.cluster, self.subject


@dataclass(frozen=True, slots=True)
class HealthEvents:
    """All events at one moment, and what is not known then.

    - `is_stale`: the job gives no new figures, so nothing new is known of clusters.
    - `is_unreadable`: the tables can't be read, so nothing but these events is known.
    - `suspended`: clusters of which nothing but their suspension is known.
    - `endings`: key → how an event ended, of brokers that are no longer silent but gone.
    """

    now_ms: int
    events: tuple[HealthEvent, ...]
    is_stale: bool = False
    is_unreadable: bool = False
    suspended: frozenset[str] = frozenset()
    endings: Mapping[tuple[str, str, str], str] = field(default_factory=dict)


def read_health_events(tables: Store, settings: Settings, bootstrap: str) -> HealthEvents:
    """Return the current events, from tables, the job's process, Kafka at `bootstrap` and the disk.

    Raises QueryError, OSError.
    """
    kafka = settings.kafka.model_copy(update={"bootstrap_servers": bootstrap})
    with_bootstrap = settings.model_copy(update={"kafka": kafka})
    try:
        lake = open_lake(tables)
    except NoTables:
        facts = _add_kafka_facts(gather_table_facts(None, tables, settings), with_bootstrap)
        return find_health_events(None, facts, settings.notify)
    with lake:
        facts = _add_kafka_facts(gather_table_facts(lake, tables, settings), with_bootstrap)
        return find_health_events(lake, facts, settings.notify)


def _add_kafka_facts(facts: Facts, settings: Settings) -> Facts:
    """Return the facts with those of Kafka; a missing right counts as Kafka's failure."""
    try:
        return add_kafka_facts(facts, settings)
    except AccessRefusal as refusal:
        return replace(facts, kafka=str(refusal))


def find_health_events(lake: Lake | None, facts: Facts, limits: NotifySettings) -> HealthEvents:
    """Return the events of these facts and open tables (None: no tables). Raises QueryError."""
    events = [event for finding in judge(facts).findings for event in _list_finding_events(finding)]
    if lake is not None:
        events += _find_table_events(lake, facts, limits)
    endings = {
        ("broker_dead", cluster.cluster, broker): "silent for an hour: it counts as gone"
        for cluster in facts.clusters
        for broker in cluster.gone
    }
    suspended = frozenset(cluster.cluster for cluster in facts.clusters if cluster.suspended)
    return HealthEvents(
        facts.now_ms,
        tuple(events),
        explain_staleness(facts) is not None,
        suspended=suspended,
        endings=endings,
    )


def _list_finding_events(finding: Finding) -> Iterator[HealthEvent]:
    """Yield the events of a finding: one, or one for each of its brokers."""
    if finding.event is None:
        return
    cluster = finding.cluster or ""
    if not finding.subjects:
        yield HealthEvent(finding.event, cluster, "", finding.description, finding.advice)
    for broker in finding.subjects:
        text = f"{finding.cluster}: {broker} is silent"
        yield HealthEvent(finding.event, cluster, broker, text, finding.advice)


def _find_table_events(lake: Lake, facts: Facts, limits: NotifySettings) -> Iterator[HealthEvent]:
    """Yield the events that only the tables show."""
    yield from _find_imbalances(lake, facts, limits)
    since_ms = facts.now_ms - limits.failed_moves_window_ms
    failing = records(run(lake, _FAILING, [since_ms, limits.failed_moves]))
    yield from map(_build_failing_event, failing)
    exhausted = records(run(lake, _BUDGETS, [facts.now_ms]))
    yield from map(_build_budget_event, exhausted)
    yield from map(_build_approval_event, load_waiting_proposals(lake))


def _find_imbalances(lake: Lake, facts: Facts, limits: NotifySettings) -> Iterator[HealthEvent]:
    """Yield the clusters whose hottest active broker is far above the mean, if not forgotten."""
    drained = {cluster.cluster: cluster.drained for cluster in facts.clusters}
    usages = defaultdict[str, list[float]](list)
    for row in records(run(lake, _USAGES)):
        if row["broker"] not in drained.get(row["cluster"], (row["broker"],)):
            usages[row["cluster"]].append(100 * row["usage_ratio"])
    for cluster, percents in sorted(usages.items()):
        max_usage, mean = max(percents), sum(percents) / len(percents)
        if max_usage - mean > limits.imbalance_points:
            text = (
                f"{cluster}: its hottest broker is at {max_usage:.0f} %, {max_usage - mean:.0f} "
                f"points above the mean of {mean:.0f} %"
            )
            advice = f"lbctl brokers --cluster {cluster}, then lbctl explain --why-not BROKER"
            yield HealthEvent("imbalance", cluster, "", text, advice)


def _build_failing_event(row: Row) -> HealthEvent:
    cluster, bundle = row["cluster"], row["bundle"]
    text = f"{cluster}: the last {row['times']} decisions to move {bundle} failed"
    if row["detail"]:
        text += f" ({row['detail']})"
    advice = f"lbctl explain --bundle {bundle} --cluster {cluster}"
    return HealthEvent("moves_failing", cluster, bundle, text, advice)


def _build_approval_event(row: Row) -> HealthEvent:
    cluster, proposal_id = row["cluster"], row["proposal_id"]
    action = f"move {row['bundle']} from {row['source']} to {row['destination']}"
    if row["kind"] == "split":
        action = f"split {row['bundle']}"
    text = f"{cluster}: {action} ({row['explanation']}), until {clock(row['expires_ms'])}"
    advice = f"lbctl approve {proposal_id}, or lbctl reject {proposal_id} --why TEXT"
    return HealthEvent("approval_wanted", cluster, proposal_id, text, advice)


def _build_budget_event(row: Row) -> HealthEvent:
    cluster, namespace = row["cluster"], row["namespace"]
    text = (
        f"{cluster}: {namespace} has had its {row['budget'] or 0} moves of this hour, and more "
        "are wanted"
    )
    advice = f"see why it moves so often, or change its moves_per_hour in {cluster}"
    return HealthEvent("budget_exhausted", cluster, namespace, text, advice)
