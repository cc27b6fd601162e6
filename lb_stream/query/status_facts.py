"""The facts that `query.health` judges, from what is there without the job: tables, its process,
its ticks in Kafka, the disk."""

from __future__ import annotations

import json
import logging
import shutil
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import closing, suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from lb_stream.contracts.decisions import MOVES
from lb_stream.core.config.windows import closed
from lb_stream.core.model.memory import Pending, bound_for
from lb_stream.core.model.names import is_system_bundle
from lb_stream.core.model.operator_state import isolation_policy
from lb_stream.core.model.policies import count_matches, describe_no_match
from lb_stream.io.leadership.leader import Leader
from lb_stream.io.messages.times import clock
from lb_stream.query import QueryError
from lb_stream.query.cluster_state import ClusterState, read_cluster_states
from lb_stream.query.health import (
    LAG_LIMIT,
    SUSPENDING,
    ClusterFacts,
    DemoEnd,
    Facts,
    JobFacts,
    StandbyFacts,
    explain_staleness,
)
from lb_stream.query.lake import Row, open_lake, records, run
from lb_stream.query.wording import explain_closed

if TYPE_CHECKING:
    from lb_stream.contracts.settings import Settings
    from lb_stream.io.leadership.liveness import Ticks
    from lb_stream.query.lake import Lake
    from lb_stream.store import Store

DEMO_END_FILE = "ended.json"
"""Beside a demo's tables, once it has ended: when (ms since the epoch), and how."""
LATELY_MS = 3_600_000
"""A dead broker counts as missing if it was heard less than this before the last round; otherwise
it is gone."""

_LEADER = (
    "SELECT pipeline, epoch, host, pid, since_ms FROM leaders ORDER BY epoch DESC, since_ms "
    "DESC LIMIT 1"
)
_BATCH = (
    "SELECT max(started_ms) AS started_ms, arg_max(lag_records, started_ms) AS lag_records "
    "FROM batches"
)
_OWNED = "SELECT cluster, owner, bundle FROM bundle_averages WHERE list_contains($1, owner)"


def build_latest_loads_query(*columns: str, where: str = "true") -> str:
    """The query for the newest row of each broker in broker_loads: cluster, broker, and these
    columns.

    It holds a row for each broker and not the table's, which are as many as rounds times brokers: a
    window function would sort them all.
    """
    text = ", ".join(f"'{name}': {name}" for name in columns)
    newest = f"unnest(arg_max({{{text}}}, {{'log_seq': log_seq, 'seq': seq}}))"
    return (
        f"SELECT cluster, broker, {newest} FROM broker_loads WHERE {where} GROUP BY cluster, broker"
    )


def gather_facts(tables: Store, settings: Settings, bootstrap: str) -> Facts:
    """Everything: also whether a job on another machine runs, and whether Kafka answers at
    `bootstrap`."""
    facts = gather_table_facts(None, tables, settings)
    with suppress(QueryError), open_lake(tables) as lake:  # no table is there yet
        facts = gather_table_facts(lake, tables, settings)
    kafka = settings.kafka.model_copy(update={"bootstrap_servers": bootstrap})
    return add_kafka_facts(facts, settings.model_copy(update={"kafka": kafka}))


def gather_table_facts(lake: Lake | None, tables: Store, settings: Settings) -> Facts:
    """What open tables (None: there are none yet), the job's process and the disk say."""
    if lake is None:
        return _facts(tables, settings, JobFacts(settings.stream.pipeline_id))
    return _facts(tables, settings, _job(lake, settings), load_cluster_facts(lake))


def gather_job_facts(lake: Lake, tables: Store, settings: Settings) -> Facts:
    """What open tables, the job's process and the disk say of the job; nothing of clusters."""
    return _facts(tables, settings, _job(lake, settings))


def _facts(
    tables: Store, settings: Settings, job: JobFacts, clusters: tuple[ClusterFacts, ...] = ()
) -> Facts:
    facts = Facts(
        _now_ms(), job, clusters, lag_limit=settings.stream.max_offsets_per_trigger or LAG_LIMIT
    )
    folders = () if (local := tables.local) is None else (local, *local.parents)
    if (place := next((folder for folder in folders if folder.exists()), None)) is not None:
        usage = shutil.disk_usage(place)
        facts = replace(facts, disk_free=usage.free, disk_size=usage.total)
    facts = replace(facts, demo_end=find_demo_end(tables, job))
    from lb_stream.io.kafka.poison_file import RecoveryState
    from lb_stream.store import checkpoint_of

    with suppress(OSError, ValueError):  # the checkpoint may be out of reach from here
        kept = RecoveryState.read(checkpoint_of(settings.stream))
        facts = replace(
            facts, skipped_records=kept.places, searches_poison_record=kept.max_records > 0
        )
    return facts


