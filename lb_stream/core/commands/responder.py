"""Operators' commands in a round: each is answered, once, with what happened or why not.

Settings come first (`settings`), then what stays in force (`apply`): both count for the whole
round, wherever in the batch the command stood. Unloads and splits follow, one after another
(`core.round.operator_moves`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from hashlib import blake2b
from typing import Any, Literal

from lb_stream.contracts.base import canonical_json
from lb_stream.contracts.commands import Command, CommandOutcome
from lb_stream.core.commands.base import Effect, Operation, operation
from lb_stream.core.commands.proposal_book import ProposalBook
from lb_stream.core.model.memory import Pending
from lb_stream.core.model.operator_state import OperatorState, Waiting
from lb_stream.core.model.refusals import Refusal

WINDOW_MS = 300_000
"""How far the time at which a command was sent may be from the one at which Kafka took it."""
REMEMBERED_MS = 2 * WINDOW_MS
"""How long an answer is remembered: a command that comes again later says by its `sent_ms` that it
is an old one."""
MOST_REMEMBERED = 1_000
LONGEST_TEXT = 10_000
"""Characters of an answer, and of the arguments that are told with it."""
LONGEST_REMEMBERED = 500
"""Characters of an answer that are remembered: every round logs them."""
MOST_IDS = 100
"""Ids of decisions that are remembered with an answer."""


@dataclass(frozen=True, slots=True)
class BundleAnswer:
    """What is said to one order about one bundle, or about two that are to be merged.

    `bundle`: of a move. `held_by`: the limit that leaves no room yet for one that is queued.
    """

    outcome: Literal["decided", "queued", "nothing", "refused"]
    text: str
    rule: str | None = None
    bundle: str = ""
    held_by: Refusal | None = None


@dataclass(frozen=True)
class Received:
    """A command as it was read.

    `record`: its fields; `rejected`: field, value and what was expected, where it could not be
    read.

    What follows from these is found out once, at the first question.
    """

    at_ms: int
    record: Mapping[str, Any]
    rejected: Mapping[str, str] | None = None

    @staticmethod
    def from_command(command: Command, at_ms: int) -> Received:
        """A command that could be read."""
        return Received(at_ms, command.model_dump(mode="json"))

    @cached_property
    def command(self) -> Operation:
        """The command itself, if it could be read."""
        return operation(self.record["kind"]).model_validate(dict(self.record))

    @cached_property
    def head(self) -> dict[str, Any]:
        """Who wants what, since when."""
        arguments = {} if self.rejected is not None else self.command.arguments
        length = len(canonical_json(arguments))
        if length > LONGEST_TEXT:
            arguments = {"digest": self.digest, "characters": length}
        return {name: str(self.record.get(name, "")) for name in ("id", "kind", "by")} | {
            "at_ms": self.at_ms,
            "arguments": arguments,
        }

    @property
    def sent_ms(self) -> int:
        """When it was sent, as far as its sender says so; else when Kafka took it."""
        return (0 if self.rejected is not None else self.command.sent_ms) or self.at_ms

    @cached_property
    def digest(self) -> str:
        """The same for commands that say the same, whenever and by whom they are sent."""
        said = dict(self.rejected) if self.rejected is not None else self.command.arguments
        return blake2b(
            canonical_json([self.record.get("kind", ""), said]).encode(errors="replace"),
            digest_size=8,
        ).hexdigest()

    def to_dict(self) -> dict[str, Any]:
        """As JSON-able fields."""
        return {
            "at_ms": self.at_ms,
            "record": dict(self.record),
            "rejected": None if self.rejected is None else dict(self.rejected),
        }


@dataclass(frozen=True, slots=True)
class CommandAnswer:
    """What a round says to a command.

    `repeated`: it was said before, the command has come twice.
    """

    id: str
    kind: str
    by: str
    at_ms: int  # the command's
    arguments: Mapping[str, Any]
    outcome: CommandOutcome
    text: str
    rule: str | None = None
    decision_ids: tuple[str, ...] = ()
    repeated: bool = False

    def to_dict(self) -> dict[str, Any]:
        """As JSON-able fields."""
        return {name: getattr(self, name) for name in self.__slots__} | {
            "decision_ids": list(self.decision_ids)
        }


_REMEMBERED = ("id", "at_ms", "outcome", "text", "rule", "decision_ids")


@dataclass(slots=True)
class CommandResponder:
    """Where one round's commands are answered.

    `operator_state` is what is in force from now on, `book` what waits for approval, `pending` what was
    under way when the round began.
    """

    operator_state: OperatorState
    book: ProposalBook = field(default_factory=ProposalBook)
    pending: tuple[Pending, ...] = ()
    answers: list[CommandAnswer] = field(default_factory=list)
    declared: frozenset[str] = frozenset()  # brokers that an operator takes for dead
    undrained: frozenset[str] = frozenset()  # brokers whose drain has ended in this round
    _new: dict[str, dict[str, Any]] = field(
        default_factory=dict
    )  # id → what is remembered beside the answer

    def new(self, commands: Iterable[Received]) -> Iterable[Received]:
        """Those that are to be done, one after another.

        Answered at once: those that have come before, are too old, or can't be read.
        """
        for received in commands:
            head = received.head
            if (before := self._remembered(head["id"])) is not None:
                self._again(received, before)
                continue
            if (old := self._untimely(received)) is not None:
                self.answers.append(
                    CommandAnswer(**head, outcome="refused", text=old, rule="too_old")
                )
                continue
            self._new[head["id"]] = {
                "digest": received.digest,
                "sent_ms": min(received.sent_ms, received.at_ms),
            }
            if received.rejected is not None:
                wrong = received.rejected
                text = f"{wrong['field']} = {wrong['value']}: expected {wrong['expected']}"
                self.answer(received, "refused", text, rule=wrong.get("rule", "unreadable"))
            else:
                yield received

    def _again(self, received: Received, before: Mapping[str, Any]) -> None:
        """Answer a command whose id has been seen: as before, if it says the same."""
        if before.get("digest") not in (None, "", received.digest):
            text = (
                f"the id {before['id']} belongs to another command, which was "
                f"{before['outcome']}: give each command an id of its own"
            )
            self.answers.append(
                CommandAnswer(**received.head, outcome="refused", text=text, rule="id_used")
            )
            return
        said = {name: before[name] for name in ("outcome", "text", "rule")}
        self.answers.append(
            CommandAnswer(
                **received.head | said, decision_ids=tuple(before["decision_ids"]), repeated=True
            )
        )

    def _untimely(self, received: Received) -> str | None:
        """Why a command is none of now, if so.

        Both times are in records: a replay finds the same.
        """
        ahead = received.sent_ms - received.at_ms
        if abs(ahead) > WINDOW_MS:
            way = "after" if ahead > 0 else "before"
            most = f"{WINDOW_MS // 1_000} s at most: send it anew, or set the sender's clock"
            return f"sent {abs(ahead) // 1_000} s {way} Kafka took it, {most}"
        if (
            received.sent_ms <= self.operator_state.forgotten_ms
            and received.sent_ms < received.at_ms
        ):
            return (
                f"sent before others of which more than {MOST_REMEMBERED} came meanwhile: "
                "whether it was done is not known; send it anew"
            )
        return None

    def answer(
        self,
        received: Received,
        outcome: CommandOutcome,
        text: str,
        rule: str | None = None,
        decision_ids: Iterable[str] = (),
    ) -> None:
        """Answer a command."""
        self.say(received.head, outcome, text, rule, decision_ids)

    def say(
        self,
        head: Mapping[str, Any],
        outcome: CommandOutcome,
        text: str,
        rule: str | None = None,
        decision_ids: Iterable[str] = (),
    ) -> None:
        """Answer the command with that id, kind, by, at_ms and arguments."""
        answer = CommandAnswer(
            **head,
            outcome=outcome,
            text=cut(text, LONGEST_TEXT),
            rule=rule,
            decision_ids=tuple(decision_ids),
        )
        self.answers.append(answer)
        if answer.kind == "assign":  # done twice it is done once, and lookups are many
            return
        known = self._new.get(answer.id) or self._remembered(answer.id) or {}
        said = {name: value for name, value in answer.to_dict().items() if name in _REMEMBERED}
        said |= {
            "text": cut(text, LONGEST_REMEMBERED),
            "decision_ids": said["decision_ids"][:MOST_IDS],
        }
        said |= {name: known[name] for name in ("digest", "sent_ms") if name in known}
        others = [one for one in self.operator_state.answers if one["id"] != answer.id]
        lately = [
            other
            for other in others
            if other.get("at_ms", answer.at_ms) > answer.at_ms - REMEMBERED_MS
        ]
        least = max(len(lately) + 1 - MOST_REMEMBERED, 0)
        forgotten_ms = max(
            [self.operator_state.forgotten_ms, *(one.get("sent_ms", 0) for one in lately[:least])]
        )
        self.operator_state = replace(
            self.operator_state, answers=(*lately[least:], said), forgotten_ms=forgotten_ms
        )

    def take(self, received: Received, effect: Effect) -> None:
        """Answer a command with its effect, and set what it sets."""
        self.answer(received, effect.outcome, effect.text, effect.rule)
        self.declared |= effect.declared_dead
        self.undrained |= effect.undrained
        changes = dict(effect.changes)
        if effect.outcome == "accepted":
            waiting = Waiting(received.head, effect.text, broker=effect.waits_for)
            changes["waiting"] = (*self.operator_state.waiting, waiting)
        if changes:
            self.change(**changes)

    def describe_pending(self) -> str:
        """What an answer adds about earlier decisions: a command takes none of them back."""
        if not self.pending:
            return ""
        count = len(self.pending)
        if count == 1:
            return "; 1 decision that is under way already goes on"
        return f"; {count} decisions that are under way already go on"

    def describe_queued(self) -> str:
        """What an answer adds about moves that wait for room: they are an operator's, and go on."""
        queued = sum(len(waiting.queued) for waiting in self.operator_state.waiting)
        some = f"{queued} moves that wait" if queued > 1 else "1 move that waits"
        return f"; {some} for room {'go' if queued > 1 else 'goes'} on, too" if queued else ""

    def change(self, **changes: Any) -> None:
        """Lay something down."""
        self.operator_state = replace(self.operator_state, **changes)

    def _remembered(self, command_id: str) -> Mapping[str, Any] | None:
        return next(
            (answer for answer in self.operator_state.answers if answer["id"] == command_id), None
        )


def refuse_all(commands: Iterable[Received], text: str, rule: str) -> tuple[CommandAnswer, ...]:
    """The answers of a round that can't be had."""
    return tuple(
        CommandAnswer(**received.head, outcome="refused", text=text, rule=rule)
        for received in commands
    )


def cut(text: str, most: int) -> str:
    """A text of so many characters at most."""
    return text if len(text) <= most else f"{text[: most - 1]}…"
