"""Checks of the causes that may keep a bundle, or a broker's load, where it is.

The argument `drained` of many functions: the broker is being drained, or the namespace deleted.
Then checks that concern only the shedder don't block.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lb_stream.contracts.decisions import MOVES
from lb_stream.core.config.windows import Limited, closed
from lb_stream.core.disruption.budgets import Budget, build_budgets
from lb_stream.core.model.memory import Memory
from lb_stream.core.model.names import is_system_bundle
from lb_stream.core.model.operator_state import OperatorState, isolation_policy
from lb_stream.core.model.policies import describe_no_match
from lb_stream.core.model.rules import Refuses
from lb_stream.core.round.limits import MINUTE_MS
from lb_stream.core.shedding.base import MB
from lb_stream.io.messages.shown import figure
from lb_stream.io.messages.times import clock
from lb_stream.query.health import Facts, explain_staleness, list_job_findings
from lb_stream.query.strategy_numbers import describe_numbers
from lb_stream.query.wording import (
    NO_BROKER,
    RULES_BY_PLACE,
    explain_closed,
    explain_refusal,
    place_of_rule,
    rule_precedence,
)

if TYPE_CHECKING:
    from lb_stream.core.config.cluster_config import ClusterConfig
    from lb_stream.query.lake import Row


MOST_NAMED = 3


@dataclass(frozen=True, slots=True)
class Check:
    """The result of one check, and whether it keeps the bundle where it is (`blocks`).

    `until_ms`: the end of that, if known.
    """

    name: str
    description: str
    blocks: bool = False
    until_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Situation:
    """The state of a cluster that is checked.

    `last`: the last round of the log. `loads`: brokers in the last round with a report. `now_ms`:
    the time of the last batch or of the last round, whichever is later.
    """

    cluster: str
    last: Row
    memory: Memory
    config: ClusterConfig
    now_ms: int
    loads: Sequence[Row]

    @property
    def operator_state(self) -> OperatorState:
        """Return the state that operators' commands have set."""
        return self.memory.operator_state

    def find_load(self, broker: str | None) -> Row | None:
        """Return a broker's load in the last round with a report."""
        return next((row for row in self.loads if row["broker"] == broker), None)

    def is_drained(self, broker: str | None) -> bool:
        """Return whether the broker is being drained, or is drained, by a command."""
        return broker in self.operator_state.drained


def check_job(facts: Facts) -> Iterator[Check]:
    """Check whether the job runs and decides on current figures.

    Findings don't block if no job has ever been started with the tables.
    """
    findings = list(list_job_findings(facts))
    if not findings:
        yield Check("job", f"it runs ({facts.job.evidence})")
    stale = explain_staleness(facts)
    for finding in findings:
        text = f"{finding.description}: {finding.advice}"
        if stale is not None and stale.startswith(finding.description):
            text = stale
        yield Check("job", text, facts.job.epoch is not None and finding.event != "job_unknown")
    if facts.standbys:
        names = ", ".join(standby.instance for standby in facts.standbys)
        yield Check("standby", f"{names} stands by, and takes over when the leader's ticks stop")


def check_drain(now: Situation, broker: str | None, drained: bool) -> Check:
    """Check whether the bundle's broker is being drained."""
    if not drained:
        return Check("drain", "its broker is not being drained")
    text = f"{broker} is being drained: its bundles leave as limits and policies allow"
    return Check("drain", text)


def check_rollout(now: Situation, broker: str | None) -> Iterator[Check]:
    """Check whether a rollout is on: only brokers that it empties, or full ones, are relieved."""
    order, progress = now.operator_state.rollout, now.memory.rollout
    if order is None or order.aborted:
        return
    text = f"a rollout of {len(order.brokers)} brokers is on: until its end only full brokers are"
    text += " relieved"
    found = None if progress is None else progress.brokers.get(broker or "")
    if found is not None:
        texts = {
            "waiting": "is restarted later",
            "draining": "is being emptied, and then restarted",
            "empty": "is empty, and may be restarted",
            "down": "is away for its restart",
            "done": "has been restarted",
        }
        text += f"; {broker} {texts[found.phase]}"
    yield Check("rollout", text, found is None or found.phase != "draining")


