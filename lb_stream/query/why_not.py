"""Explain why a bundle isn't moved, or why a broker stays hot: all causes, in order of precedence.

Causes are a drain, operators, suspension, limits, policies and waits, then the strategy's own
numbers against their limit.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING

from lb_stream.contracts.decisions import MOVES, RESHAPES
from lb_stream.core.model.memory import Memory
from lb_stream.core.shedding.base import traits_of
from lb_stream.io.messages.times import clock
from lb_stream.query import QueryError, checks, pass_checks
from lb_stream.query.checks import Check, Situation
from lb_stream.query.explanations import (
    load_decisions_about,
    load_refusals_about,
    require_broker,
)
from lb_stream.query.health import ClusterFacts, Facts, explain_staleness
from lb_stream.query.lake import Row, build_last_loads_query, records, run
from lb_stream.query.wording import explain_rule

if TYPE_CHECKING:
    from lb_stream.query.lake import Lake

_BUNDLE = """
    WITH loads AS (
        SELECT cluster, bundle, owner, owner_since_ms,
               short_throughput_in_bytes_per_s + short_throughput_out_bytes_per_s
                   AS short_bytes_per_s
        FROM bundle_averages
    ), ranked AS (
        SELECT *,
               rank() OVER (PARTITION BY cluster, owner ORDER BY short_bytes_per_s DESC) - 1
                   AS heavier,
               count(*) OVER (PARTITION BY cluster, owner) AS bundles
        FROM loads
    )
    SELECT * FROM ranked WHERE bundle = $1 AND ($2 IS NULL OR cluster = $2) ORDER BY cluster
"""
_BUNDLES_OF_BROKER = (
    "SELECT bundle, owner_since_ms FROM bundle_averages WHERE cluster = $1 AND owner = $2"
)
_ROUND = """
    SELECT seq, now_ms, error, memory, inputs, refusals FROM rounds
    WHERE cluster = $1 AND memory <> '' ORDER BY log_seq DESC LIMIT 1
"""
_BATCH = "SELECT max(started_ms) AS started_ms FROM batches"
_LOADS = """
    SELECT broker, alive, active, usage_ratio, bundles, now_ms,
           rank() OVER (ORDER BY usage_ratio DESC) AS place, count(*) OVER () AS brokers,
           latest_throughput_in_bytes_per_s + latest_throughput_out_bytes_per_s AS bytes_per_s,
           latest_rate_in_msgs_per_s + latest_rate_out_msgs_per_s AS msgs_per_s
    FROM {rows} ORDER BY broker
"""
_DECISION = "SELECT rule, source, explain FROM decisions WHERE decision_id = $1"
_MOVES = f"""
    SELECT count(*) AS moves FROM decisions
    WHERE cluster = $1 AND issued_ms = $2 AND kind IN {MOVES}
        AND ($3 IS NULL OR bundle = $3) AND ($4 IS NULL OR source = $4)
"""
_REFUSED = """
    SELECT rule, broker, namespace, subjects, seq, now_ms, "count", "limit", least, greatest, unit,
           until_ms
    FROM refusals WHERE cluster = $1 AND now_ms >= $2 AND ({where})
"""
_ABOUT_SUBJECT = """
    broker = $3 OR broker IS NULL AND (
        len(subjects) = 0 OR list_has_any(subjects, $4::VARCHAR[])
        OR "count" > len(subjects)
        AND (namespace IS NULL OR list_contains($5::VARCHAR[], namespace))
    )
"""
"""Condition of refusals. $3: a broker, $4: names, $5: namespaces.

