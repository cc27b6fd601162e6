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
from lb_stream.core.commands.base import plural
from lb_stream.core.config.windows import Limited, closed
from lb_stream.core.disruption.budgets import Budget, build_budgets
from lb_stream.core.model.memory import Memory, Pending
from lb_stream.core.model.names import is_system_bundle
from lb_stream.core.model.operator_state import OperatorState, isolation_policy
from lb_stream.core.model.policies import describe_no_match
from lb_stream.core.model.rules import Refuses
from lb_stream.core.round.limits import MINUTE_MS
from lb_stream.core.shedding.base import MB
from lb_stream.io.messages.shown import figure
from lb_stream.io.messages.times import clock
from lb_stream.query.health import Facts, explain_staleness, list_job_findings
from lb_stream.query.references import (
    Reference,
    Remedy,
    approve_remedies,
    refer,
    remedy,
    remedy_each,
)
from lb_stream.query.strategy_numbers import describe_numbers
from lb_stream.query.wording import (
    NO_BROKER,
    RULES_BY_PLACE,
    explain_closed,
    explain_refusal,
)

if TYPE_CHECKING:
    from lb_stream.core.config.cluster_config import ClusterConfig
    from lb_stream.query.lake import Row


MOST_NAMED = 3


@dataclass(frozen=True, slots=True)
class Check:
    """The result of one check, and whether it keeps the bundle where it is (`blocks`).

    `until_ms`: the end of that, if known. `references`: what it is about. `remedies`: commands that
    end it.
    """

    name: str
    description: str
    blocks: bool = False
    until_ms: int | None = None
    references: tuple[Reference, ...] = ()
    remedies: tuple[Remedy, ...] = ()


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


def check_drain(now: Situation, broker: str | None, drained: bool, *, empty: bool = False) -> Check:
    """Check whether the bundle's broker is being drained. `empty`: it has no bundle any more."""
    if not drained:
        return Check("drain", "its broker is not being drained")
    text = f"{broker} is being drained: its bundles leave as limits and policies allow"
    if empty:
        text = f"{broker} is drained: it has no bundle, and gets none"
    if broker is None or not now.is_drained(broker):
        return Check("drain", text)
    about, ends = (
        refer("broker", now.cluster, broker),
        remedy("undrain", now.cluster, broker=broker),
    )
    return Check("drain", text, references=about, remedies=(ends,))


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
    blocks = found is None or found.phase != "draining"
    yield Check("rollout", text, blocks, references=refer("rollout", now.cluster))


def check_operators(now: Situation, drained: bool) -> Iterator[Check]:
    """Check pause, settings and dry run. Only a dry run also blocks a drain."""
    balancer, paused = now.config.balancer, bool(now.operator_state.paused)
    settings, dry_run = refer("settings", now.cluster), balancer.dry_run
    resume = (remedy("resume", now.cluster),) if paused else ()
    text = "an operator has paused balancing" if paused else "no operator has paused balancing"
    yield Check("operators", text, paused and not drained, remedies=resume)
    for name, key, is_on in (
        ("balancing", "enabled", balancer.enabled),
        ("shedding", "shedding_enabled", balancer.shedding_enabled),
    ):
        text = f"{key} = {is_on}".lower()
        yield Check(name, text, not is_on and not drained, references=settings)
    publish = (remedy("publish", now.cluster), remedy("ask-first", now.cluster)) if dry_run else ()
    text = "decisions are logged and not published" if dry_run else "off"
    yield Check("dry run", text, dry_run, remedies=publish)


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
        about = refer("settings", now.cluster)
        yield Check("disruption windows", text, not drained, shut.until_ms, about)


def check_pin(now: Situation, bundle: str, drained: bool) -> Check:
    """Check whether an operator has pinned the bundle."""
    until_ms = now.operator_state.pins.get(bundle, 0)
    if until_ms <= now.now_ms:
        return Check("pin", "it is not pinned")
    text = f"an operator's command has pinned it until {clock(until_ms)}"
    ends = (remedy("unpin", now.cluster, bundle=bundle),)
    return Check("pin", text, not drained, until_ms, remedies=ends)


def check_exclusions(now: Situation) -> Iterator[Check]:
    """Count the bundles that operators have pinned, or whose proposals they have rejected."""
    pins = {name: at for name, at in now.operator_state.pins.items() if at > now.now_ms}
    if pins:
        verb = "is" if len(pins) == 1 else "are"
        text = f"{plural(len(pins), 'bundle')} {verb} pinned by operators' commands"
        soonest = sorted(pins, key=lambda name: pins[name])
        about = refer("bundle", now.cluster, *soonest)
        yield Check("pins", text, until_ms=min(pins.values()), references=about)
    rejected = [
        rejection for rejection in now.operator_state.rejections if rejection.until_ms > now.now_ms
    ]
    if rejected:
        text = f"{len(rejected)} bundles stay as they are: proposals about them were rejected"
        if len(rejected) == 1:
            text = "1 bundle stays as it is: a proposal about it was rejected"
        until_ms = min(rejection.until_ms for rejection in rejected)
        about = refer("proposals", now.cluster)
        yield Check("rejections", text, until_ms=until_ms, references=about)


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
                refer("proposals", now.cluster),
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
        about = refer("proposals", now.cluster)
        ends = approve_remedies(now.cluster, [proposal.proposal_id])
        yield Check("approval", text, not drained, proposal.expires_ms, about, ends)
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
        text += " (lbctl proposals)" if mine else ""
        until_ms = min((decision.expires_ms for decision in mine), default=None)
        about = refer("proposals", now.cluster)
        ends = approve_remedies(now.cluster, [proposal.proposal_id for proposal in mine])
        yield Check("approval", text, bool(mine) and not drained, until_ms, about, ends)


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
    last_round = refer("round", now.cluster, str(now.last["seq"]))
    silent = () if held is None else tuple(held.brokers)
    dead = tuple(remedy_each("declare-dead", now.cluster, "broker", silent))
    about = refer("broker", now.cluster, *silent) if silent else last_round
    if retry_ms > now.now_ms:
        found = f"the last rounds failed: the next is tried at {clock(retry_ms)}"
        yield Check("suspension", found, True, retry_ms, last_round)
    else:
        yield Check("suspension", found, bool(rules), None, about, dead)
    text = f"{now.last['seq']}, without an error"
    if error:
        text = f"failed: {error.strip().splitlines()[-1]}"
    yield Check("last round", text, error is not None, references=last_round)


