"""A rollout: the restart of a cluster's brokers, one after the other, each empty when it stops.

The order is what an operator wants; only commands change it. The progress is what rounds have seen
of it since. The news is what one round has to tell. See docs/rollouts.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from lb_stream.contracts.base import dataclass_fields

MOST_AGAIN = 500
"""So many bundles that move again are remembered; it matters where there are few bundles."""
BrokerPhase = Literal["waiting", "draining", "empty", "down", "done"]
"""Waiting: its turn comes later. Draining: its bundles leave. Empty: it may be restarted now.
Down: it has stopped, or died. Done: it is back, with a new start of its process."""
BEGUN: tuple[BrokerPhase, ...] = ("draining", "empty", "down")
"""Phases of brokers that count in `at_most`, and get no bundle."""
RolloutEvent = Literal["started", "stands_still", "goes_on", "levelling", "ended", "aborted"]
"""What happens to a rollout as a whole, beside the phases of its brokers. Stands still: a broker
isn't back in time, and nothing else is begun; goes on: that is over. Levelling: all are done, and
loads are evened out."""


@dataclass(frozen=True, slots=True)
class RolloutOrder:
    """What an operator has ordered: which brokers are to be restarted, and how."""

    id: str  # of the command that started it
    by: str  # the operator that sent it
    at_ms: int  # when it was sent
    brokers: tuple[str, ...]  # as in reports (host:port), in the order given
    in_order: bool = False  # they are begun in that order; else the planner chooses
    at_most: int = 1  # brokers that may be draining, empty or down at the same time
    canary: str | None = None  # begun first, whatever the planner would choose
    version: str | None = None  # a broker is done when it reports this one; None: any
    wanted: int = 0  # how many of the brokers may be begun so far
    even_if_full: bool = False  # also where the remaining brokers can't carry the load
    paused: bool = False  # no other broker is begun, and those that drain keep what they have
    aborted: bool = False  # the next round ends it
    # When an operator last had it go on: the time that brokers may be away counts anew from then.
    resumed_ms: int = 0
    left_out: tuple[str, ...] = ()  # brokers that it goes on without since then
    continues: bool = False  # each broker is begun without another command
    # Brokers that an operator says have been restarted, as their reports show no start.
    restarted: tuple[str, ...] = ()

    def leaves_out(self, name: str, broker: BrokerProgress) -> bool:
        """Return whether the rollout goes on without a broker: it is still as it was then."""
        is_same = broker.phase in BEGUN and broker.since_ms < self.resumed_ms
        return is_same and name in self.left_out


@dataclass(frozen=True, slots=True)
class BrokerProgress:
    """How far a rollout is with one broker."""

    phase: BrokerPhase = "waiting"
    since_ms: int = 0  # when this phase began
    start_ms: int = 0  # start of its process when the rollout began, by its own clock; 0: unknown
    moves: int = 0  # bundles that have been moved away for its restart
    note: str = ""  # why it is begun now; or what is special about it, such as an early restart


@dataclass(frozen=True, slots=True)
class RolloutProgress:
    """What rounds remember of a rollout. Usages are ratios of what a broker can do."""

    id: str = ""  # of its order
    begun_ms: int = 0  # first round with the order
    brokers: Mapping[str, BrokerProgress] = field(default_factory=dict)
    planned: tuple[str, ...] = ()  # the waiting brokers, in the order in which they would be begun
    peak_usage: float = 0.0  # greatest usage of a broker so far
    expected_usage: float = 0.0  # greatest usage that the planner has expected so far
    still_ms: int | None = None  # since when it stands still; None: it doesn't
    levelling_ms: int | None = None  # since when all brokers are done; None: they aren't
    # Bundles that went to a broker that was still to be restarted, and so moved again: at most
    # MOST_AGAIN of them. At the end they are moved rather than others.
    again: tuple[str, ...] = ()
    levelling_moves: int = 0  # bundles that have been moved since then

    def in_phases(self, *phases: BrokerPhase) -> tuple[str, ...]:
        """Return the brokers in one of these phases, in their order."""
        return tuple(name for name, broker in self.brokers.items() if broker.phase in phases)


@dataclass(frozen=True, slots=True)
class RolloutNews:
    """A change in a rollout, of one broker or of the whole. Each is logged once."""

    rollout: str  # id of the order
    broker: str | None  # None: it is about the rollout as a whole
    phase: BrokerPhase | RolloutEvent
    at_ms: int
    text: str  # a sentence for people: what has happened, and why now
    moves: int = 0  # bundles that have been moved away for the broker's restart so far

    def to_dict(self) -> dict[str, object]:
        """Return the fields for JSON."""
        return dataclass_fields(self)
