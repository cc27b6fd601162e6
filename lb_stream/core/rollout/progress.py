"""How far a rollout is: the phase of each broker, as its own reports show it.

A broker is empty when its own report shows no bundle: what it has released no longer needs it, even
if the receivers have not confirmed yet. It is done when it is back with another start of its
process. So a broker that is restarted out of turn is done, too.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from lb_stream.core.model.rollout import (
    BEGUN,
    MOST_AGAIN,
    BrokerPhase,
    BrokerProgress,
    RolloutNews,
    RolloutOrder,
    RolloutProgress,
)


@dataclass(frozen=True, slots=True)
class BrokerFacts:
    """What a round knows of a broker."""

    alive: bool = False
    start_ms: int = 0  # start of its process, by its own clock; 0: not reported
    version: str = ""  # as it reports it
    reported_ms: int = 0  # its last report
    bundles: int = 0  # that it serves by its own report, without system bundles
    moving: int = 0  # bundles whose moves out of it or into it are pending


UNKNOWN = BrokerFacts()
"""The facts about a broker that has never reported, or is forgotten."""


def begin(order: RolloutOrder, facts: Mapping[str, BrokerFacts], now_ms: int) -> RolloutProgress:
    """Return the progress of a rollout that has just been ordered."""
    brokers = {
        name: BrokerProgress(start_ms=facts.get(name, UNKNOWN).start_ms, since_ms=now_ms)
        for name in order.brokers
    }
    return RolloutProgress(id=order.id, begun_ms=now_ms, brokers=brokers)


def follow(
    order: RolloutOrder,
    before: RolloutProgress,
    facts: Mapping[str, BrokerFacts],
    now_ms: int,
) -> tuple[RolloutProgress, list[RolloutNews]]:
    """Return the progress after a round's reports, and what is new.

    `facts`: broker → what its reports say; brokers without facts are taken for stopped ones.
    """
    # A memory that has been read from a log has them by name: the order says which is first.
    known = before.brokers
    brokers = {name: known[name] for name in order.brokers if name in known}
    news = list[RolloutNews]()
    for name, was in list(brokers.items()):
        is_now = _follow_broker(order, before, name, facts.get(name, UNKNOWN), now_ms)
        if is_now == was:
            continue
        brokers[name] = is_now
        if is_now.phase != was.phase or is_now.note != was.note:
            news.append(describe_phase(order.id, name, was, is_now, now_ms))
    return replace(before, brokers=brokers), news


def _follow_broker(
    order: RolloutOrder, rollout: RolloutProgress, name: str, facts: BrokerFacts, now_ms: int
) -> BrokerProgress:
    """Return a broker's progress after its reports."""
    was = rollout.brokers[name]
    if was.phase == "done":
        return was
    is_before = 0 < facts.start_ms <= rollout.begun_ms and was.phase in ("waiting", "draining")
    if is_before and not was.start_ms:
        # It tells its start late, and nobody was to restart it yet.
        was = replace(was, start_ms=facts.start_ms)
    if not facts.alive:
        return _enter(was, "down", now_ms)
    is_settled = name in order.restarted and not facts.start_ms
    if is_settled or _has_restarted(was, facts, rollout.begun_ms):
        if order.version is None or facts.version == order.version:
            return _enter(was, "done", now_ms)
        # One that drains is emptied all the same, so that it can be restarted once more.
        if was.phase != "draining":
            note = f"is back with version {facts.version or 'unknown'}, not {order.version}"
            return was if was.note == note else replace(was, note=note)
    if was.phase == "down" and facts.reported_ms > was.since_ms:
        # It was silent, and has not restarted: its turn comes again.
        return _enter(was, "waiting", now_ms)
    if was.phase == "draining" and not facts.bundles and not facts.moving:
        return _enter(was, "empty", now_ms)
    if was.phase == "empty" and facts.bundles:
        return _enter(was, "draining", now_ms)
    return was


def _has_restarted(was: BrokerProgress, facts: BrokerFacts, begun_ms: int) -> bool:
    """Return whether a live broker's process is another one than when the rollout began.

    Starts of the same broker are compared, because brokers' clocks may be wrong. Where none was
    known when the rollout began, the present one is compared with that time. A broker that reports
    none has restarted if it was down and has reported since.
    """
    if was.start_ms and facts.start_ms:
        return facts.start_ms != was.start_ms
    if facts.start_ms > begun_ms:
        return True
    return was.phase == "down" and facts.reported_ms > was.since_ms


def _enter(was: BrokerProgress, phase: BrokerPhase, now_ms: int) -> BrokerProgress:
    """Return the progress of a broker that enters a phase now; unchanged if it is in it."""
    if was.phase == phase:
        return was
    return replace(was, phase=phase, since_ms=now_ms, note="")


