"""Why nothing happens to a bundle, or a broker stays hot: everything that may be why, as it holds now, in order of precedence.

Drain, operators, suspension, limits, policies, what is waited for, then the strategy's own numbers against its limit.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from lb_stream.contracts.decisions import MOVES
from lb_stream.core.model.names import is_system_bundle
from lb_stream.core.round.limits import MINUTE_MS
from lb_stream.core.shedding.base import MB
from lb_stream.io.messages.times import clock
from lb_stream.query import QueryError
from lb_stream.query.explained import Row, decisions_about, refusals_about
from lb_stream.query.lake import records, run
from lb_stream.query.rule_words import HOLDS_BY, figure, why_refused
from lb_stream.query.strategy_numbers import numbers

if TYPE_CHECKING:
    import duckdb

    from lb_stream.core.config.cluster_config import ClusterConfig

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
    FROM broker_loads WHERE cluster = $1 AND log_seq = (SELECT max(log_seq) FROM broker_loads WHERE cluster = $1) ORDER BY broker
"""
_CLUSTERS_OF = "SELECT DISTINCT cluster FROM broker_loads WHERE broker = $1 AND ($2 IS NULL OR cluster = $2) ORDER BY cluster"
RECENT_MS = 600_000
"""Refusals of so long before the last round are shown; those of the last pass hold."""


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that may keep a bundle where it is: what the tables say, and whether it does."""

    name: str
    found: str
    keeps: bool = False


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


@dataclass(frozen=True, slots=True)
class _Now:
    """How things stand in a cluster. `now_ms`: of the last batch, or of the last round where there was none since."""

    cluster: str
    last: Row
    memory: Mapping[str, Any]
    config: ClusterConfig
    now_ms: int
    loads: Sequence[Row]

    @property
    def orders(self) -> Mapping[str, Any]:
        """What operators have laid down."""
        found: Mapping[str, Any] = self.memory.get("orders", {})
        return found

    def load_of(self, broker: str | None) -> Row | None:
        """A broker as the last round with a report saw it."""
        return next((row for row in self.loads if row["broker"] == broker), None)

    def drained(self, broker: str | None) -> bool:
        """Whether it is to be emptied."""
        return broker in self.orders.get("drained", ())


def why_not(lake: Lake, bundle: str, cluster: str | None) -> WhyNot:
    """Raises QueryError for a bundle that nobody has named, or that is in several clusters and none was said."""
    known = _known(lake, bundle, cluster)
    now = _now(lake, known["cluster"])
    owner = known["owner"]
    refusals = _refusals(lake, now, "list_contains(subjects, $3) OR broker = $4 OR (broker IS NULL AND len(subjects) = 0)", [bundle, owner])
    drained = now.drained(owner) or bundle.rpartition("/")[0] in now.orders.get("deleted", ())
    checks = (
        _drain(now, owner, drained),
        *_operators(now, drained),
        *_suspension(now),
        _owner(now, known),
        _pending(now, bundle),
        *_limits(now, owner, known["short_bytes_per_s"]),
        *_policies(now, bundle, drained),
        *_waiting(now, known, drained),
        *_of_last_pass(now, refusals, drained),
        *_numbers(now, owner, drained),
        _own_load(known),
    )
    return WhyNot(_sentence(f"{bundle} stays where it is", checks, now, drained), now.cluster, bundle, owner, checks, tuple(refusals))


def why_hot(lake: Lake, broker: str, cluster: str | None) -> WhyNot | None:
    """What keeps a broker's load where it is; None: no round has seen such a broker."""
    found = [row["cluster"] for row in records(run(lake, _CLUSTERS_OF, [broker, cluster]))]
    if len(found) > 1:
        raise QueryError(f"{broker} is in {', '.join(found)}: say which, --cluster NAME", code=2)
    if not found:
        return None
    now = _now(lake, found[0])
    refusals = _refusals(lake, now, "$3 = '' OR broker = $4 OR (broker IS NULL AND len(subjects) = 0)", [broker, broker])
    drained = now.drained(broker)
    load = now.load_of(broker)
    alive = Check("broker", "it lives" if load and load["alive"] else "it is dead: its bundles are assigned", not (load and load["alive"]))
    checks = (
        _drain(now, broker, drained),
        *_operators(now, drained),
        *_suspension(now),
        alive,
        *_limits(now, broker, 0.0),
        _bundles(now, broker, records(run(lake, _OF_BROKER, [now.cluster, broker])), drained),
        *_of_last_pass(now, refusals, drained),
        *_numbers(now, broker, drained),
    )
    return WhyNot(_sentence(f"{broker} keeps its load", checks, now, drained), now.cluster, None, broker, checks, tuple(refusals))