def check_operators(now: Situation, drained: bool) -> Iterator[Check]:
    """Check pause, settings and dry run. Only a dry run also blocks a drain."""
    balancer, paused = now.config.balancer, bool(now.operator_state.paused)
    yield Check(
        "operators",
        "an operator has paused balancing" if paused else "no operator has paused balancing",
        paused and not drained,
    )
    yield Check(
        "balancing", f"enabled = {balancer.enabled}".lower(), not balancer.enabled and not drained
    )
    yield Check(
        "shedding",
        f"shedding_enabled = {balancer.shedding_enabled}".lower(),
        not balancer.shedding_enabled and not drained,
    )
    yield Check(
        "dry run",
        "decisions are logged and not published" if balancer.dry_run else "off",
        balancer.dry_run,
    )


def check_windows(now: Situation, bundle: str | None, drained: bool) -> Iterator[Check]:
    """Check whether a freeze or closed disruption windows keep balancing from moving a bundle."""
    namespace = (bundle or "").rpartition("/")[0]
    limits: dict[str, Limited] = {"the cluster": now.config.balancer}
    if namespace in now.config.namespaces:
        limits[namespace] = now.config.namespaces[namespace]
    for name, own in limits.items():
        shut = closed(own, now.now_ms)
        if shut is None:
            text = f"{name} has no freeze now, and no closed window"
            yield Check("disruption windows", text)
            continue
        text = f"{name}: {explain_closed(shut)}"
        yield Check("disruption windows", text, not drained, shut.until_ms)


def check_pin(now: Situation, bundle: str, drained: bool) -> Check:
    """Check whether an operator has pinned the bundle."""
    until_ms = now.operator_state.pins.get(bundle, 0)
    if until_ms <= now.now_ms:
        return Check("pin", "it is not pinned")
    return Check("pin", f"an operator's command has pinned it until {clock(until_ms)}", not drained)


def check_exclusions(now: Situation) -> Iterator[Check]:
    """Count the bundles that operators have pinned, or whose proposals they have rejected."""
    pins = [until_ms for until_ms in now.operator_state.pins.values() if until_ms > now.now_ms]
    if pins:
        text = f"{len(pins)} bundles are pinned by operators' commands"
        yield Check("pins", text, until_ms=min(pins))
    rejected = [
        rejection for rejection in now.operator_state.rejections if rejection.until_ms > now.now_ms
    ]
    if rejected:
        text = f"{len(rejected)} bundles stay as they are: proposals about them were rejected"
        yield Check("rejections", text, until_ms=min(rejection.until_ms for rejection in rejected))


def check_approval(now: Situation, bundle: str, drained: bool) -> Iterator[Check]:
    """Check whether proposals about the bundle were rejected, or wait for approval."""
    for rejection in now.operator_state.rejections:
        if rejection.bundle == bundle and rejection.until_ms > now.now_ms:
            action = "move" if rejection.is_move else "split"
            text = (
                f"{rejection.by or 'an operator'} has rejected a proposal to {action} it, until "
                f"{clock(rejection.until_ms)}: {rejection.why}"
            )
            yield Check(
                "rejection",
                f"{text} ({rejection.proposal_id})",
                rejection.is_move and not drained,
                rejection.until_ms,
            )
    waiting = [proposal for proposal in now.memory.proposals if proposal.bundle == bundle]
    for proposal in waiting:
        action = f"move it to {proposal.destination or 'a broker to be found'}"
        if proposal.kind == "split":
            action = "split it"
        text = (
            f"{proposal.proposal_id}, to {action}, waits until {clock(proposal.expires_ms)}: "
            f"lbctl approve {proposal.proposal_id}"
        )
        yield Check("approval", text, not drained, proposal.expires_ms)
    if now.config.balancer.mode == "approve" and not waiting:
        yield Check(
            "approval",
            "moves of balancing wait for approval (mode = approve); no proposal is about it",
        )