def describe_phase(
    rollout: str, name: str, was: BrokerProgress, broker: BrokerProgress, now_ms: int
) -> RolloutNews:
    """Return the news that a broker has entered a phase, or is special in it."""
    took_s = (now_ms - was.since_ms) / 1_000
    match broker.phase:
        case "empty":
            text = f"{name} is empty after {took_s:.0f} s: restart it now"
        case "down" if was.phase == "empty":
            text = f"{name} has stopped"
        case "down" if was.phase == "draining":
            text = f"{name} has stopped before it was empty: its bundles go to other brokers"
        case "down" if was.phase == "waiting":
            text = f"{name} has stopped before its turn"
        case "done" if was.phase == "down":
            text = f"{name} is back after {took_s:.0f} s"
        case "done" if was.phase == "waiting":
            text = f"{name} has restarted before its turn, which counts"
        case "done":
            text = f"{name} has restarted"
        case "draining":
            text = f"{name} has bundles again, which leave it"
        case "waiting":
            text = f"{name} was silent and has not restarted: its turn comes again"
        case _:
            text = name
    if broker.note:
        text = f"{name} {broker.note}"
    return RolloutNews(rollout, name, broker.phase, now_ms, text, broker.moves)


def find_overdue(
    order: RolloutOrder, progress: RolloutProgress, now_ms: int, back_within_ms: int
) -> dict[str, int]:
    """Return the begun brokers that hold up the rollout → how long each is in its phase (ms).

    They are in it for too long, since an operator last had the rollout go on. While it is paused,
    one that drains keeps what it has, and is not late.
    """
    waits = {
        name: now_ms - max(broker.since_ms, order.resumed_ms)
        for name, broker in progress.brokers.items()
        if broker.phase in BEGUN
        and not order.leaves_out(name, broker)
        and not (order.paused and broker.phase == "draining")
    }
    return {name: waited_ms for name, waited_ms in waits.items() if waited_ms >= back_within_ms}


def find_stuck_ms(
    order: RolloutOrder, progress: RolloutProgress, now_ms: int, back_within_ms: int
) -> int | None:
    """Return how long no broker could be begun although one is due (ms); None: that isn't so.

    It is so once nothing has happened for as long as a broker may be away. Only a rollout that goes
    on by itself has a broker due for so long: a command for one broker fails at once.
    """
    is_due = order.continues and bool(progress.in_phases("waiting"))
    if order.paused or not is_due or count_begun(order, progress):
        return None
    since = [broker.since_ms for broker in progress.brokers.values()]
    still_ms = now_ms - max(progress.begun_ms, order.resumed_ms, *since)
    return still_ms if still_ms >= back_within_ms else None


def count_begun(order: RolloutOrder, progress: RolloutProgress) -> int:
    """Return how many brokers count in `at_most`."""
    return sum(
        broker.phase in BEGUN and not order.leaves_out(name, broker)
        for name, broker in progress.brokers.items()
    )


def find_open(order: RolloutOrder, progress: RolloutProgress) -> list[str]:
    """Return the brokers that the rollout still waits for, or has not begun."""
    return [
        name
        for name, broker in progress.brokers.items()
        if broker.phase != "done" and not order.leaves_out(name, broker)
    ]


def may_begin_another(
    order: RolloutOrder, progress: RolloutProgress, now_ms: int, back_within_ms: int
) -> bool:
    """Return whether the order allows that another broker is begun now."""
    waiting = progress.in_phases("waiting")
    is_wanted = len(progress.brokers) - len(waiting) < order.wanted
    overdue = find_overdue(order, progress, now_ms, back_within_ms)
    free = count_begun(order, progress) < order.at_most
    return bool(waiting) and is_wanted and free and not order.paused and not overdue


def begin_broker(
    progress: RolloutProgress, name: str, note: str, expected_usage: float, now_ms: int
) -> RolloutProgress:
    """Return the progress in which a broker is drained from now on."""
    was = progress.brokers[name]
    begun = replace(was, phase="draining", since_ms=now_ms, note=note)
    return replace(
        progress,
        brokers={**progress.brokers, name: begun},
        expected_usage=max(progress.expected_usage, expected_usage),
        planned=tuple(other for other in progress.planned if other != name),
    )


def count_moves(
    progress: RolloutProgress, moves: Iterable[tuple[str, str, str]]
) -> RolloutProgress:
    """Return the progress with these moves: (bundle, broker that is emptied, destination)."""
    brokers, again = dict(progress.brokers), dict.fromkeys(progress.again)
    for bundle, source, destination in moves:
        brokers[source] = replace(brokers[source], moves=brokers[source].moves + 1)
        if destination in brokers and brokers[destination].phase == "waiting":
            again[bundle] = None
    return replace(progress, brokers=brokers, again=tuple(again)[:MOST_AGAIN])