def check_broker_alive(now: Situation, broker: str) -> Check:
    """Check whether the broker is alive."""
    load = now.find_load(broker)
    if load is not None and load["alive"]:
        return Check("broker", "it is alive")
    about = refer("broker", now.cluster, broker)
    return Check("broker", "it is dead: its bundles are assigned to others", True, None, about)


def check_owner(now: Situation, known: Row) -> Check:
    """Check which broker has the bundle."""
    load = now.find_load(known["owner"])
    if known["owner"] is None:
        text = f"{NO_BROKER}: there is nothing to unload; it waits to be assigned"
        return Check("owner", text, True)
    about = refer("broker", now.cluster, known["owner"])
    if load is not None and not load["alive"]:
        text = f"{known['owner']}, which is dead: its bundles are assigned, not unloaded"
        return Check("owner", text, True, references=about)
    text = f"{known['owner']} since {clock(known['owner_since_ms'])}"
    return Check("owner", text, references=about)


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
    about = refer("decision", now.cluster, decision.decision_id)
    return Check("pending", text, True, decision.expires_ms, about)


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
        text = f"{len(moves_in_flight)} of {limit}{room}"
        about = _refer_to_moves(now, moves_in_flight) if full else ()
        yield Check(f"limits: {name}", text, full, until_ms, about)
    # moves of the last minute: their number, and their traffic
    recent = [entry for entry in now.memory.moved if now.now_ms - entry[0] < MINUTE_MS]
    until_ms = min(entry[0] for entry in recent) + MINUTE_MS if recent else None
    room = "" if until_ms is None else f"; room at {clock(until_ms)}"
    moves, limit = sum(entry[1] for entry in recent), config.max_moves_per_minute
    full = moves >= limit
    text = f"{moves} of {limit}{room if full else ''}"
    settings = refer("settings", now.cluster)
    yield Check("limits: moves a minute", text, full, until_ms, settings if full else ())
    if config.max_moved_mb_per_minute is not None:
        load = sum(entry[2] for entry in recent)
        max_load = config.max_moved_mb_per_minute * MB
        full = load + (bytes_per_s or 0.0) > max_load
        text = (
            f"{figure(load, 'bytes/s')} of {figure(max_load, 'bytes/s')}; its move would add "
            f"{figure(bytes_per_s or 0.0, 'bytes/s')}"
        )
        text += room if full else ""
        name, about = "limits: traffic moved a minute", settings if full else ()
        yield Check(name, text, full, until_ms, about)


def _refer_to_moves(now: Situation, moves: Sequence[Pending]) -> tuple[Reference, ...]:
    return refer("decision", now.cluster, *(move.decision_id for move in moves)) if moves else ()


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
    about = refer("namespace", now.cluster, namespace)
    yield Check(name, text, not found.left and not drained, room_ms, about)


def check_full_brokers(now: Situation) -> Iterator[Check]:
    """Check whether brokers have the maximum of pending moves out of them."""
    limit = now.config.balancer.max_moves_in_flight_per_broker
    moving = [decision for decision in now.memory.pending if decision.kind in MOVES]
    counts = Counter(move.source for move in moving if move.source is not None)
    full = sorted(broker for broker, count in counts.items() if count >= limit)
    if full:
        until_ms = min(move.expires_ms for move in moving if move.source in full)
        text = f"{limit} of {limit} at {list_names(full, len(full))}; room when one of them ends"
        about = refer("broker", now.cluster, *full)
        yield Check("limits: moves in flight of a broker", text, True, until_ms, about)


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
            about = refer("settings", now.cluster)
            yield Check("isolation", text, found is not None, None, about)
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
        yield Check("back-off", "no failed decision about it waits to be tried again")
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
    if not owned:
        return Check("bundles", "it has no bundle", blocks=True)
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


def list_names(names: Sequence[str], count: int) -> str:
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
        about = refer("broker", now.cluster, broker)
        yield Check("numbers", text, not found.exceeds_limit and not drained, None, about)
    usage = figure(load["usage_ratio"], "ratio")
    yield Check("its broker", f"{usage} usage, place {load['place']} of {load['brokers']}")


def check_own_load(known: Row) -> Check:
    """Return the bundle's load and its place among the bundles of its broker. Never blocks."""
    load = figure(known["short_bytes_per_s"], "bytes/s")
    verb = "is" if known["heavier"] == 1 else "are"
    heavier = f"{known['heavier']} of its broker's {known['bundles']} bundles {verb} heavier"
    return Check("its own load", f"{load} short-term; {heavier}")
