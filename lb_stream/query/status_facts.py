"""Gather the facts that `query.health` judges: from tables, the job's process, Kafka, the disk."""

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
from lb_stream.core.model.memory import Memory, Pending, bound_for
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
from lb_stream.query.profiles import build_profile_facts
from lb_stream.query.rollouts import build_rollout_facts
from lb_stream.query.wording import explain_closed
from lb_stream.settings.signing import list_unsigned

if TYPE_CHECKING:
    from lb_stream.contracts.settings import Settings
    from lb_stream.io.leadership.liveness import Ticks
    from lb_stream.query.lake import Lake
from lb_stream.store import Store

DEMO_END_FILE = "ended.json"
"""File beside a demo's tables once it has ended: when (ms since the epoch), and how."""
LATELY_MS = 3_600_000
"""A dead broker is missing if it was heard less than this before the last round, else gone."""

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
    """Return the query for cluster, broker and these columns of each broker's newest load.

    An aggregate holds one row for each broker; a window function would sort the whole table.
    """
    struct = ", ".join(f"'{name}': {name}" for name in columns)
    newest = f"unnest(arg_max({{{struct}}}, {{'log_seq': log_seq, 'seq': seq}}))"
    return (
        f"SELECT cluster, broker, {newest} FROM broker_loads WHERE {where} GROUP BY cluster, broker"
    )


def gather_facts(tables: Store, settings: Settings, bootstrap: str) -> Facts:
    """Return all facts, with those that only Kafka at `bootstrap` can give."""
    facts = gather_table_facts(None, tables, settings)
    with suppress(QueryError), open_lake(tables) as lake:  # there may be no table yet
        facts = gather_table_facts(lake, tables, settings)
    kafka = settings.kafka.model_copy(update={"bootstrap_servers": bootstrap})
    return add_kafka_facts(facts, settings.model_copy(update={"kafka": kafka}))


def gather_table_facts(lake: Lake | None, tables: Store, settings: Settings) -> Facts:
    """Return the facts from tables, the job's process and the disk. `lake` None: no tables yet."""
    if lake is None:
        return _add_machine_facts(tables, settings, JobFacts(settings.stream.pipeline_id))
    job = _load_job_facts(lake, settings)
    return _add_machine_facts(tables, settings, job, load_cluster_facts(lake))


def gather_job_facts(lake: Lake, tables: Store, settings: Settings) -> Facts:
    """Return the same facts without those of clusters."""
    return _add_machine_facts(tables, settings, _load_job_facts(lake, settings))