def find_demo_end(tables: Store, job: JobFacts) -> DemoEnd | None:
    """How the demo that wrote these tables ended; None: they are no demo's, or it goes on."""
    if job.running or tables.local is None:
        return None
    try:
        told = json.loads((tables.local.parent / DEMO_END_FILE).read_text())
        ended_ms, how = int(told["at_ms"]), str(told["how"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
    if (job.since_ms or 0) > ended_ms:
        return None  # another job has written since
    return DemoEnd(clock(ended_ms), how)


def describe_staleness(lake: Lake, settings: Settings, tables: Store) -> str | None:
    """The warning to show when the tables don't show how things are now."""
    (newest,) = records(run(lake, "SELECT max(now_ms) AS now_ms FROM rounds"))
    clusters = (ClusterFacts("", newest["now_ms"]),) if newest["now_ms"] else ()
    job = _job(lake, settings)
    end = find_demo_end(tables, job)
    text = explain_staleness(Facts(_now_ms(), job, clusters, demo_end=end))
    return text if text is None or end is not None else f"NOT UP TO DATE: {text}"


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _job(lake: Lake, settings: Settings) -> JobFacts:
    """What the tables and this machine say of it."""
    ticks, rows = settings.stream.tick_interval_ms > 0, records(run(lake, _LEADER))
    if not rows:
        return JobFacts(settings.stream.pipeline_id, ticks=ticks)
    leader = Leader(**rows[0])
    (batch,) = records(run(lake, _BATCH))
    running, seen = _process(leader)
    return JobFacts(
        leader.pipeline,
        leader.epoch,
        leader.host,
        leader.pid,
        leader.since_ms,
        running,
        seen,
        batch["started_ms"],
        batch["lag_records"],
        ticks,
    )


def _process(leader: Leader) -> tuple[bool | None, str]:
    if not leader.is_here:
        return None, f"it was started on {leader.host}"
    if leader.runs_here:
        return True, f"process {leader.pid} on this machine"
    return False, f"its process {leader.pid} on this machine has ended"


def add_kafka_facts(facts: Facts, settings: Settings) -> Facts:
    """The facts with whether Kafka answers, and when the clock of a job on another machine ticked
    last.

    Raises Refusal when Kafka doesn't tell us.
    """
    from lb_stream.io.kafka.reachable import describe_unreachable

    bootstrap = settings.kafka.bootstrap_servers
    if (reasons := describe_unreachable(bootstrap)) is not None:
        return replace(facts, kafka=reasons)
    from kafka.errors import KafkaError

    from lb_stream.access.refusals import REFUSED, find_refusal
    from lb_stream.access.roles import Right
    from lb_stream.io.kafka.preflight import require_rights
    from lb_stream.io.leadership.liveness import Ticks
    from lb_stream.io.leadership.topic import silence_ms

    logging.getLogger("kafka").setLevel(logging.CRITICAL)  # its troubles come as exceptions too
    try:
        with closing(Ticks(settings)) as ticks:
            job, last = facts.job, ticks.last()
            facts = replace(facts, standbys=_standbys(ticks))
            if job.epoch is None or job.running is not None or not job.ticks:
                return facts
            require_rights(
                bootstrap,
                settings.kafka.options,
                [Right("Read", "topic", settings.topics.commands)],
            )
            if last is None or _now_ms() - last.append_ms > silence_ms(settings):
                last = ticks.next(silence_ms(settings)) or last  # clocks of two machines differ
    except REFUSED as error:
        raise find_refusal(bootstrap, settings.kafka.options, error) or error from error
    except KafkaError as error:
        return replace(facts, kafka=f"Kafka at {bootstrap}: {type(error).__name__}: {error}")
    if last is None:
        return replace(
            facts, job=replace(job, running=False, evidence=f"its clock on {job.host} doesn't tick")
        )
    age_s = max(0, _now_ms() - last.append_ms) / 1000
    alive = age_s * 1000 <= silence_ms(settings) and last.record.epoch == job.epoch
    return replace(
        facts,
        job=replace(
            job, running=alive, evidence=f"its clock on {job.host} ticked {age_s:.0f} s ago"
        ),
    )


def find_standbys(settings: Settings, bootstrap: str) -> tuple[StandbyFacts, ...] | None:
    """The jobs that stand by, as the Kafka at `bootstrap` has it; None: nobody answers there."""
    from lb_stream.io.kafka.reachable import describe_unreachable

    if describe_unreachable(bootstrap) is not None:
        return None
    from kafka.errors import KafkaError

    from lb_stream.io.leadership.liveness import Ticks

    logging.getLogger("kafka").setLevel(logging.CRITICAL)  # its troubles come as exceptions too
    kafka = settings.kafka.model_copy(update={"bootstrap_servers": bootstrap})
    with (
        suppress(KafkaError),
        closing(Ticks(settings.model_copy(update={"kafka": kafka}))) as ticks,
    ):
        ticks.last()
        return _standbys(ticks)
    return None


def _standbys(ticks: Ticks) -> tuple[StandbyFacts, ...]:
    return tuple(
        StandbyFacts(name, sign.warm) for name, sign in ticks.standby_tracker.active.items()
    )


def load_cluster_facts(lake: Lake) -> tuple[ClusterFacts, ...]:
    """Every cluster as its last logged round left it."""
    seen, all_ = (
        records(run(lake, build_latest_loads_query("alive", "seen_ms", "bundles"))),
        read_cluster_states(lake),
    )
    drained = [broker for state in all_ for broker in state.operator_state.drained]
    owned = records(run(lake, _OWNED, [drained])) if drained else []
    owners = {
        (row["cluster"], row["owner"]) for row in owned if not is_system_bundle(row["bundle"])
    }
    return tuple(
        _cluster(state, [row for row in seen if row["cluster"] == state.cluster], owners)
        for state in all_
    )


def _cluster(state: ClusterState, brokers: list[Row], owners: set[tuple[str, str]]) -> ClusterFacts:
    """The facts of one cluster. `owners`: cluster and broker of those that have bundles."""
    memory, limits = state.memory, state.limits
    suspensions = _suspensions(state)
    known = {row["broker"] for row in brokers}
    silent, gone = _silent_and_gone(state, brokers, suspensions)
    unmatched, isolated = _unmatched_policies(state, sorted(known - silent - gone))
    shut = closed(limits, state.now_ms)
    return ClusterFacts(
        cluster=state.cluster,
        last_round_ms=state.now_ms,
        seq=state.seq,
        error=state.error,
        retry_ms=memory.retry_ms,
        suspended_by=suspensions[0][0] if suspensions else None,
        paused=state.operator_state.paused,
        held="" if shut is None else explain_closed(shut),
        mode=limits.mode,
        proposals=len(memory.proposals),
        drained=state.operator_state.drained,
        draining=tuple(
            name
            for name in state.operator_state.drained
            if (state.cluster, name) in owners or bound_for(name, memory.pending)
        ),
        limited=_limited(memory.pending, limits.max_moves_in_flight_per_broker),
        brokers=len(brokers),
        silent=tuple(sorted(silent)),
        gone=tuple(sorted(gone)),
        unmatched=unmatched,
        isolated=isolated,
        bundles=sum(row["bundles"] or 0 for row in brokers),
        pending=len(memory.pending),
    )


def _suspensions(state: ClusterState) -> list[tuple[str, Sequence[str]]]:
    """Rules that suspend the cluster now, each with its brokers; not every round repeats them."""
    found = [
        (refusal["rule"], refusal["subjects"])
        for refusal in state.refusals
        if refusal["rule"] in SUSPENDING
    ]
    held = state.memory.suspension
    return found if held is None else [*found, (held.rule, held.brokers)]


def _silent_and_gone(
    state: ClusterState,
    brokers: list[Row],
    suspensions: Iterable[tuple[str, Sequence[str]]],
) -> tuple[set[str], set[str]]:
    """Brokers that are missing, and brokers that count as gone.

    A dead broker is missing for `LATELY_MS` after it was heard; where none is left, all are missing.
    """
    seen_ms = {row["broker"]: row["seen_ms"] or 0 for row in brokers}
    vanished = {name for _, names in suspensions for name in names}
    dead = set(state.memory.dead) | {row["broker"] for row in brokers if not row["alive"]}
    if not set(seen_ms) - dead - vanished:
        return set(seen_ms), dead - set(seen_ms)
    lately = {name for name in dead if state.now_ms - seen_ms.get(name, state.now_ms) < LATELY_MS}
    silent = vanished | lately
    return silent, dead - silent


def _unmatched_policies(
    state: ClusterState, live: Sequence[str]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Expressions of isolation policies that match no live broker, and policies that match none.

    Nothing where no broker lives: that is the finding then.
    """
    isolation = state.operator_state.isolation if live else {}
    policies = {name: isolation_policy(given) for name, given in isolation.items()}
    isolated = tuple(name for name, policy in policies.items() if describe_no_match(policy, live))
    unmatched = tuple(
        text
        for name, policy in policies.items()
        for text, count in count_matches(name, policy, live)
        if not count and name not in isolated
    )
    return unmatched, isolated


def _limited(pending: Iterable[Pending], most: int) -> tuple[str, ...]:
    """Brokers out of which as many moves are pending as allowed."""
    counts = Counter(move.source for move in pending if move.kind in MOVES and move.source)
    return tuple(sorted(name for name, count in counts.items() if count >= most))