def check_proposals(now: Situation, broker: str | None, drained: bool) -> Iterator[Check]:
    """Check whether moves from a broker (None: from any) wait for approval."""
    waiting = now.memory.proposals
    mine = [proposal for proposal in waiting if broker in (None, proposal.source)]
    if now.config.balancer.mode == "approve" or mine:
        whose = "" if broker is None else " about its bundles"
        subject, verb = ("proposal", "waits") if len(mine) == 1 else ("proposals", "wait")
        text = f"{len(mine)} {subject}{whose} {verb} for approval"
        text += ": lbctl proposals" if mine else ""
        until_ms = min((decision.expires_ms for decision in mine), default=None)
        yield Check("approval", text, bool(mine) and not drained, until_ms)


def check_suspension(now: Situation) -> Iterator[Check]:
    """Check whether decisions are suspended, and whether the last round failed."""
    refused = json.loads(now.last["refusals"] or "[]")
    rules = [
        refusal["rule"] for refusal in refused if refusal["rule"] in RULES_BY_PLACE["suspension"]
    ]
    clash = now.memory.balances and not now.config.balancer.dry_run
    # Not every round repeats these refusals: that of two balancers, and that of a suspension.
    if clash and Refuses.BALANCES_ITSELF.name not in rules:
        rules.append(Refuses.BALANCES_ITSELF.name)
    error, retry_ms = now.last["error"], now.memory.retry_ms
    found = "; ".join(f"{rule}: {explain_refusal(rule)}" for rule in rules) or "none"
    if (held := now.memory.suspension) is not None:
        rules = [held.rule]
        found = f"{held.rule} since {clock(held.since_ms)}: {explain_refusal(held.rule)}"
    if retry_ms > now.now_ms:
        found = f"the last rounds failed: the next is tried at {clock(retry_ms)}"
        yield Check("suspension", found, True, retry_ms)
    else:
        yield Check("suspension", found, bool(rules))
    text = f"{now.last['seq']}, without an error"
    if error:
        text = f"failed: {error.strip().splitlines()[-1]}"
    yield Check("last round", text, error is not None)


def check_broker_alive(now: Situation, broker: str) -> Check:
    """Check whether the broker is alive."""
    load = now.find_load(broker)
    if load is not None and load["alive"]:
        return Check("broker", "it is alive")
    return Check("broker", "it is dead: its bundles are assigned to others", True)


def check_owner(now: Situation, known: Row) -> Check:
    """Check which broker has the bundle."""
    load = now.find_load(known["owner"])
    if known["owner"] is None:
        text = f"{NO_BROKER}: there is nothing to unload; it waits to be assigned"
        return Check("owner", text, True)
    if load is not None and not load["alive"]:
        text = f"{known['owner']}, which is dead: its bundles are assigned, not unloaded"
        return Check("owner", text, True)
    return Check("owner", f"{known['owner']} since {clock(known['owner_since_ms'])}")


def check_pending(now: Situation, bundle: str, rules: Mapping[str, str]) -> Check:
    """Check whether a decision about the bundle is pending, or its move is queued.

    `rules`: id of a pending decision → its rule with its explanation.
    """
    found = [
        decision
        for decision in now.memory.pending
        if bundle in (decision.bundle, decision.neighbour)
    ]
    for command in now.operator_state.waiting if not found else ():
        if bundle in command.queued:
            destination = command.command["arguments"].get("destination")
            to = "" if destination is None else f" to {destination}"
            text = f"the command {command.command['id']} moves it{to} once limits leave room"
            return Check("pending", text, True)
    if not found:
        return Check("pending", "no decision about it is pending")
    decision = found[-1]
    rule = rules.get(decision.decision_id)
    by = "" if rule is None else f" ({rule})"
    until = clock(decision.expires_ms)
    text = f"{decision.kind} {decision.decision_id}{by} is pending until {until}"
    return Check("pending", text, True, decision.expires_ms)


