"""Carries a decision out at the broker that it addresses, and makes the acknowledgement."""

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
from lb_stream.contracts.decisions import Decision
from lb_stream.contracts.reports import Ack

log = logging.getLogger(__name__)


def carry_out(
    adapter: BrokerAdapter, seen: AgentMemory, decision: Decision, now_ms: int, hooks: MoveHooks
) -> tuple[AgentVerdict, Ack | None]:
    """Act, once `hooks` allow it.

    Returns what was done, and the acknowledgement; None: there is nothing to say.

    While a hook is asked the verdict is to wait: call it again once that has answered, and the
    decision is judged anew. A decision is noted as done before it is begun: better not done than
    done twice.
    """
    verdict, failure = AgentVerdict("refuse"), ""
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
            hooks.carried_out(decision)
    except Refused as refusal:
        seen.note_done(adapter.name, decision, now_ms)
        log.warning(
            "%s refuses to %s %s: %s", adapter.name, decision.kind, decision.bundle, refusal
        )
        verdict = AgentVerdict("refuse", str(refusal))
    except BrokerError as error:
        log.warning("%s could not %s %s: %s", adapter.name, decision.kind, decision.bundle, error)
        failure = str(error)
    except Exception as error:  # one broker's trouble is told to the balancer and stays its own
        log.exception("%s could not %s %s", adapter.name, decision.kind, decision.bundle)
        failure = f"{type(error).__name__}: {error}"
    if failure:
        verdict = AgentVerdict(verdict.action, failure)
    done = "failed" if failure else verdict.action
    return verdict, acknowledgement(decision, done, verdict.reason, wall_clock_ms())


def _act(adapter: BrokerAdapter, verdict: AgentVerdict, decision: Decision) -> AgentVerdict:
    """Do what the verdict says. Returns it, or a refusal of what this broker can't do."""
    if (
        verdict.action == "release"
        and decision.destination is not None
        and isinstance(adapter, TransferringAdapter)
    ):
        adapter.transfer(decision.bundle, decision.destination)
    elif verdict.action == "release":
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


def give_up(adapter: YieldingAdapter, bundle: str, owner: str) -> str | None:
    """Stop serving a bundle that another broker owns by now.

    Returns the broker, if it served the bundle.
    """
    try:
        if not adapter.owns(bundle):
            return None
        log.warning("%s gives %s up: it is %s's", adapter.name, bundle, owner)
        adapter.give_up(bundle)
    except Exception:  # the next record or report will tell; the other brokers must not wait for it
        log.exception("%s could not give %s up", adapter.name, bundle)
    return adapter.name
