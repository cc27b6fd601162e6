"""What may keep a bundle, or a broker's load, where it is: one check for each, of what the tables say as of now.

`drained`: the broker is being emptied, or the namespace deleted. Then what concerns only the shedder keeps nothing.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lb_stream.contracts.decisions import MOVES
from lb_stream.core.config.windows import Limited, closed
from lb_stream.core.disruption.budgets import budgets
from lb_stream.core.model.memory import Memory
from lb_stream.core.model.names import is_system_bundle
from lb_stream.core.model.rules import PLACES
from lb_stream.core.round.limits import MINUTE_MS
from lb_stream.core.shedding.base import MB
from lb_stream.io.messages.figures import figure
from lb_stream.io.messages.times import clock
from lb_stream.query.explained import Row
from lb_stream.query.rule_words import HOLDS_BY, place_of, told_closed, why_refused
from lb_stream.query.strategy_numbers import numbers

if TYPE_CHECKING:
    from lb_stream.core.config.cluster_config import ClusterConfig


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that may keep a bundle where it is: what the tables say, whether it does, and until when (ms), where that is known."""

    name: str
    found: str
    keeps: bool = False
    until_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Situation:
    """How things stand in a cluster. `now_ms`: of the last batch, or of the last round where there was none since."""

    cluster: str
    last: Row
    memory: Mapping[str, Any]
    config: ClusterConfig
    now_ms: int
    loads: Sequence[Row]

    @property
    def orders(self) -> Mapping[str, Any]:
        """What operators' commands have set."""
        found: Mapping[str, Any] = self.memory.get("orders", {})
        return found

    def load_of(self, broker: str | None) -> Row | None:
        """A broker as the last round with a report saw it."""
        return next((row for row in self.loads if row["broker"] == broker), None)

    def drained(self, broker: str | None) -> bool:
        """Whether the broker is to be emptied."""
        return broker in self.orders.get("drained", ())


def drain(now: Situation, broker: str | None, drained: bool) -> Check:
    """Whether the bundle's broker is being emptied."""
    if not drained:
        return Check("drain", "its broker is not being drained")
    return Check("drain", f"{broker} is being emptied: what is on it leaves as limits and policies let it, whatever the shedder thinks")


def operators(now: Situation, drained: bool) -> Iterator[Check]:
    """What operators have switched off. Only a dry run also holds up a drain."""
    balancer, paused = now.config.balancer, bool(now.orders.get("paused"))
    yield Check("operators", "have paused the balancing" if paused else "have not paused the balancing", paused and not drained)
    yield Check("balancing", f"enabled = {balancer.enabled}".lower(), not balancer.enabled and not drained)
    yield Check("shedding", f"shedding_enabled = {balancer.shedding_enabled}".lower(), not balancer.shedding_enabled and not drained)
    yield Check("dry run", "decisions are logged and not published" if balancer.dry_run else "off", balancer.dry_run)


def windows(now: Situation, bundle: str | None, drained: bool) -> Iterator[Check]:
    """Whether a freeze, or disruption windows that are closed, keep balancing from moving it."""
    namespace = (bundle or "").rpartition("/")[0]
    limits: dict[str, Limited] = {"the cluster": now.config.balancer}
    if namespace in now.config.namespaces:
        limits[namespace] = now.config.namespaces[namespace]
    for name, own in limits.items():
        shut = closed(own, now.now_ms)
        if shut is None:
            yield Check("disruption windows", f"{name} is in no freeze, and in a window if it has any")
            continue
        yield Check("disruption windows", f"{name}: {told_closed(shut)}", not drained, shut.until_ms)


def pinned(now: Situation, bundle: str, drained: bool) -> Check:
    """Whether an operator has pinned the bundle."""
    until_ms = now.orders.get("pins", {}).get(bundle, 0)
    if until_ms <= now.now_ms:
        return Check("pin", "it is not pinned")
    return Check("pin", f"an operator's command has pinned it until {clock(until_ms)}", not drained)


def approval(now: Situation, bundle: str, drained: bool) -> Iterator[Check]:
    """Whether somebody has rejected what balancing wants with the bundle, or is yet to approve it; nothing where nobody is asked."""
    for one in now.orders.get("rejections", ()):
        if one["bundle"] == bundle and one["until_ms"] > now.now_ms:
            what = "move" if one["is_move"] else "split"
            told = f"{one['by'] or 'somebody'} has rejected to {what} it, until {clock(one['until_ms'])}: {one['why']}"
            yield Check("rejection", f"{told} ({one['proposal_id']})", one["is_move"] and not drained, one["until_ms"])
    waiting = [one for one in now.memory.get("proposals", ()) if one["bundle"] == bundle]
    for one in waiting:
        what = "split it" if one["kind"] == "split" else f"move it to {one['destination'] or 'a broker to be found'}"
        told = f"{one['proposal_id']}, to {what}, waits until {clock(one['expires_ms'])}: lbctl approve {one['proposal_id']}"
        yield Check("approval", told, not drained, one["expires_ms"])
    if now.config.balancer.mode == "approve" and not waiting:
        yield Check("approval", "what balancing wants waits for approval (mode = approve); nothing about it does")