# --- what is known ---


def _known(lake: Lake, bundle: str, cluster: str | None) -> Row:
    found = records(run(lake, _BUNDLE, [bundle, cluster]))
    if len(found) == 1:
        return found[0]
    if found:
        raise QueryError(f"{bundle} is in {', '.join(row['cluster'] for row in found)}: say which, --cluster NAME", code=2)
    splits = [
        row for row in decisions_about(lake, "bundle", bundle, cluster, 100) if row["kind"] == "split" and row["outcome"] == "confirmed"
    ]
    if splits:
        children = ", ".join(splits[-1]["children"]) or "its children"
        raise QueryError(f"{bundle} is no more: it was split into {children} ({splits[-1]['decision_id']})", code=2)
    raise QueryError(f'no report names {bundle}: lbctl sql "select bundle from bundle_averages" lists those that are known', code=2)


def _now(lake: Lake, cluster: str) -> _Now:
    from lb_stream.core.commands.settings import in_force
    from lb_stream.core.config.cluster_config import cluster_config

    last = records(run(lake, _ROUND, [cluster]))[0]
    memory = json.loads(last["memory"])
    config = cluster_config(in_force(json.loads(last["inputs"])["settings"], memory.get("orders", {}).get("settings", {})))
    (batch,) = records(run(lake, _BATCH))
    return _Now(cluster, last, memory, config, max(last["now_ms"], batch["started_ms"] or 0), records(run(lake, _LOADS, [cluster])))


def _refusals(lake: Lake, now: _Now, where: str, subjects: list[str | None]) -> list[Row]:
    return refusals_about(lake, f"cluster = $1 AND now_ms > $2 AND ({where})", [now.cluster, now.last["now_ms"] - RECENT_MS, *subjects])


# --- the checks, in their order ---


def _drain(now: _Now, broker: str | None, drained: bool) -> Check:
    if not drained:
        return Check("drain", "its broker is not being drained")
    return Check("drain", f"{broker} is being emptied: what is on it leaves as limits and policies let it, whatever the shedder thinks")


def _operators(now: _Now, drained: bool) -> Iterator[Check]:
    """Of these only the dry run holds for a drain."""
    balancer, paused = now.config.balancer, bool(now.orders.get("paused"))
    yield Check("operators", "have paused the balancing" if paused else "have not paused the balancing", paused and not drained)
    yield Check("balancing", f"enabled = {balancer.enabled}".lower(), not balancer.enabled and not drained)
    yield Check("shedding", f"shedding_enabled = {balancer.shedding_enabled}".lower(), not balancer.shedding_enabled and not drained)
    yield Check("dry run", "decisions are logged and not published" if balancer.dry_run else "off", balancer.dry_run)


def _suspension(now: _Now) -> Iterator[Check]:
    rules = [one["rule"] for one in json.loads(now.last["refusals"] or "[]") if one["rule"] in HOLDS_BY["suspension"]]
    error, retry_ms = now.last["error"], now.memory.get("retry_ms", 0)
    found = f"{rules[0]}: {why_refused(rules[0])}" if rules else "none"
    if (held := now.memory.get("suspension")) is not None:  # it isn't said with every round
        rules, found = [held["rule"]], f"{held['rule']} since {clock(held['since_ms'])}: {why_refused(held['rule'])}"
    if retry_ms > now.now_ms:
        found = f"round after round failed: the next is tried at {clock(retry_ms)}"
    yield Check("suspension", found, bool(rules) or retry_ms > now.now_ms)
    told = f"failed: {error.strip().splitlines()[-1]}" if error else f"{now.last['seq']}, without an error"
    yield Check("last round", told, error is not None)


def _owner(now: _Now, known: Row) -> Check:
    load = now.load_of(known["owner"])
    if known["owner"] is None:
        return Check("owner", "nobody: there is nothing to unload; it is waiting to be assigned", True)
    if load is not None and not load["alive"]:
        return Check("owner", f"{known['owner']}, which is dead: its bundles are assigned, not unloaded", True)
    return Check("owner", f"{known['owner']} since {clock(known['owner_since_ms'])}")


