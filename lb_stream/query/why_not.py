"""Why nothing happens to a bundle, or why a broker stays hot: all possible reasons as of now, in order of precedence.

Drain, operators, suspension, limits, policies, what is waited for, then the strategy's own numbers against its limit.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from lb_stream.contracts.decisions import RESHAPES
from lb_stream.query import QueryError, checks
from lb_stream.query.checks import Check, Situation
from lb_stream.query.explained import Row, decisions_about, refusals_about, require_broker
from lb_stream.query.lake import last_loads, records, run

if TYPE_CHECKING:
    import duckdb

    Lake = duckdb.DuckDBPyConnection

_BUNDLE = """
    WITH loads AS (
        SELECT cluster, bundle, owner, owner_since_ms,
               short_throughput_in_bytes_per_s + short_throughput_out_bytes_per_s AS short_bytes_per_s
        FROM bundle_averages
    ), ranked AS (
        SELECT *, rank() OVER (PARTITION BY cluster, owner ORDER BY short_bytes_per_s DESC) - 1 AS heavier,
               count(*) OVER (PARTITION BY cluster, owner) AS bundles
        FROM loads
    )
    SELECT * FROM ranked WHERE bundle = $1 AND ($2 IS NULL OR cluster = $2) ORDER BY cluster
"""
_OF_BROKER = "SELECT bundle, owner_since_ms FROM bundle_averages WHERE cluster = $1 AND owner = $2"
_ROUND = """
    SELECT seq, now_ms, error, memory, inputs, refusals FROM rounds
    WHERE cluster = $1 AND memory <> '' ORDER BY log_seq DESC LIMIT 1
"""
_BATCH = "SELECT max(started_ms) AS started_ms FROM batches"
_LOADS = """
    SELECT broker, alive, usage_ratio, bundles, now_ms, rank() OVER (ORDER BY usage_ratio DESC) AS place, count(*) OVER () AS brokers,
           latest_throughput_in_bytes_per_s + latest_throughput_out_bytes_per_s AS bytes_per_s,
           latest_rate_in_msgs_per_s + latest_rate_out_msgs_per_s AS msgs_per_s
    FROM {rows} ORDER BY broker