def check_limits(now: Situation, broker: str | None, bytes_per_s: float | None) -> Iterator[Check]:
    """Check each limit on moves: the used part, and when there is room.

    `bytes_per_s`: throughput of the bundle, which its move would add.
    """
    config = now.config.balancer
    # moves in flight, of the cluster and of the broker
    moving = [decision for decision in now.memory.pending if decision.kind in MOVES]
    mine = [move for move in moving if move.source == broker]
    for name, moves_in_flight, limit in (
        ("moves in flight", moving, config.max_moves_in_flight),
        ("moves in flight of its broker", mine, config.max_moves_in_flight_per_broker),
    ):
        full = len(moves_in_flight) >= limit
        until_ms = (
            min((move.expires_ms for move in moves_in_flight), default=None) if full else None
        )
        room = "" if until_ms is None else f"; room when one of them ends, by {clock(until_ms)}"
        yield Check(f"limits: {name}", f"{len(moves_in_flight)} of {limit}{room}", full, until_ms)
    # moves of the last minute: their number, and their traffic
    recent = [entry for entry in now.memory.moved if now.now_ms - entry[0] < MINUTE_MS]
    until_ms = min(entry[0] for entry in recent) + MINUTE_MS if recent else None
    room = "" if until_ms is None else f"; room at {clock(until_ms)}"
    moves, limit = sum(entry[1] for entry in recent), config.max_moves_per_minute
    full = moves >= limit
    text = f"{moves} of {limit}{room if full else ''}"
    yield Check("limits: moves a minute", text, full, until_ms)
    if config.max_moved_mb_per_minute is not None:
        load = sum(entry[2] for entry in recent)
        max_load = config.max_moved_mb_per_minute * MB
        full = load + (bytes_per_s or 0.0) > max_load
        text = (
            f"{figure(load, 'bytes/s')} of {figure(max_load, 'bytes/s')}; its move would add "
            f"{figure(bytes_per_s or 0.0, 'bytes/s')}"
        )
        yield Check("limits: traffic moved a minute", text + (room if full else ""), full, until_ms)


def check_budget(now: Situation, bundle: str, drained: bool) -> Iterator[Check]:
    """Check the disruption budget of the bundle's namespace: its used part, and when it has room."""
    namespace = bundle.rpartition("/")[0]
    found = _budgets(now).get(namespace)
    name = "limits: moves of its namespace an hour"
    if found is None:
        yield Check(name, f"{namespace} has no budget (moves_per_hour)")
        return
    room_ms = found.room_ms()
    room = ""
    if not found.left:
        room = "; it never leaves room" if room_ms is None else f"; room at {clock(room_ms)}"
    text = f"{len(found.until_ms)} of {found.limit}{room}"
    yield Check(name, text, not found.left and not drained, room_ms)


def check_full_brokers(now: Situation) -> Iterator[Check]:
    """Check whether brokers have the maximum of pending moves out of them."""
    limit = now.config.balancer.max_moves_in_flight_per_broker
    moving = [decision for decision in now.memory.pending if decision.kind in MOVES]
    counts = Counter(move.source for move in moving if move.source is not None)
    full = sorted(broker for broker, count in counts.items() if count >= limit)
    if full:
        until_ms = min(move.expires_ms for move in moving if move.source in full)
        text = f"{limit} of {limit} at {_list_names(full, len(full))}; room when one of them ends"
        yield Check("limits: moves in flight of a broker", text, True, until_ms)