def _add_machine_facts(
    tables: Store, settings: Settings, job: JobFacts, clusters: tuple[ClusterFacts, ...] = ()
) -> Facts:
    """Return the facts of job and clusters with those of disk, demo and skipped records."""
    lag_limit = settings.stream.max_offsets_per_trigger or LAG_LIMIT
    facts = Facts(_now_ms(), job, clusters, lag_limit=lag_limit)
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
    """Return how the demo that wrote these tables ended; None: no demo did, or it goes on."""
    if job.running or tables.local is None:
        return None
    try:
        end = json.loads((tables.local.parent / DEMO_END_FILE).read_text())
        ended_ms, how = int(end["at_ms"]), str(end["how"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
    if (job.since_ms or 0) > ended_ms:
        return None  # another job has written since
    return DemoEnd(clock(ended_ms), how)


def describe_staleness(lake: Lake, settings: Settings, tables: Store) -> str | None:
    """Return the warning about tables that aren't up to date; None: they are."""
    (newest,) = records(run(lake, "SELECT max(now_ms) AS now_ms FROM rounds"))
    clusters = (ClusterFacts("", newest["now_ms"]),) if newest["now_ms"] else ()
    job = _load_job_facts(lake, settings)
    end = find_demo_end(tables, job)
    text = explain_staleness(Facts(_now_ms(), job, clusters, demo_end=end))
    return text if text is None or end is not None else f"NOT UP TO DATE: {text}"


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _load_job_facts(lake: Lake, settings: Settings) -> JobFacts:
    """Return the facts of the job from tables and the processes of this machine."""
    ticks, rows = settings.stream.tick_interval_ms > 0, records(run(lake, _LEADER))
    if not rows:
        return JobFacts(settings.stream.pipeline_id, ticks=ticks)
    leader = Leader(**rows[0])
    (batch,) = records(run(lake, _BATCH))
    running, evidence = _find_process(leader)
    return JobFacts(
        leader.pipeline,
        leader.epoch,
        leader.host,
        leader.pid,
        leader.since_ms,
        running,
        evidence,
        batch["started_ms"],
        batch["lag_records"],
        ticks,
    )


def _find_process(leader: Leader) -> tuple[bool | None, str]:
    """Return whether the leader's process runs (None: not known here), and the evidence for it."""
    if not leader.is_here:
        return None, f"it was started on {leader.host}"
    if leader.runs_here:
        return True, f"process {leader.pid} on this machine"
    return False, f"its process {leader.pid} on this machine has ended"


def add_kafka_facts(facts: Facts, settings: Settings) -> Facts:
    """Return the facts with those that Kafka has: whether it answers, standbys, the job's ticks.

    Ticks show whether a job on another machine runs. Raises AccessRefusal where a right is missing.
    """
    from lb_stream.io.kafka.reachable import describe_unreachable

    bootstrap = settings.kafka.bootstrap_servers
    facts = replace(facts, unsigned=tuple(list_unsigned(settings)))
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
            facts, job=replace(job, running=False, evidence=f"it sends no ticks from {job.host}")
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
    """Return the standbys that Kafka at `bootstrap` knows; None where it doesn't answer."""
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
    """Return the facts of every cluster after its last logged round."""
    loads = records(run(lake, build_latest_loads_query("alive", "seen_ms", "bundles")))
    states = read_cluster_states(lake)
    drained = [broker for state in states for broker in state.operator_state.drained]
    owned = records(run(lake, _OWNED, [drained])) if drained else []
    owners = {
        (row["cluster"], row["owner"]) for row in owned if not is_system_bundle(row["bundle"])
    }
    return tuple(
        _build_cluster_facts(
            state, [row for row in loads if row["cluster"] == state.cluster], owners
        )
        for state in states
    )


def _build_cluster_facts(
    state: ClusterState, brokers: list[Row], owners: set[tuple[str, str]]
) -> ClusterFacts:
    """Return the facts of one cluster. `owners`: cluster and broker of those that have bundles."""
    memory, limits = state.memory, state.limits
    suspensions = _list_suspensions(state)
    known = {row["broker"] for row in brokers}
    silent, gone = _split_missing(state, brokers, suspensions)
    rollout = build_rollout_facts(memory)
    restarting = _find_restarting(memory, silent) if rollout and rollout.still_ms is None else set()
    silent -= restarting
    alive = known - silent - gone - restarting
    unmatched, isolated = _find_unmatched_policies(state, sorted(alive))
    unlike, doubtful = _describe_learned(state, alive)
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
        restarting=tuple(sorted(restarting)),
        limited=_find_limited(memory.pending, limits.max_moves_in_flight_per_broker),
        unlike=unlike,
        brokers=len(brokers),
        silent=tuple(sorted(silent)),
        gone=tuple(sorted(gone)),
        unmatched=unmatched,
        isolated=isolated,
        doubtful=doubtful,
        bundles=sum(row["bundles"] or 0 for row in brokers),
        pending=len(memory.pending),
        profile=build_profile_facts(state),
        rollout=rollout,
    )


def _find_restarting(memory: Memory, missing: set[str]) -> set[str]:
    """Return the missing brokers that are away for the rollout."""
    progress = memory.rollout
    return missing & set(progress.in_phases("down")) if progress is not None else set()


def _describe_learned(
    state: ClusterState, brokers: set[str]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Describe what LeastMoves has learned: slow or busy brokers of these, and doubtful limits."""
    learned = state.memory.strategies.get("LeastMoves")
    if not learned:
        return (), ()
    # Imported here, as other strategies' status needs none of it.
    from lb_stream.core.least_moves.explanations import describe_unlike_brokers
    from lb_stream.core.least_moves.memory import LeastMovesMemory
    from lb_stream.query.doubtful_limits import describe_doubtful_limits

    memory = LeastMovesMemory.read(learned)
    unlike = describe_unlike_brokers(memory, sorted(brokers & set(memory.hosts)))
    return tuple(unlike), tuple(describe_doubtful_limits(memory))


def _list_suspensions(state: ClusterState) -> list[tuple[str, Sequence[str]]]:
    """Return the rules that suspend the cluster now, each with its brokers.

    A round's refusals don't repeat a suspension that the memory holds.
    """
    found = [
        (refusal["rule"], refusal["subjects"])
        for refusal in state.refusals
        if refusal["rule"] in SUSPENDING
    ]
    held = state.memory.suspension
    return found if held is None else [*found, (held.rule, held.brokers)]


def _split_missing(
    state: ClusterState,
    brokers: list[Row],
    suspensions: Iterable[tuple[str, Sequence[str]]],
) -> tuple[set[str], set[str]]:
    """Return the brokers that are missing and those that are gone.

    A dead broker is missing for `LATELY_MS` after it was heard. Where no other is left, all are.
    """
    seen_ms = {row["broker"]: row["seen_ms"] or 0 for row in brokers}
    vanished = {name for _, names in suspensions for name in names}
    dead = set(state.memory.dead) | {row["broker"] for row in brokers if not row["alive"]}
    if not set(seen_ms) - dead - vanished:
        return set(seen_ms), dead - set(seen_ms)
    lately = {name for name in dead if state.now_ms - seen_ms.get(name, state.now_ms) < LATELY_MS}
    silent = vanished | lately
    return silent, dead - silent


def _find_unmatched_policies(
    state: ClusterState, live: Sequence[str]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the expressions of isolation policies that match no live broker, and such policies.

    Both are empty where no broker is alive: the silence is a finding of its own.
    """
    isolation = state.operator_state.isolation if live else {}
    policies = {name: isolation_policy(given) for name, given in isolation.items()}
    by_port = not policies or state.config.balancer.isolation_by_port
    isolated = tuple(
        name for name, policy in policies.items() if describe_no_match(policy, live, by_port)
    )
    unmatched = tuple(
        text
        for name, policy in policies.items()
        for text, count in count_matches(name, policy, live, by_port)
        if not count and name not in isolated
    )
    return unmatched, isolated


def _find_limited(pending: Iterable[Pending], max_moves: int) -> tuple[str, ...]:
    """Return the brokers out of which as many moves are pending as are allowed."""
    counts = Counter(move.source for move in pending if move.kind in MOVES and move.source)
    return tuple(sorted(name for name, count in counts.items() if count >= max_moves))
