"""What commands about rollouts have in common: refusals, and how far a rollout is."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lb_stream.core.commands.base import Effect, named, plural, refused
from lb_stream.core.model.operator_state import OperatorState, WaitingCommand
from lb_stream.core.model.refusals import Refusal
from lb_stream.core.model.rollout import BrokerPhase, RolloutOrder, RolloutProgress
from lb_stream.core.model.rules import REFUSES, Refuses

if TYPE_CHECKING:
    from lb_stream.core.commands.apply import CommandContext

RESTARTABLE: tuple[BrokerPhase, ...] = ("empty", "draining")
"""Phases of brokers that have been begun and not been restarted, those that may be first."""
NEXT = "rollout-next"
"""The kind of the command that begins a broker."""
_ADVICE = {
    Refuses.ROLLOUT_STANDS_STILL: "lbctl rollout resume goes on without brokers that are missing",
    Refuses.ROLLOUT_TOO_FULL: "add a broker, or wait for a lower load; a rollout that is started "
    "with --even-if-full begins it all the same",
    Refuses.ROLLOUT_DOMAIN: "wait until another broker of its failure domain is back",
    Refuses.ROLLOUT_ISOLATION: "wait until another broker of the policy is back, or add one",
    Refuses.ROLLOUT_ANTI_AFFINITY: "wait until the broker that is away is back",
    Refuses.ROLLOUT_DRY_RUN: "lbctl clusters enable ends the dry run",
}


@dataclass(frozen=True, slots=True)
class RolloutState:
    """A rollout's order, and how far it is. A rollout that has just been ordered has no progress.

    Its brokers are those of the order.
    """

    order: RolloutOrder
    progress: RolloutProgress | None

    @property
    def known(self) -> RolloutProgress:
        """Return the progress of this order; one without brokers: no round has seen it yet."""
        found = self.progress
        return RolloutProgress() if found is None or found.id != self.order.id else found

    def in_phases(self, *phases: BrokerPhase) -> list[str]:
        """Return the brokers in these phases, in the order of the phases, the longest first."""
        brokers = self.known.brokers
        return [
            name
            for phase in phases
            for name in sorted(
                (name for name, broker in brokers.items() if broker.phase == phase),
                key=lambda name: (brokers[name].since_ms, name),
            )
        ]

    @property
    def begun(self) -> list[str]:
        """Return the brokers that may be restarted now or soon, but those that are left out."""
        brokers = self.known.brokers
        begun = self.in_phases(*RESTARTABLE)
        return [name for name in begun if not self.order.leaves_out(name, brokers[name])]

    @property
    def waiting(self) -> list[str]:
        """Return the brokers that nothing has happened to yet."""
        brokers = self.known.brokers
        return [
            name
            for name in self.order.brokers
            if name not in brokers or brokers[name].phase == "waiting"
        ]

    @property
    def left_to_begin(self) -> int:
        """Return how many waiting brokers may be begun without another command."""
        others = len(self.order.brokers) - len(self.waiting)
        return min(max(self.order.wanted - others, 0), len(self.waiting))

    @property
    def is_full(self) -> bool:
        """Return whether as many brokers as allowed can be restarted, or are to be begun."""
        return len(self.begun) + self.left_to_begin >= self.order.at_most

    def describe(self) -> str:
        """Describe how many brokers are done, and which are away: part of a sentence."""
        done = len(self.in_phases("done"))
        parts = [f"{done} of {plural(len(self.order.brokers), 'broker')} done"]
        for phase in ("draining", "empty", "down"):
            if names := self.in_phases(phase):
                parts.append(f"{named(names)} {phase}")
        return ", ".join(parts)


def find_rollout(context: CommandContext) -> RolloutState | None:
    """Return the rollout that is on; None: none is."""
    order = context.operator_state.rollout
    return None if order is None or order.aborted else RolloutState(order, context.rollout)


def refuse_without_rollout() -> Effect:
    """Refuse a command that needs a rollout."""
    return refused("no_rollout", "no rollout is on: lbctl rollout start begins one")


def describe_refusal(refused: Refusal) -> str:
    """Describe why a rollout may not begin a broker: a part of a sentence."""
    rule = REFUSES[refused.rule]
    of = f"{refused.broker}: " if refused.broker else ""
    what = f" ({named(refused.subjects)})" if refused.subjects else ""
    seen = ""
    if rule.unit == "ratio" and refused.greatest is not None and refused.limit is not None:
        seen = f", {refused.greatest:.0%} where {refused.limit:.0%} is the limit"
    return f"{of}{rule.sentence}{what}{seen} ({rule.name})"


def advise_on_refusal(refused: Refusal) -> str:
    """Return what an operator can do where a rollout may not begin a broker."""
    return _ADVICE[REFUSES[refused.rule]]


def is_call(waiting: WaitingCommand) -> bool:
    """Return whether a command names the broker that a rollout is to begin."""
    command = waiting.command
    return command["kind"] == NEXT and bool(command["arguments"].get("broker"))


def find_called(state: OperatorState) -> list[str]:
    """Return the brokers that waiting commands have named, the first one first."""
    called = [waiting.broker for waiting in state.waiting if is_call(waiting)]
    return [broker for broker in called if broker is not None]


def describe_rest(next_refused: Iterable[Refusal]) -> str:
    """Describe why a rollout moves nothing at all; "": it does."""
    rests = [item for item in next_refused if item.rule == Refuses.ROLLOUT_DRY_RUN.name]
    return describe_refusal(rests[0]) if rests else ""