def proposed(now: Situation, broker: str, drained: bool) -> Iterator[Check]:
    """Whether moves from a broker wait for approval; nothing where nobody is asked."""
    mine = [one for one in now.memory.get("proposals", ()) if one["source"] == broker]
    if now.config.balancer.mode == "approve":
        told = f"{len(mine)} proposals about its bundles wait for approval" + (": lbctl proposals" if mine else "")
        yield Check("approval", told, bool(mine) and not drained, min((one["expires_ms"] for one in mine), default=None))


def suspension(now: Situation) -> Iterator[Check]:
    """Whether the cluster decides at all, and whether its last round did."""
    rules = [one["rule"] for one in json.loads(now.last["refusals"] or "[]") if one["rule"] in HOLDS_BY["suspension"]]
    error, retry_ms = now.last["error"], now.memory.get("retry_ms", 0)
    found = f"{rules[0]}: {why_refused(rules[0])}" if rules else "none"
    if (held := now.memory.get("suspension")) is not None:  # it isn't said with every round
        rules, found = [held["rule"]], f"{held['rule']} since {clock(held['since_ms'])}: {why_refused(held['rule'])}"
    if retry_ms > now.now_ms:
        found = f"round after round failed: the next is tried at {clock(retry_ms)}"
    yield Check("suspension", found, bool(rules) or retry_ms > now.now_ms, retry_ms if retry_ms > now.now_ms else None)
    told = f"failed: {error.strip().splitlines()[-1]}" if error else f"{now.last['seq']}, without an error"
    yield Check("last round", told, error is not None)


def alive(now: Situation, broker: str) -> Check:
    """Whether the broker itself is there."""
    load = now.load_of(broker)
    lives = load is not None and load["alive"]
    return Check("broker", "it lives" if lives else "it is dead: its bundles are assigned", not lives)


def owner(now: Situation, known: Row) -> Check:
    """Who has the bundle."""
    load = now.load_of(known["owner"])
    if known["owner"] is None:
        return Check("owner", "nobody: there is nothing to unload; it is waiting to be assigned", True)
    if load is not None and not load["alive"]:
        return Check("owner", f"{known['owner']}, which is dead: its bundles are assigned, not unloaded", True)
    return Check("owner", f"{known['owner']} since {clock(known['owner_since_ms'])}")


def pending(now: Situation, bundle: str) -> Check:
    """Whether a decision about it is open."""
    found = [one for one in now.memory["pending"] if bundle in (one["bundle"], one.get("neighbour"))]
    if not found:
        return Check("on its way", "no decision about it is open")
    one = found[-1]
    return Check("on its way", f"{one['kind']} {one['decision_id']} is open until {clock(one['expires_ms'])}", True, one["expires_ms"])


def limits(now: Situation, broker: str | None, bytes_per_s: float | None) -> Iterator[Check]:
    """Each limit on moves: how much of it is used, and when there is room."""
    config, moving = now.config.balancer, [one for one in now.memory["pending"] if one["kind"] in MOVES]
    mine = [one for one in moving if one["source"] == broker]
    for name, under_way, most in (
        ("moves in flight", moving, config.max_moves_in_flight),
        ("moves in flight of its broker", mine, config.max_moves_in_flight_per_broker),
    ):
        full = len(under_way) >= most
        until_ms = min((one["expires_ms"] for one in under_way), default=None) if full else None
        room = "" if until_ms is None else f"; room when one of them ends, by {clock(until_ms)}"
        yield Check(f"limits: {name}", f"{len(under_way)} of {most}{room}", full, until_ms)
    lately = [entry for entry in now.memory.get("moved", ()) if now.now_ms - entry[0] < MINUTE_MS]
    until_ms = min(entry[0] for entry in lately) + MINUTE_MS if lately else None
    room = "" if until_ms is None else f"; room at {clock(until_ms)}"
    moves, most = sum(entry[1] for entry in lately), config.max_moves_per_minute
    yield Check("limits: moves a minute", f"{moves} of {most}" + (room if moves >= most else ""), moves >= most, until_ms)
    if config.max_moved_mb_per_minute is not None:
        load, limit = sum(entry[2] for entry in lately), config.max_moved_mb_per_minute * MB
        full = load + (bytes_per_s or 0.0) > limit
        told = f"{figure(load, 'bytes/s')} of {figure(limit, 'bytes/s')}, it would add {figure(bytes_per_s or 0.0, 'bytes/s')}"
        yield Check("limits: traffic moved a minute", told + (room if full else ""), full, until_ms)