def _pending(now: _Now, bundle: str) -> Check:
    found = [one for one in now.memory["pending"] if one["bundle"] == bundle]
    if not found:
        return Check("on its way", "no decision about it is open")
    one = found[-1]
    return Check("on its way", f"{one['kind']} {one['decision_id']} is open until {clock(one['expires_ms'])}", True)


def _limits(now: _Now, broker: str | None, bytes_per_s: float | None) -> Iterator[Check]:
    """Each limit on moves: how much of it is used, and when there is room."""
    config, moving = now.config.balancer, [one for one in now.memory["pending"] if one["kind"] in MOVES]
    mine = [one for one in moving if one["source"] == broker]
    for name, under_way, most in (
        ("moves in flight", moving, config.max_moves_in_flight),
        ("moves in flight of its broker", mine, config.max_moves_in_flight_per_broker),
    ):
        full = len(under_way) >= most
        room = f"; room when one of them ends, by {clock(min(one['expires_ms'] for one in under_way))}" if full and under_way else ""
        yield Check(f"limits: {name}", f"{len(under_way)} of {most}{room}", full)
    lately = [entry for entry in now.memory.get("moved", ()) if now.now_ms - entry[0] < MINUTE_MS]
    room = f"; room at {clock(min(entry[0] for entry in lately) + MINUTE_MS)}" if lately else ""
    moves, most = sum(entry[1] for entry in lately), config.max_moves_per_minute
    yield Check("limits: moves a minute", f"{moves} of {most}" + (room if moves >= most else ""), moves >= most)
    if config.max_moved_mb_per_minute is not None:
        load, limit = sum(entry[2] for entry in lately), config.max_moved_mb_per_minute * MB
        full = load + (bytes_per_s or 0.0) > limit
        told = f"{figure(load, 'bytes/s')} of {figure(limit, 'bytes/s')}, it would add {figure(bytes_per_s or 0.0, 'bytes/s')}"
        yield Check("limits: traffic moved a minute", told + (room if full else ""), full)


def _policies(now: _Now, bundle: str, drained: bool) -> Iterator[Check]:
    namespace = bundle.rpartition("/")[0]
    if is_system_bundle(bundle):
        yield Check("namespace", f"{namespace} is one of the system's: its bundle belongs to its broker", True)
        return
    excluded = namespace in now.config.balancer.shedding_excluded_namespaces
    yield Check("namespace", f"{namespace} is {'' if excluded else 'not '}in shedding_excluded_namespaces", excluded and not drained)


def _waiting(now: _Now, known: Row, drained: bool) -> Iterator[Check]:
    """Dwell time and grace period are the shedder's; the back-off holds for all."""
    config, bundle = now.config.balancer, known["bundle"]
    if config.min_dwell_ms and known["owner_since_ms"] is not None:
        left_s = _left_s(now, known["owner_since_ms"] + config.min_dwell_ms)
        told = f"came at {clock(known['owner_since_ms'])}: stays for {config.min_dwell_ms / 1000:.0f} s (min_dwell_ms)"
        yield Check("dwell time", f"{told}, {max(0.0, left_s):.0f} s of them to go", left_s > 0 and not drained)
    at_ms, grace_ms = now.memory["recently_unloaded"].get(bundle), config.shedding_grace_period_ms
    if at_ms is None:
        yield Check("grace period", f"not unloaded within the last {grace_ms / 1000:.0f} s")
    else:
        left_s = _left_s(now, at_ms + grace_ms)
        told = f"unloaded at {clock(at_ms)}: left alone for {grace_ms / 1000:.0f} s, {max(0.0, left_s):.0f} s of them to go"
        yield Check("grace period", told, left_s >= 0 and not drained)
    retry = now.memory["retries"].get(bundle)
    if retry is None:
        yield Check("back-off", "no decision about it has failed lately")
    else:
        left_s = _left_s(now, retry["not_before_ms"])
        told = f"{retry['attempts']} failed {retry['kind']}s in a row: not before {clock(retry['not_before_ms'])}"
        yield Check("back-off", told + (f", in {left_s:.0f} s" if left_s > 0 else ""), left_s > 0)


def _left_s(now: _Now, until_ms: int) -> float:
    return float(until_ms - now.now_ms) / 1000