def _budgets(now: Situation) -> dict[str, Budget]:
    return build_budgets(now.config.namespaces, now.memory, (), now.now_ms)


def check_policies(now: Situation, bundle: str, drained: bool) -> Iterator[Check]:
    """Check whether policies let the bundles of its namespace move."""
    namespace = bundle.rpartition("/")[0]
    if is_system_bundle(bundle):
        text = f"{namespace} is a system namespace: its bundle belongs to its broker"
        yield Check("namespace", text, True)
        return
    live = [row["broker"] for row in now.loads if row["alive"]]
    for name, given in now.operator_state.isolation.items():
        policy = isolation_policy(given)
        if policy.names(namespace):
            found = describe_no_match(policy, live, now.config.balancer.isolation_by_port)
            text = found or f"the policy {name} is about {namespace}"
            yield Check("isolation", text, found is not None)
            break
    excluded = namespace in now.config.balancer.shedding_excluded_namespaces
    yield Check(
        "namespace",
        f"{namespace} is {'' if excluded else 'not '}in shedding_excluded_namespaces",
        excluded and not drained,
    )


def check_waits(now: Situation, known: Row, drained: bool) -> Iterator[Check]:
    """Check dwell time, grace period and back-off. Only the back-off also blocks a drain."""
    config, bundle = now.config.balancer, known["bundle"]
    if config.min_dwell_ms and known["owner_since_ms"] is not None:
        left_s = _left_s(now, known["owner_since_ms"] + config.min_dwell_ms)
        text = (
            f"it came at {clock(known['owner_since_ms'])} and stays for "
            f"{config.min_dwell_ms / 1000:.0f} s (min_dwell_ms)"
        )
        until_ms = known["owner_since_ms"] + config.min_dwell_ms
        yield Check(
            "dwell time",
            f"{text}: {max(0.0, left_s):.0f} s are left",
            left_s > 0 and not drained,
            until_ms,
        )
    at_ms, grace_ms = now.memory.recently_unloaded.get(bundle), config.shedding_grace_period_ms
    if at_ms is None:
        yield Check("grace period", f"it was not unloaded in the last {grace_ms / 1000:.0f} s")
    else:
        left_s = _left_s(now, at_ms + grace_ms)
        text = (
            f"it was unloaded at {clock(at_ms)} and stays for {grace_ms / 1000:.0f} s: "
            f"{max(0.0, left_s):.0f} s are left"
        )
        yield Check("grace period", text, left_s >= 0 and not drained, at_ms + grace_ms)
    retry = now.memory.retries.get(bundle)
    if retry is None:
        yield Check("back-off", "no recent decision about it has failed")
    else:
        left_s = _left_s(now, retry.not_before_ms)
        text = (
            f"{retry.attempts} failed {retry.kind}s in a row: not before "
            f"{clock(retry.not_before_ms)}"
        )
        if left_s > 0:
            text += f", in {left_s:.0f} s"
        yield Check("back-off", text, left_s > 0, retry.not_before_ms)


def _left_s(now: Situation, until_ms: int) -> float:
    return float(until_ms - now.now_ms) / 1000


def check_bundles(
    now: Situation, owned: list[Row], refused: Collection[str], drained: bool
) -> Check:
    """Count the broker's bundles that may move now. `refused`: by the last pass."""
    names = {row["bundle"] for row in owned}
    blocked = [
        (reason, names & bundles)
        for reason, bundles in _find_blocked_bundles(now, owned, refused, drained)
    ]
    free = len(names.difference(*(bundles for _, bundles in blocked)))
    parts = [f"{free} of its {len(names)} bundles may move"]
    parts += [f"{len(bundles)} {reason}" for reason, bundles in blocked if bundles]
    return Check("bundles", ", ".join(parts), free == 0)