def budget(now: Situation, bundle: str, drained: bool) -> Iterator[Check]:
    """How much of its namespace's budget of moves is used, and when there is room."""
    namespace = bundle.rpartition("/")[0]
    found = budgets(now.config.namespaces, Memory.from_json(now.last["memory"]), (), now.now_ms).get(namespace)
    if found is None:
        yield Check("limits: moves of its namespace an hour", f"{namespace} has no budget (moves_per_hour)")
        return
    again_ms = found.room_ms()
    room = "" if found.left else "; there is never room" if again_ms is None else f"; room at {clock(again_ms)}"
    used = f"{len(found.until_ms)} of {found.most}{room}"
    yield Check("limits: moves of its namespace an hour", used, not found.left and not drained, again_ms)


def policies(now: Situation, bundle: str, drained: bool) -> Iterator[Check]:
    """Whether bundles of its namespace are moved at all."""
    namespace = bundle.rpartition("/")[0]
    if is_system_bundle(bundle):
        yield Check("namespace", f"{namespace} is one of the system's: its bundle belongs to its broker", True)
        return
    excluded = namespace in now.config.balancer.shedding_excluded_namespaces
    yield Check("namespace", f"{namespace} is {'' if excluded else 'not '}in shedding_excluded_namespaces", excluded and not drained)


def waiting(now: Situation, known: Row, drained: bool) -> Iterator[Check]:
    """Dwell time and grace period are the shedder's; the back-off holds for all."""
    config, bundle = now.config.balancer, known["bundle"]
    if config.min_dwell_ms and known["owner_since_ms"] is not None:
        left_s = _left_s(now, known["owner_since_ms"] + config.min_dwell_ms)
        told = f"came at {clock(known['owner_since_ms'])}: stays for {config.min_dwell_ms / 1000:.0f} s (min_dwell_ms)"
        until_ms = known["owner_since_ms"] + config.min_dwell_ms
        yield Check("dwell time", f"{told}, {max(0.0, left_s):.0f} s of them to go", left_s > 0 and not drained, until_ms)
    at_ms, grace_ms = now.memory["recently_unloaded"].get(bundle), config.shedding_grace_period_ms
    if at_ms is None:
        yield Check("grace period", f"not unloaded within the last {grace_ms / 1000:.0f} s")
    else:
        left_s = _left_s(now, at_ms + grace_ms)
        told = f"unloaded at {clock(at_ms)}: left alone for {grace_ms / 1000:.0f} s, {max(0.0, left_s):.0f} s of them to go"
        yield Check("grace period", told, left_s >= 0 and not drained, at_ms + grace_ms)
    retry = now.memory["retries"].get(bundle)
    if retry is None:
        yield Check("back-off", "no decision about it has failed lately")
    else:
        left_s = _left_s(now, retry["not_before_ms"])
        told = f"{retry['attempts']} failed {retry['kind']}s in a row: not before {clock(retry['not_before_ms'])}"
        yield Check("back-off", told + (f", in {left_s:.0f} s" if left_s > 0 else ""), left_s > 0, retry["not_before_ms"])


def _left_s(now: Situation, until_ms: int) -> float:
    return float(until_ms - now.now_ms) / 1000


def bundles(now: Situation, broker: str, owned: list[Row], drained: bool) -> Check:
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


def of_last_pass(now: Situation, refusals: Sequence[Row], drained: bool) -> Iterator[Check]:
    """What the last pass refused, by its place. What kept only the shedder, or only an earlier pass, doesn't count any more."""
    last_ms, every_ms = now.memory["last_shed_ms"], now.config.balancer.shedding_interval_ms
    of_pass_ms = max((row["now_ms"] for row in now.loads), default=0) if drained else last_ms
    for place in PLACES:
        if place in ("operators", "suspension", "splitting") or (drained and place in ("strategy", "waiting")):
            continue  # these are checked by themselves, or don't keep a bundle from moving
        since_ms = now.last["now_ms"] if place == "assigning" else of_pass_ms  # every round assigns
        found = [row for row in refusals if place_of(row["rule"]) == place and since_ms is not None and row["last_ms"] >= since_ms]
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


def of_strategy(now: Situation, broker: str | None, drained: bool) -> Iterator[Check]:
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


def own_load(known: Row) -> Check:
    """How heavy the bundle is among its broker's bundles. Never keeps it where it is."""
    heavier = f"{known['heavier']} of its broker's {known['bundles']} bundles are heavier"
    return Check("its own load", f"{figure(known['short_bytes_per_s'], 'bytes/s')} short-term; {heavier}")
