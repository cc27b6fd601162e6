"""What people should be told of: the grave findings of `lbctl status`, and what only the tables
know of moves and loads.

A new event: its name in `contracts.settings.Event`, its headline in `notify.words`, and a function
here that `_of_tables` asks.
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

REFUSED_LATELY_MS = 300_000
"""A budget without a time at which it has room again is exhausted for as long after its last
refusal."""
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
    SELECT cluster, namespace, max("limit")::BIGINT AS most, max(until_ms) AS until_ms
    FROM refusals
    WHERE rule = '{Refuses.MOVES_PER_HOUR}' AND namespace IS NOT NULL AND now_ms > $1 - 3600000
    GROUP BY cluster, namespace
    HAVING coalesce(max(until_ms), 0) > $1 OR max(now_ms) > $1 - {REFUSED_LATELY_MS}
    ORDER BY cluster, namespace
"""


@dataclass(frozen=True, slots=True)
class HealthEvent:
    """Something that people should know.

    `subject`: a broker, bundle or namespace; empty: it is about the cluster, or the job.

    Event, cluster and subject say which one it is; what is said of it may change.
    """

    event: Event
    cluster: str
    subject: str
    description: str
    advice: str

    @property
    def key(self) -> tuple[str, str, str]:
        """Which one it is."""
        return self.event, self.cluster, self.subject


@dataclass(frozen=True, slots=True)
class HealthEvents:
    """All troubles at one moment.

    `stale`: the job gives no new figures, so what is said of clusters is as it was.

    `blind`: no more is known than these troubles, all else is as it was. `suspended`: clusters of
    which no more is known than that. `endings`: brokers that aren't silent any more because they
    count as gone.
    """

    now_ms: int
    troubles: tuple[HealthEvent, ...]
    stale: bool = False
    blind: bool = False
    suspended: frozenset[str] = frozenset()
    endings: Mapping[tuple[str, str, str], str] = field(default_factory=dict)


def read_health_events(tables: Store, settings: Settings, bootstrap: str) -> HealthEvents:
    """Everything, as `lbctl status` judges it: tables, the job's process, Kafka at `bootstrap`, the
    disk. Raises QueryError, OSError."""
    kafka = settings.kafka.model_copy(update={"bootstrap_servers": bootstrap})
    asked = settings.model_copy(update={"kafka": kafka})
    try:
        lake = open_lake(tables)
    except NoTables:
        return find_health_events(
            None, _with_kafka(gather_table_facts(None, tables, settings), asked), settings.notify
        )
    with lake:
        return find_health_events(
            lake, _with_kafka(gather_table_facts(lake, tables, settings), asked), settings.notify
        )


def _with_kafka(facts: Facts, settings: Settings) -> Facts:
    try:
        return add_kafka_facts(facts, settings)
    except AccessRefusal as refusal:  # a right or a login is missing
        return replace(facts, kafka=str(refusal))


def find_health_events(lake: Lake | None, facts: Facts, limits: NotifySettings) -> HealthEvents:
    """What is wrong by these facts and open tables (None: there are none). Raises QueryError."""
    found = [
        trouble for finding in judge(facts).findings for trouble in _events_of_finding(finding)
    ]
    if lake is not None:
        found += _events_of_tables(lake, facts, limits)
    gone = {
        ("broker_dead", cluster.cluster, broker): "silent for an hour, counted as gone"
        for cluster in facts.clusters
        for broker in cluster.gone
    }
    suspended = frozenset(cluster.cluster for cluster in facts.clusters if cluster.suspended)
    return HealthEvents(
        facts.now_ms,
        tuple(found),
        explain_staleness(facts) is not None,
        suspended=suspended,
        endings=gone,
    )


def _events_of_finding(finding: Finding) -> Iterator[HealthEvent]:
    if finding.event is None:
        return
    if not finding.subjects:
        yield HealthEvent(
            finding.event, finding.cluster or "", "", finding.description, finding.advice
        )
    for broker in finding.subjects:
        yield HealthEvent(
            finding.event,
            finding.cluster or "",
            broker,
            f"{finding.cluster}: {broker} is silent",
            finding.advice,
        )


def _events_of_tables(lake: Lake, facts: Facts, limits: NotifySettings) -> Iterator[HealthEvent]:
    yield from _imbalance_events(lake, facts, limits)
    yield from map(
        _failing_event,
        records(
            run(lake, _FAILING, [facts.now_ms - limits.failed_moves_window_ms, limits.failed_moves])
        ),
    )
    yield from map(_budget_event, records(run(lake, _BUDGETS, [facts.now_ms])))
    yield from map(_approval_event, load_waiting_proposals(lake))


def _imbalance_events(lake: Lake, facts: Facts, limits: NotifySettings) -> Iterator[HealthEvent]:
    """Only active brokers count: a drained one is idle on purpose. Forgotten clusters don't."""
    drained = {cluster.cluster: cluster.drained for cluster in facts.clusters}
    usages = defaultdict[str, list[float]](list)
    for row in records(run(lake, _USAGES)):
        if row["broker"] not in drained.get(row["cluster"], (row["broker"],)):
            usages[row["cluster"]].append(100 * row["usage_ratio"])
    for cluster, found in sorted(usages.items()):
        highest, mean = max(found), sum(found) / len(found)
        if highest - mean > limits.imbalance_points:
            text = (
                f"{cluster}: its hottest broker is at {highest:.0f} %, {highest - mean:.0f} "
                f"points above the mean of {mean:.0f} %"
            )
            yield HealthEvent(
                "imbalance",
                cluster,
                "",
                text,
                f"lbctl brokers --cluster {cluster}, then lbctl explain --why-not BROKER",
            )


def _failing_event(row: Row) -> HealthEvent:
    cluster, bundle = row["cluster"], row["bundle"]
    text = f"{cluster}: the last {row['times']} decisions to move {bundle} failed"
    advice = f"lbctl explain --bundle {bundle} --cluster {cluster}"
    return HealthEvent(
        "moves_failing",
        cluster,
        bundle,
        f"{text} ({row['detail']})" if row["detail"] else text,
        advice,
    )


def _approval_event(row: Row) -> HealthEvent:
    cluster, name = row["cluster"], row["proposal_id"]
    what = (
        f"split {row['bundle']}"
        if row["kind"] == "split"
        else f"move {row['bundle']} from {row['source']} to {row['destination']}"
    )
    text = f"{cluster}: {what} ({row['explanation']}), until {clock(row['expires_ms'])}"
    return HealthEvent(
        "approval_wanted",
        cluster,
        name,
        text,
        f"lbctl approve {name}, or lbctl reject {name} --why TEXT",
    )


def _budget_event(row: Row) -> HealthEvent:
    cluster, namespace = row["cluster"], row["namespace"]
    text = (
        f"{cluster}: {namespace} has had its {row['most'] or 0} moves of this hour, and more "
        "are wanted"
    )
    return HealthEvent(
        "budget_exhausted",
        cluster,
        namespace,
        text,
        f"see why it moves so often, or change its moves_per_hour in {cluster}",
    )