def _find_blocked_bundles(
    now: Situation, owned: list[Row], refused: Collection[str], drained: bool
) -> Iterator[tuple[str, set[str]]]:
    """Yield reasons why bundles may not move now, with these bundles, in the order of `PLACES`."""
    config, memory, now_ms = now.config.balancer, now.memory, now.now_ms
    names = {row["bundle"] for row in owned}
    yield "of the system", {name for name in names if is_system_bundle(name)}
    queued = {name for command in now.operator_state.waiting for name in command.queued}
    yield "pending", {decision.bundle for decision in memory.pending} | queued
    retries = memory.retries.items()
    yield "backing off", {name for name, retry in retries if retry.not_before_ms > now_ms}
    if drained:
        return  # the other reasons concern balancing only
    pins = now.operator_state.pins.items()
    yield "pinned", {name for name, until_ms in pins if until_ms > now_ms}
    rejections = [
        rejection for rejection in now.operator_state.rejections if rejection.until_ms > now_ms
    ]
    yield (
        "rejected by an operator",
        {rejection.bundle for rejection in rejections if rejection.is_move},
    )
    yield "waiting for approval", {proposal.bundle for proposal in memory.proposals}
    own = now.config.namespaces
    shut = {name for name, limits in own.items() if closed(limits, now_ms) is not None}
    yield "of namespaces that are frozen or outside their windows", _in_namespaces(names, shut)
    used_up = {name for name, budget in _budgets(now).items() if not budget.left}
    yield "of namespaces whose budget of moves is used up", _in_namespaces(names, used_up)
    excluded = set(config.shedding_excluded_namespaces)
    yield "of excluded namespaces", _in_namespaces(names, excluded)
    unloaded, grace_ms = memory.recently_unloaded.items(), config.shedding_grace_period_ms
    yield "in their grace period", {name for name, at_ms in unloaded if at_ms + grace_ms >= now_ms}
    since_ms = now_ms - config.min_dwell_ms
    staying = {row["bundle"] for row in owned if (row["owner_since_ms"] or 0) > since_ms}
    yield "in their dwell time", staying
    yield "refused by the last pass", set(refused)


def _in_namespaces(names: Collection[str], namespaces: Collection[str]) -> set[str]:
    """Return the bundles that are in one of the namespaces."""
    return {name for name in names if name.rpartition("/")[0] in namespaces}


def check_last_pass(now: Situation, refusals: Sequence[Row], drained: bool) -> Iterator[Check]:
    """Yield the refusals of the last pass, in the rules' order; then the time of the pass.

    `refusals`: rows of the table since `find_pass_begin_ms`. Refusals of earlier passes don't
    count. If the broker is drained, those that concern only the shedder don't count either.
    """
    for rule in sorted({row["rule"] for row in refusals}, key=rule_precedence):
        place = place_of_rule(rule)
        if place == "operators" or (place == "suspension" and rule not in _OF_A_PASS):
            continue  # other checks have these
        begin_ms = _begin_ms(now, place, drained)
        rows = [row for row in refusals if row["rule"] == rule]
        rows = [row for row in rows if begin_ms is not None and row["now_ms"] >= begin_ms]
        if rows and not (drained and place in _OF_SHEDDER):
            keeps = place not in ("splitting", "")
            yield Check(place or "noted", _describe_refusals(rows, place), keeps, _until_ms(rows))
    last_ms, every_ms = now.memory.last_shed_ms, now.config.balancer.shedding_interval_ms
    if last_ms is None:
        yield Check("shedding pass", "there has been none yet", not drained)
        return
    ago_s = (now.now_ms - last_ms) / 1000
    text = f"last at {clock(last_ms)}, {ago_s:.0f} s ago; every {every_ms / 1000:g} s"
    yield Check("shedding pass", text)


_OF_A_PASS = frozenset({Refuses.SINGLE_BROKER.name})
"""Rules about the cluster's state that only refusals of a pass show; see `check_suspension`."""
_OF_SHEDDER = ("strategy", "waiting", "limits")
"""Places of rules that don't block a drain, or that other checks of a drain cover."""