A refusal of many subjects names only the first ones.
"""
RECENT_MS = 600_000
"""Refusals are shown from this long before the last round; only those of the last pass count."""


@dataclass(frozen=True, slots=True)
class NoMoveExplanation:
    """Why a bundle, a broker's load or a whole cluster doesn't move: a sentence, and all checks.

    Checks are in order of precedence. `bundle` None: about a broker. `broker` None, too: about the
    cluster, without `refusals`.
    """

    sentence: str
    cluster: str
    bundle: str | None
    broker: str | None
    checks: tuple[Check, ...]
    refusals: tuple[Row, ...]
    stale: str | None = None  # why the tables aren't up to date; None: they are

    @property
    def blockers(self) -> tuple[Check, ...]:
        """Return the checks that block, in order of precedence."""
        return tuple(check for check in self.checks if check.blocks)

    def to_dict(self) -> Row:
        """Return the fields as JSON can hold them."""
        return asdict(self)


def explain_no_move(
    lake: Lake,
    facts: Facts,
    cluster: str | None,
    *,
    bundle: str | None = None,
    broker: str | None = None,
) -> NoMoveExplanation:
    """Explain why a bundle isn't moved, why a broker keeps its load, or why a cluster has no moves.

    The command line, the console and the report show this explanation. `facts`: of the job.
    Checked are the job, operators' commands, the cluster's state, limits, policies and waits, the
    last pass's refusals, and the strategy's numbers.
    Raises QueryError for a name that the tables don't have, or that several clusters have where
    `cluster` is None.
    """
    if bundle is not None:
        return _explain_bundle(lake, facts, bundle, cluster)
    if broker is not None:
        return _explain_broker(lake, facts, broker, cluster)
    return _explain_cluster(lake, facts, str(cluster))


def _explain_bundle(
    lake: Lake, facts: Facts, bundle: str, cluster: str | None
) -> NoMoveExplanation:
    known = _load_bundle(lake, bundle, cluster)
    now = load_situation(lake, known["cluster"])
    owner = known["owner"]
    drained = now.is_drained(owner) or bundle.rpartition("/")[0] in now.operator_state.deleted
    about = (owner, [bundle], [bundle.rpartition("/")[0]])
    refused = load_pass_refusals(lake, now, drained, _ABOUT_SUBJECT, about)
    checked = (
        *checks.check_job(_keep_cluster(facts, now)),
        checks.check_drain(now, owner, drained),
        *checks.check_rollout(now, owner),
        *checks.check_operators(now, drained),
        *checks.check_windows(now, bundle, drained),
        checks.check_pin(now, bundle, drained),
        *checks.check_approval(now, bundle, drained),
        *checks.check_suspension(now),
        checks.check_owner(now, known),
        checks.check_pending(now, bundle, _explain_pending(lake, now, bundle)),
        *checks.check_limits(now, owner, known["short_bytes_per_s"]),
        *checks.check_budget(now, bundle, drained),
        *checks.check_policies(now, bundle, drained),
        *checks.check_waits(now, known, drained),
        *pass_checks.check_last_pass(now, refused, drained, _is_stale(facts, now)),
        *checks.check_strategy_figures(now, owner, drained),
        checks.check_own_load(known),
    )
    recent = load_recent_refusals(lake, now, _ABOUT_SUBJECT, about)
    subject = f"{bundle} is not moved"
    return _build_explanation(
        lake, facts, now, subject, checked, recent, bundle=bundle, broker=owner, drained=drained
    )


def _explain_broker(
    lake: Lake, facts: Facts, broker: str, cluster: str | None
) -> NoMoveExplanation:
    found = require_broker(lake, broker, cluster)
    if len(found) > 1:
        raise QueryError(
            f"--cluster: expected one of {', '.join(found)}, which all have {broker}", code=2
        )
    now = load_situation(lake, found[0])
    drained = now.is_drained(broker)
    owned = records(run(lake, _BUNDLES_OF_BROKER, [now.cluster, broker]))
    names = [row["bundle"] for row in owned]
    namespaces = sorted({name.rpartition("/")[0] for name in names})
    about = (broker, [broker, *names], namespaces)
    refused = load_pass_refusals(lake, now, drained, _ABOUT_SUBJECT, about)
    subjects = {subject for row in refused for subject in row["subjects"] or ()}
    checked = (
        *checks.check_job(_keep_cluster(facts, now)),
        checks.check_drain(now, broker, drained, empty=not owned),
        *checks.check_rollout(now, broker),
        *checks.check_operators(now, drained),
        *checks.check_windows(now, None, drained),
        *checks.check_proposals(now, broker, drained),
        *checks.check_suspension(now),
        checks.check_broker_alive(now, broker),
        *checks.check_limits(now, broker, 0.0),
        checks.check_bundles(now, owned, subjects, drained),
        *pass_checks.check_last_pass(now, refused, drained, _is_stale(facts, now)),
        *checks.check_strategy_figures(now, broker, drained),
    )
    recent = load_recent_refusals(lake, now, _ABOUT_SUBJECT, about)
    subject = f"The load of {broker} stays"
    return _build_explanation(
        lake, facts, now, subject, checked, recent, broker=broker, drained=drained
    )


def _explain_cluster(lake: Lake, facts: Facts, cluster: str) -> NoMoveExplanation:
    now = load_situation(lake, cluster)
    active = [row for row in now.loads if row["active"]]
    hottest = max(active, key=_usage, default={"broker": None})["broker"]
    limits = checks.check_limits(now, None, None)
    refused = load_pass_refusals(lake, now, False, "true", [])
    checked = (
        *checks.check_job(_keep_cluster(facts, now)),
        *checks.check_rollout(now, None),
        *checks.check_operators(now, False),
        *checks.check_windows(now, None, False),
        *checks.check_exclusions(now),
        *checks.check_proposals(now, None, False),
        *checks.check_suspension(now),
        *(check for check in limits if "its broker" not in check.name),
        *checks.check_full_brokers(now),
        *pass_checks.check_last_pass(now, refused, False, _is_stale(facts, now)),
        *checks.check_strategy_figures(now, hottest, False),
    )
    return _build_explanation(lake, facts, now, f"Nothing moves in {cluster}", checked, ())


def _build_explanation(
    lake: Lake,
    facts: Facts,
    now: Situation,
    subject: str,
    checked: Sequence[Check],
    refusals: Sequence[Row],
    *,
    bundle: str | None = None,
    broker: str | None = None,
    drained: bool = False,
) -> NoMoveExplanation:
    """Return the explanation with its sentence. `subject`: how the sentence begins."""
    stale = explain_staleness(_keep_cluster(facts, now))
    last_pass = _describe_last_pass(lake, now, bundle, broker)
    sentence = _build_sentence(subject, checked, drained, last_pass)
    if stale is not None and not any(check.blocks for check in checked if check.name == "job"):
        sentence += f" Not up to date: {stale}."
    return NoMoveExplanation(
        sentence, now.cluster, bundle, broker, tuple(checked), tuple(refusals), stale
    )


def _keep_cluster(facts: Facts, now: Situation) -> Facts:
    """Return the facts with this cluster alone, whose last round may be old."""
    return replace(facts, clusters=(ClusterFacts(now.cluster, now.last["now_ms"]),))


def _is_stale(facts: Facts, now: Situation) -> bool:
    return explain_staleness(_keep_cluster(facts, now)) is not None


def _usage(row: Row) -> float:
    return float(row["usage_ratio"] or 0.0)


# --- what the tables have ---


def _load_bundle(lake: Lake, bundle: str, cluster: str | None) -> Row:
    found = records(run(lake, _BUNDLE, [bundle, cluster]))
    if len(found) == 1:
        return found[0]
    if found:
        names = ", ".join(row["cluster"] for row in found)
        raise QueryError(f"--cluster: expected one of {names}, which all have {bundle}", code=2)
    ended = [
        row
        for row in load_decisions_about(lake, "bundle", bundle, cluster, 100)
        if row["kind"] in RESHAPES and row["outcome"] == "confirmed"
    ]
    if ended:
        last = ended[-1]
        children = ", ".join(last["children"]) or "its children"
        verb = "split" if last["kind"] == "split" else "merged"
        raise QueryError(
            f"{bundle} was {verb} into {children} ({last['decision_id']}): name one of these",
            code=2,
        )
    raise QueryError(
        f'no report names {bundle}: lbctl sql "select bundle from bundle_averages" lists those '
        "that are known",
        code=2,
    )


def load_situation(lake: Lake, cluster: str) -> Situation:
    """Return the state of a cluster for its checks. Raises QueryError where it had no round."""
    from lb_stream.settings.overrides import resolve_in_force

    rounds = records(run(lake, _ROUND, [cluster]))
    if not rounds:
        raise QueryError(f"no round of {cluster} is in the log: nothing has been decided there yet")
    last = rounds[0]
    memory = Memory.from_json(last["memory"])
    config = resolve_in_force(json.loads(last["inputs"])["settings"], memory)
    (batch,) = records(run(lake, _BATCH))
    query = _LOADS.format(rows=build_last_loads_query(lake, cluster))
    loads = records(run(lake, query, [cluster]))
    now_ms = max(last["now_ms"], batch["started_ms"] or 0)
    return Situation(cluster, last, memory, config, now_ms, loads)


def load_pass_refusals(
    lake: Lake, now: Situation, drained: bool, where: str, parameters: Sequence[object]
) -> list[Row]:
    """Return the refusals that meet a condition and may be the last pass's.

    `parameters`: those of the condition, from $3 on.
    """
    all_parameters = [now.cluster, pass_checks.find_pass_begin_ms(now, drained), *parameters]
    return records(run(lake, _REFUSED.format(where=where), all_parameters))


def _explain_pending(lake: Lake, now: Situation, bundle: str) -> dict[str, str]:
    """Return id → rule and its explanation, of each pending decision about a bundle."""
    found = {}
    for pending in now.memory.pending:
        if bundle in (pending.bundle, pending.neighbour):
            rows = records(run(lake, _DECISION, [pending.decision_id]))
            for row in rows:
                why = explain_rule(row["rule"], row["source"], json.loads(row["explain"] or "{}"))
                found[pending.decision_id] = f"{row['rule']}: {why}"
    return found


def load_recent_refusals(
    lake: Lake, now: Situation, where: str, parameters: Sequence[object]
) -> list[Row]:
    """Return recent refusals that meet a condition. `parameters`: its own, from $3 on."""
    all_parameters = [now.cluster, now.last["now_ms"] - RECENT_MS, *parameters]
    where = f"cluster = $1 AND now_ms > $2 AND ({where})"
    return load_refusals_about(lake, where, all_parameters)


def _build_sentence(subject: str, checked: Sequence[Check], drained: bool, last_pass: str) -> str:
    """Return the first check that blocks with the names of the others; else the last pass."""
    blocking = [check for check in checked if check.blocks]
    drains = [check.description for check in checked if check.name == "drain"]
    begin = f"{drains[0]}. " if drained else ""
    if blocking:
        first = blocking[0]
        others = dict.fromkeys(check.name for check in blocking if check.name != first.name)
        more = f" Also: {', '.join(others)}." if others else ""
        return f"{begin}{subject} ({first.name}): {first.description}.{more}"
    if drained:
        return f"{begin}No rule forbids the move: the next round decides it."
    unknown = "its broker's load is not known"
    numbers = next((check.description for check in checked if check.name == "numbers"), unknown)
    return f"{last_pass} {numbers}."


def _describe_last_pass(lake: Lake, now: Situation, bundle: str | None, broker: str | None) -> str:
    """Say what the last pass decided where no rule blocks, and when the next pass is due."""
    shedder, last_ms = now.config.shedder, now.memory.last_shed_ms
    moves = _count_moves(lake, now, bundle, broker)
    if bundle is not None:
        no_rule = f"No rule keeps {bundle} where it is"
        decided = "to move it" if moves else "nothing about it"
    elif broker is not None:
        no_rule = f"No rule keeps the load of {broker}"
        decided = f"{moves or 'no'} moves out of it"
    else:
        no_rule = f"No rule keeps {now.cluster} from being balanced"
        decided = f"{moves or 'no'} moves"
    if last_ms is None:
        return f"{no_rule}: {shedder.name} has not had its first pass yet."
    due = f"is due at {clock(last_ms + now.config.balancer.shedding_interval_ms)}"
    if traits_of(shedder).paces_itself:
        due = "comes with the next report"
    last = f"the last pass of {shedder.name}, at {clock(last_ms)}, decided {decided}"
    return f"{no_rule}: {last}; the next {due}."


def _count_moves(lake: Lake, now: Situation, bundle: str | None, broker: str | None) -> int:
    """Count the last pass's moves of a bundle, or out of a broker; both None: all moves."""
    source = broker if bundle is None else None
    (row,) = records(run(lake, _MOVES, [now.cluster, now.memory.last_shed_ms, bundle, source]))
    return int(row["moves"])
