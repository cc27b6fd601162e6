"""Carries out a decision at the broker that it addresses, and makes the acknowledgement."""

from __future__ import annotations

import logging

from lb_stream.agent.adapter import (
    BrokerAdapter,
    BrokerError,
    MergingAdapter,
    Refused,
    SplittingAdapter,
    TransferringAdapter,
    YieldingAdapter,
)
from lb_stream.agent.clock import wall_clock_ms
from lb_stream.agent.hooks import MoveHooks
from lb_stream.agent.obey import AgentMemory, AgentVerdict, acknowledgement, judge
from lb_stream.contracts.decisions import Decision, Ownership
from lb_stream.contracts.reports import Ack

log = logging.getLogger(__name__)


def carry_out(
    adapter: BrokerAdapter, seen: AgentMemory, decision: Decision, now_ms: int, hooks: MoveHooks
) -> tuple[AgentVerdict, Ack | None]:
    """Carry out a decision once `hooks` allow it; return the verdict and the acknowledgement.

    The acknowledgement is None for a decision that is ignored or waits. While a hook is asked the
    verdict is to wait: call this again once the hook has answered, and the decision is judged anew.
    A decision is noted as done before it is begun, so that no failure makes it run twice.
    """
    verdict = AgentVerdict("refuse")
    failure = ""
    try:
        verdict = judge(
            adapter.name, seen, decision, all(map(adapter.owns, decision.bundles)), now_ms
        )
        if verdict.action == "ignore":
            return verdict, None
        if verdict.action != "release":
            hooks.forget(decision)
        elif not hooks.allow(decision, (decision.expires_ms - now_ms) / 1000):
            return AgentVerdict("wait", "a hook is asked"), None
        seen.note_done(adapter.name, decision, now_ms)
        verdict = _act(adapter, verdict, decision)
        if verdict.action == "release":
            hooks.note_move(decision)
    except Refused as refusal:
        seen.note_done(adapter.name, decision, now_ms)
        log.warning(
            "%s refuses to %s %s: %s", adapter.name, decision.kind, decision.bundle, refusal
        )
        verdict = AgentVerdict("refuse", str(refusal))
    except BrokerError as error:
        log.warning("%s could not %s %s: %s", adapter.name, decision.kind, decision.bundle, error)
        failure = str(error)
    except Exception as error:  # the balancer gets the failure; the other brokers go on
        log.exception("%s could not %s %s", adapter.name, decision.kind, decision.bundle)
        failure = f"{type(error).__name__}: {error}"
    if failure:
        verdict = AgentVerdict(verdict.action, failure)
    done = "failed" if failure else verdict.action
    return verdict, acknowledgement(decision, done, verdict.reason, wall_clock_ms())


def _act(adapter: BrokerAdapter, verdict: AgentVerdict, decision: Decision) -> AgentVerdict:
    """Do what the verdict says; return it, or a refusal where this broker can't do it."""
    if (
        verdict.action == "release"
        and decision.destination is not None
        and isinstance(adapter, TransferringAdapter)
    ):
        detour = adapter.transfer(decision.bundle, decision.destination)
        if detour:
            log.info("%s reached %s %s", decision.bundle, decision.destination, detour)
        return AgentVerdict("release", detour)
    if verdict.action == "release":
        adapter.release(decision.bundle)
    elif verdict.action == "acquire":
        adapter.acquire(decision.bundle)
    elif isinstance(adapter, SplittingAdapter) and verdict.action == "split":
        adapter.split(
            decision.bundle, decision.boundaries, decision.algorithm or "", decision.unload_children
        )
    elif isinstance(adapter, MergingAdapter) and verdict.action == "merge":
        adapter.merge(decision.bundles, decision.children[0])
    elif verdict.action in ("split", "merge"):
        return AgentVerdict("refuse", f"this broker can't {verdict.action}")
    return verdict


def must_give_up(broker: str, record: Ownership) -> bool:
    """Return whether a broker must not serve a bundle any more, by the bundle's last record.

    Another broker owns the bundle, or it was split or merged: both may happen while this broker
    counts as dead.
    """
    return record.state == "Deleted" or (record.state == "Owned" and record.owner != broker)


def give_up(adapter: YieldingAdapter, bundle: str, record: Ownership) -> str | None:
    """Give up a bundle because of its record; return the broker's name if it served it."""
    try:
        if not adapter.owns(bundle):
            return None
        why = f"{record.owner} owns it" if record.owner else "it was split or merged"
        log.warning("%s gives up %s: %s", adapter.name, bundle, why)
        adapter.give_up(bundle)
    except Exception:  # the next report shows what is so; the other brokers must not wait
        log.exception("%s could not give up %s", adapter.name, bundle)
    return adapter.name