"""
RECENT_MS = 600_000
"""Refusals of so long before the last round are shown; those of the last pass hold."""


@dataclass(frozen=True, slots=True)
class WhyNot:
    """The answer in a sentence, and everything that was checked, in order of precedence. `bundle` None: asked of a broker."""

    sentence: str
    cluster: str
    bundle: str | None
    broker: str | None
    checks: tuple[Check, ...]
    refusals: tuple[Row, ...]

    def to_dict(self) -> Row:
        """As JSON-able fields."""
        return asdict(self)


def why_not(lake: Lake, bundle: str, cluster: str | None) -> WhyNot:
    """Raises QueryError for a bundle that nobody has named, or that is in several clusters and none was said."""
    known = _known(lake, bundle, cluster)
    now = situation(lake, known["cluster"])
    owner = known["owner"]
    about = "list_contains(subjects, $3) OR broker = $4 OR (broker IS NULL AND len(subjects) = 0)"
    refusals = recent_refusals(lake, now, about, [bundle, owner])
    drained = now.drained(owner) or bundle.rpartition("/")[0] in now.orders.get("deleted", ())
    checked = (
        checks.drain(now, owner, drained),
        *checks.operators(now, drained),
        *checks.windows(now, bundle, drained),
        checks.pinned(now, bundle, drained),
        *checks.approval(now, bundle, drained),
        *checks.suspension(now),
        checks.owner(now, known),
        checks.pending(now, bundle),
        *checks.limits(now, owner, known["short_bytes_per_s"]),
        *checks.budget(now, bundle, drained),
        *checks.policies(now, bundle, drained),
        *checks.waiting(now, known, drained),
        *checks.of_last_pass(now, refusals, drained),
        *checks.of_strategy(now, owner, drained),
        checks.own_load(known),
    )
    return WhyNot(_sentence(f"{bundle} stays where it is", checked, now, drained), now.cluster, bundle, owner, checked, tuple(refusals))


def why_hot(lake: Lake, broker: str, cluster: str | None) -> WhyNot:
    """What keeps a broker's load where it is.

    Raises QueryError for a broker that no round has seen, and for one of several clusters where
    none was named.
    """
    found = require_broker(lake, broker, cluster)
    if len(found) > 1:
        raise QueryError(f"{broker} is in {', '.join(found)}: say which, --cluster NAME", code=2)
    now = situation(lake, found[0])
    refusals = recent_refusals(lake, now, "$3 = '' OR broker = $4 OR (broker IS NULL AND len(subjects) = 0)", [broker, broker])
    drained = now.drained(broker)
    checked = (
        checks.drain(now, broker, drained),
        *checks.operators(now, drained),
        *checks.windows(now, None, drained),
        *checks.proposed(now, broker, drained),
        *checks.suspension(now),
        checks.alive(now, broker),
        *checks.limits(now, broker, 0.0),
        checks.bundles(now, broker, records(run(lake, _OF_BROKER, [now.cluster, broker])), drained),
        *checks.of_last_pass(now, refusals, drained),
        *checks.of_strategy(now, broker, drained),
    )
    return WhyNot(_sentence(f"{broker} keeps its load", checked, now, drained), now.cluster, None, broker, checked, tuple(refusals))


# --- what is known ---


def _known(lake: Lake, bundle: str, cluster: str | None) -> Row:
    found = records(run(lake, _BUNDLE, [bundle, cluster]))
    if len(found) == 1:
        return found[0]
    if found:
        raise QueryError(f"{bundle} is in {', '.join(row['cluster'] for row in found)}: say which, --cluster NAME", code=2)
    ended = [
        row for row in decisions_about(lake, "bundle", bundle, cluster, 100) if row["kind"] in RESHAPES and row["outcome"] == "confirmed"
    ]
    if ended:
        children, verb = ", ".join(ended[-1]["children"]) or "its children", "split" if ended[-1]["kind"] == "split" else "merged"
        raise QueryError(f"{bundle} is no more: it was {verb} into {children} ({ended[-1]['decision_id']})", code=2)
    raise QueryError(f'no report names {bundle}: lbctl sql "select bundle from bundle_averages" lists those that are known', code=2)


def situation(lake: Lake, cluster: str) -> Situation:
    """How things stand in a cluster that has had a round."""
    from lb_stream.core.commands.settings import in_force
    from lb_stream.core.config.cluster_config import cluster_config

    last = records(run(lake, _ROUND, [cluster]))[0]
    memory = json.loads(last["memory"])
    config = cluster_config(in_force(json.loads(last["inputs"])["settings"], memory.get("orders", {}).get("settings", {})))
    (batch,) = records(run(lake, _BATCH))
    loads = records(run(lake, _LOADS.format(rows=last_loads(lake, cluster)), [cluster]))
    return Situation(cluster, last, memory, config, max(last["now_ms"], batch["started_ms"] or 0), loads)


def recent_refusals(lake: Lake, now: Situation, where: str, subjects: list[str | None]) -> list[Row]:
    """Refusals of lately that meet a condition; `subjects` are its parameters from $3 on."""
    return refusals_about(lake, f"cluster = $1 AND now_ms > $2 AND ({where})", [now.cluster, now.last["now_ms"] - RECENT_MS, *subjects])


def _sentence(what: str, checked: Sequence[Check], now: Situation, drained: bool) -> str:
    keeping = [check for check in checked if check.keeps]
    first = f"{checked[0].found}. " if drained else ""
    if keeping:
        return f"{first}{what}: {keeping[0].name}: {keeping[0].found}."
    if drained:
        return f"{first}Nothing forbids that: the next round decides it."
    told = next((check.found for check in checked if check.name == "numbers"), "its broker's load is not known")
    return f"{what}, though nothing forbids to change that: the next pass of {now.config.shedder.name} decides. {told}."