def _bundles(now: _Now, broker: str, owned: list[Row], drained: bool) -> Check:
    """How many of a broker's bundles may move now."""
    config, memory = now.config.balancer, now.memory
    moving = {one["bundle"] for one in memory["pending"]}
    graced = {name for name, at_ms in memory["recently_unloaded"].items() if at_ms + config.shedding_grace_period_ms >= now.now_ms}
    backing = {name for name, retry in memory["retries"].items() if retry["not_before_ms"] > now.now_ms}
    staying = {row["bundle"] for row in owned if (row["owner_since_ms"] or 0) + config.min_dwell_ms > now.now_ms}
    names = {row["bundle"] for row in owned}
    kinds = (("on their way", moving), ("backing off", backing), ("in their grace period", graced), ("in their dwell time", staying))
    held = [(word, names & some) for word, some in (kinds[:2] if drained else kinds)]
    system = {name for name in names if is_system_bundle(name)}
    free = len(names - system.union(*(some for _, some in held)))
    told = f"{free} of its {len(names)} bundles may move" + "".join(f", {len(some)} {word}" for word, some in held if some)
    return Check("bundles", told, free == 0)


def _of_last_pass(now: _Now, refusals: Sequence[Row], drained: bool) -> Iterator[Check]:
    """What the last pass refused, by its place. What only the shedder, or an earlier pass, was kept by doesn't hold any more."""
    last_ms, every_ms = now.memory["last_shed_ms"], now.config.balancer.shedding_interval_ms
    of_pass_ms = max((row["now_ms"] for row in now.loads), default=0) if drained else last_ms
    for place, rules in HOLDS_BY.items():
        if place in ("operators", "suspension", "splitting") or (drained and place in ("strategy", "waiting")):
            continue  # these are checked by themselves, or don't keep a bundle from moving
        since_ms = now.last["now_ms"] if place == "assigning" else of_pass_ms  # every round assigns
        found = [row for row in refusals if row["rule"] in rules and since_ms is not None and row["last_ms"] >= since_ms]
        for row in found[:1] if place != "limits" or not drained else ():
            yield Check(place, f"the last {'round' if place == 'assigning' else 'pass'} was refused: {_told(row)}", True)
    if last_ms is None:
        yield Check("shedding pass", "there has been none yet", not drained)
    else:
        told = f"last at {clock(last_ms)}, {(now.now_ms - last_ms) / 1000:.0f} s ago; every {every_ms / 1000:g} s"
        yield Check("shedding pass", told)


def _told(row: Row) -> str:
    saw = f", saw {figure(row['greatest'], row['unit'])}" if row["greatest"] is not None else ""
    limit = f", limit {figure(row['limit'], row['unit'])}" if row["limit"] is not None else ""
    return f"{row['rule']} at {row['broker'] or 'the cluster'} in round {row['last_seq']}: {row['why']}{saw}{limit}"


def _numbers(now: _Now, broker: str | None, drained: bool) -> Iterator[Check]:
    """The strategy's own numbers; last, as all else comes before them."""
    load = now.load_of(broker)
    if broker is None or load is None:
        return
    alive = [row for row in now.loads if row["alive"]]
    shedder = now.config.shedder.name
    found = numbers(shedder, now.config.shedder_config, now.memory.get("strategies", {}).get(shedder, {}), alive, broker)
    if found is not None:
        yield Check("numbers", f"{shedder}: {broker}: {found.told}", not found.beyond and not drained)
    yield Check("its broker", f"{figure(load['usage_ratio'], 'ratio')} usage, place {load['place']} of {load['brokers']}")


def _own_load(known: Row) -> Check:
    heavier = f"{known['heavier']} of its broker's {known['bundles']} bundles are heavier"
    return Check("its own load", f"{figure(known['short_bytes_per_s'], 'bytes/s')} short-term; {heavier}")


def _sentence(what: str, checks: Sequence[Check], now: _Now, drained: bool) -> str:
    keeping = [check for check in checks if check.keeps]
    first = f"{checks[0].found}. " if drained else ""
    if keeping:
        return f"{first}{what}: {keeping[0].name}: {keeping[0].found}."
    if drained:
        return f"{first}Nothing forbids that: the next round decides it."
    told = next((check.found for check in checks if check.name == "numbers"), "its broker's load is not known")
    return f"{what}, though nothing forbids to change that: the next pass of {now.config.shedder.name} decides. {told}."