def find_pass_begin_ms(now: Situation, drained: bool) -> int:
    """Return the time (ms) since which refusals may be the last pass's or the last round's."""
    begins = (_begin_ms(now, place, drained) for place in ("assigning", "policies"))
    return min(begin_ms for begin_ms in begins if begin_ms is not None)


def _begin_ms(now: Situation, place: str, drained: bool) -> int | None:
    """Return when the last round began that applies the rules of a place; None: none has yet."""
    if place == "assigning":
        return int(now.last["now_ms"])  # every round assigns
    if drained:
        return max((row["now_ms"] for row in now.loads), default=0)
    last_ms: int | None = now.memory.last_shed_ms
    return last_ms


def _describe_refusals(rows: Sequence[Row], place: str) -> str:
    """Describe the refusals of one rule: number, brokers, subjects and figures."""
    times, last = sum(row["count"] for row in rows), max(rows, key=lambda row: row["seq"])
    counted = f", {times} times" if times > 1 else ""
    brokers = sorted({row["broker"] for row in rows if row["broker"]})
    subjects = sorted({subject for row in rows for subject in row["subjects"] or ()})
    about = f" ({_list_names(subjects, times)})" if subjects else ""
    saw = ""
    if seen := [row for row in rows if row["greatest"] is not None]:
        low = min(seen, key=lambda row: row["least"])
        high = max(seen, key=lambda row: row["greatest"])
        figures = figure(low["least"], low["unit"]), figure(high["greatest"], high["unit"])
        saw = f", saw {' to '.join(dict.fromkeys(figures))}"
    limit = "" if last["limit"] is None else f", limit {figure(last['limit'], last['unit'])}"
    until_ms = _until_ms(rows)
    until = "" if until_ms is None else f", until {clock(until_ms)}"
    refused_in = f"refused in the last {'round' if place == 'assigning' else 'pass'}"
    where = f"at {_list_names(brokers, len(brokers)) or 'the cluster'} in round {last['seq']}"
    rule = f"{last['rule']}{counted} {where}{about}: {explain_refusal(last['rule'])}"
    return f"{refused_in}: {rule}{saw}{limit}{until}"


def _until_ms(rows: Sequence[Row]) -> int | None:
    return min((row["until_ms"] for row in rows if row["until_ms"] is not None), default=None)


def _list_names(names: Sequence[str], count: int) -> str:
    """Return the first names and the number of others: a, b, c and 2 more."""
    first = names[:MOST_NAMED]
    return ", ".join(first) + (f" and {count - len(first)} more" if count > len(first) else "")


def check_strategy_figures(now: Situation, broker: str | None, drained: bool) -> Iterator[Check]:
    """Check the broker's numbers against the shedder's limits, and its place by usage."""
    load = now.find_load(broker)
    if broker is None or load is None:
        return
    # A shedder doesn't see drained brokers, but this broker's numbers are shown nevertheless.
    alive = [row for row in now.loads if row["active"] or (row["alive"] and row is load)]
    shedder = now.config.shedder.name
    found = describe_numbers(
        shedder,
        now.config.shedder_config,
        now.memory.strategies.get(shedder, {}),
        alive,
        broker,
    )
    if found is not None:
        text = f"{shedder}: {broker}: {found.text}"
        yield Check("numbers", text, not found.exceeds_limit and not drained)
    usage = figure(load["usage_ratio"], "ratio")
    yield Check("its broker", f"{usage} usage, place {load['place']} of {load['brokers']}")


def check_own_load(known: Row) -> Check:
    """Return the bundle's load and its place among the bundles of its broker. Never blocks."""
    load = figure(known["short_bytes_per_s"], "bytes/s")
    heavier = f"{known['heavier']} of its broker's {known['bundles']} bundles are heavier"
    return Check("its own load", f"{load} short-term; {heavier}")
