"""Operators' commands in a round: each gets one answer, with what was done or why nothing was.

Commands about settings come first, then those that set operators' state (`apply`): both count for
the whole round, wherever they stand in the batch. Commands about bundles follow, in their order
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
from lb_stream.core.commands.audited import (
    NOT_AUDITED,
    Audited,
    JobChange,
    describe_objects,
    find_changes,
)
from lb_stream.core.commands.base import Effect, Operation, operation
from lb_stream.core.commands.proposal_book import ProposalBook
from lb_stream.core.model.memory import Pending
from lb_stream.core.model.operator_state import OperatorState, WaitingCommand
from lb_stream.core.model.refusals import Refusal
from lb_stream.core.model.rollout import RolloutProgress

WINDOW_MS = 300_000
"""The most by which a command's `sent_ms` may differ from Kafka's time of its record."""
REMEMBERED_MS = 2 * WINDOW_MS
"""For this time an answer is remembered. A command that comes again later is too old by its
`sent_ms`."""
MOST_REMEMBERED = 1_000
"""The most answers that are remembered."""
LONGEST_TEXT = 10_000
"""The most characters of an answer, and of its arguments."""
LONGEST_REMEMBERED = 500
"""The most characters of an answer that are remembered: every round logs them."""
MOST_IDS = 100
"""The most decision ids that are remembered with an answer."""


@dataclass(frozen=True, slots=True)
class BundleAnswer:
    """The answer to a command about one bundle, or about two that should be merged."""

    outcome: Literal["decided", "queued", "nothing", "refused"]
    text: str
    rule: str | None = None
    bundle: str = ""  # of a move
    held_by: Refusal | None = None  # the limit for which a queued move waits


@dataclass(frozen=True)
class Received:
    """A command as it was received."""

    at_ms: int  # append time of its record
    record: Mapping[str, Any]  # its fields
    rejected: Mapping[str, str] | None = None  # field, value, expected; None: it is valid
    key_id: str | None = None  # of the key that has signed it; None: no signature was verified
    right: str | None = None  # such as "drain broker-3:8080"; None: no right was asked for

    @staticmethod
    def from_command(command: Command, at_ms: int) -> Received:
        """Return a valid command as received at this time."""
        return Received(at_ms, command.model_dump(mode="json"))

    @cached_property
    def command(self) -> Operation:
        """Return the command itself. Only for a valid one."""
        return operation(self.record["kind"]).model_validate(dict(self.record))

    @cached_property
    def head(self) -> dict[str, Any]:
        """Return id, kind, by, at_ms and arguments, which every answer repeats."""
        arguments = {} if self.rejected is not None else self.command.arguments
        length = len(canonical_json(arguments))
        if length > LONGEST_TEXT:
            arguments = {"digest": self.digest, "characters": length}
        return {name: str(self.record.get(name, "")) for name in ("id", "kind", "by")} | {
            "at_ms": self.at_ms,
            "arguments": arguments,
        }

    @cached_property
    def audited(self) -> Audited:
        """Return what the audit says of the command before it is done."""
        named = () if self.rejected is not None else self.command.named_objects()
        return Audited(self.key_id, self.right, describe_objects(named))

    @cached_property
    def identity(self) -> dict[str, Any]:
        """Return the fields of an answer that follow from the command alone."""
        return {**self.head, "audited": self.audited}

    @property
    def sent_ms(self) -> int:
        """Return when it was sent, by its sender's clock if given, else by Kafka's."""
        return (0 if self.rejected is not None else self.command.sent_ms) or self.at_ms

    @cached_property
    def digest(self) -> str:
        """Return a digest of kind and arguments: equal commands have equal ones."""
        content = dict(self.rejected) if self.rejected is not None else self.command.arguments
        text = canonical_json([self.record.get("kind", ""), content])
        return blake2b(text.encode(errors="replace"), digest_size=8).hexdigest()

    def to_dict(self) -> dict[str, object]:
        """Return the fields for JSON; key and right only where there are any."""
        checked = {"key_id": self.key_id, "right": self.right}
        return {
            "at_ms": self.at_ms,
            "record": dict(self.record),
            "rejected": None if self.rejected is None else dict(self.rejected),
        } | {name: value for name, value in checked.items() if value is not None}


@dataclass(frozen=True, slots=True)
class CommandAnswer:
    """A round's answer to a command. Without an id: a change by the job, for the audit alone."""

    id: str
    kind: str
    by: str
    at_ms: int  # append time of the command
    arguments: Mapping[str, Any]
    outcome: CommandOutcome
    text: str
    rule: str | None = None
    decision_ids: tuple[str, ...] = ()
    repeated: bool = False  # the command was sent again, and has had this answer before
    audited: Audited = NOT_AUDITED  # what only the audit says

    @staticmethod
    def of_job(change: JobChange, at_ms: int) -> CommandAnswer:
        """Return a change that no command has caused: for the audit alone, without an id."""
        old, new = change.values
        return CommandAnswer(
            id="",
            kind=change.kind,
            by=change.by,
            at_ms=at_ms,
            arguments={},
            outcome="done",
            text=change.text,
            audited=Audited(objects=change.objects, old_value=old, new_value=new),
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the fields for JSON."""
        own = {name: getattr(self, name) for name in self.__slots__ if name != "audited"}
        return own | {"decision_ids": list(self.decision_ids)} | self.audited.to_dict()


_REMEMBERED = ("id", "by", "at_ms", "outcome", "text", "rule", "decision_ids")


MINUTE_MS = 60_000
UNSIGNED = "unsigned"
"""Rule of commands that are not signed by their sender."""
NOT_ALLOWED = "not_allowed"
"""Rule of commands that their sender has no right to send."""


def _describe_rejected(wrong: Mapping[str, str]) -> str:
    return f"{wrong['field']} = {wrong['value']}: expected {wrong['expected']}"


@dataclass(slots=True)
class CommandResponder:
    """Answers one round's commands, and holds the operators' state while they change it."""

    operator_state: OperatorState
    book: ProposalBook = field(default_factory=ProposalBook)
    pending: tuple[Pending, ...] = ()  # decisions when the round began
    answers: list[CommandAnswer] = field(default_factory=list)
    rollout: RolloutProgress | None = None  # as the last round left it
    declared: frozenset[str] = frozenset()  # brokers that a command has declared dead
    undrained: frozenset[str] = frozenset()  # brokers whose drain has ended in this round
    max_per_minute: int = 0  # commands of one sender; 0: no limit
    # Command id → digest and sent_ms, which are remembered beside the answer.
    _new: dict[str, dict[str, Any]] = field(default_factory=dict)

    def new(self, commands: Iterable[Received]) -> Iterable[Received]:
        """Yield the commands that should be done.

        Commands that came before, are too old or invalid are answered here.
        """
        for received in commands:
            head, identity = received.head, received.identity
            if received.rejected is not None:
                # Nothing is remembered of it: anybody could fill the memory, or take an id.
                text = _describe_rejected(received.rejected)
                rule = received.rejected.get("rule", "unreadable")
                self.answers.append(
                    CommandAnswer(**identity, outcome="refused", text=text, rule=rule)
                )
                continue
            if (before := self._remembered(head["id"])) is not None:
                self._again(received, before)
                continue
            if (old := self._untimely(received)) is not None:
                self.answers.append(
                    CommandAnswer(**identity, outcome="refused", text=old, rule="too_old")
                )
                continue
            if (many := self._explain_too_many(received)) is not None:
                # Nothing is remembered of it: it would push out answers of others.
                self.answers.append(
                    CommandAnswer(**head, outcome="refused", text=many, rule="too_many")
                )
                continue
            self._new[head["id"]] = {
                "digest": received.digest,
                "sent_ms": min(received.sent_ms, received.at_ms),
            }
            yield received

    def _explain_too_many(self, received: Received) -> str | None:
        """Explain that the sender has sent too many commands within a minute; None: it hasn't.

        Assigns are not counted: lookups send many, and none is remembered.
        """
        head, most = received.head, self.max_per_minute
        if not most or head["kind"] == "assign":
            return None
        since_ms = received.at_ms - MINUTE_MS
        count = sum(
            answer.get("by") == head["by"] and answer.get("at_ms", 0) > since_ms
            for answer in self.operator_state.answers
        )
        if count < most:
            return None
        sender = head["by"] or "senders without a name"
        return (
            f"{count} commands of {sender} have come within the last minute, expected {most} at "
            "most (max_commands_per_minute): send it again later"
        )

    def _again(self, received: Received, before: Mapping[str, Any]) -> None:
        """Answer a command whose id has been seen: as before, if it is the same command."""
        if before.get("digest") not in (None, "", received.digest):
            text = (
                f"the id {before['id']} belongs to another command, which was "
                f"{before['outcome']}: give each command an id of its own"
            )
            self.answers.append(
                CommandAnswer(**received.identity, outcome="refused", text=text, rule="id_used")
            )
            return
        answer = {name: before[name] for name in ("outcome", "text", "rule")}
        ids = tuple(before["decision_ids"])
        self.answers.append(
            CommandAnswer(**received.identity | answer, decision_ids=ids, repeated=True)
        )

    def _untimely(self, received: Received) -> str | None:
        """Explain why a command is too old or from the future; None: it is neither.

        Both times are in records, so a replay finds the same.
        """
        ahead_ms = received.sent_ms - received.at_ms
        if abs(ahead_ms) > WINDOW_MS:
            side = "after" if ahead_ms > 0 else "before"
            most = f"expected {WINDOW_MS // 1_000} s at most"
            advice = "send it again, or set the sender's clock"
            return f"sent {abs(ahead_ms) // 1_000} s {side} Kafka took it, {most}: {advice}"
        if (
            received.sent_ms <= self.operator_state.forgotten_ms
            and received.sent_ms < received.at_ms
        ):
            return (
                f"more than {MOST_REMEMBERED} later commands came before it, so it is not known "
                "whether it was done: send it again"
            )
        return None

    def answer(
        self,
        received: Received,
        outcome: CommandOutcome,
        text: str,
        rule: str | None = None,
        decision_ids: Iterable[str] = (),
        changes: Mapping[str, object] | None = None,
    ) -> None:
        """Answer a command. `changes`: what it is about to set, field of operators' state → value.

        The audit gets old and new values of these.
        """
        self.answer_head(
            received.head, outcome, text, rule, decision_ids, changes, received.audited
        )

    def answer_head(
        self,
        head: Mapping[str, Any],
        outcome: CommandOutcome,
        text: str,
        rule: str | None = None,
        decision_ids: Iterable[str] = (),
        changes: Mapping[str, object] | None = None,
        audited: Audited = NOT_AUDITED,
    ) -> None:
        """Answer the command with this id, kind, by, at_ms and arguments. `changes`: as above."""
        if changes:
            old, new = find_changes(self.operator_state, changes).values
            audited = replace(audited, old_value=old, new_value=new)
        answer = CommandAnswer(
            **head,
            outcome=outcome,
            text=cut(text, LONGEST_TEXT),
            rule=rule,
            decision_ids=tuple(decision_ids),
            audited=audited,
        )
        self.answers.append(answer)
        # An assign that is done twice changes nothing, and lookups send many.
        if answer.kind != "assign":
            self._remember(answer)

    def _remember(self, answer: CommandAnswer) -> None:
        """Remember an answer, and forget those that are old or too many."""
        known = self._new.get(answer.id) or self._remembered(answer.id) or {}
        kept = {name: value for name, value in answer.to_dict().items() if name in _REMEMBERED}
        kept["text"] = cut(answer.text, LONGEST_REMEMBERED)
        kept["decision_ids"] = kept["decision_ids"][:MOST_IDS]
        kept |= {name: known[name] for name in ("digest", "sent_ms") if name in known}
        recent = [
            other
            for other in self.operator_state.answers
            if other["id"] != answer.id
            and other.get("at_ms", answer.at_ms) > answer.at_ms - REMEMBERED_MS
        ]
        too_many = max(len(recent) + 1 - MOST_REMEMBERED, 0)
        forgotten_ms = [other.get("sent_ms", 0) for other in recent[:too_many]]
        self.operator_state = replace(
            self.operator_state,
            answers=(*recent[too_many:], kept),
            forgotten_ms=max([self.operator_state.forgotten_ms, *forgotten_ms]),
        )

    def take(self, received: Received, effect: Effect) -> None:
        """Answer a command with its effect, and set what it sets."""
        self.answer(received, effect.outcome, effect.text, effect.rule, changes=effect.changes)
        self.declared |= effect.declared_dead
        self.undrained |= effect.undrained
        changes = dict(effect.changes)
        if effect.outcome == "accepted":
            waiting = WaitingCommand(received.head, effect.text, broker=effect.waits_for)
            changes["waiting"] = (*self.operator_state.waiting, waiting)
        if changes:
            self.change(**changes)

    def describe_pending(self) -> str:
        """Describe how many earlier decisions go on, which no command takes back."""
        if not self.pending:
            return ""
        if len(self.pending) == 1:
            return "; 1 pending decision goes on"
        return f"; {len(self.pending)} pending decisions go on"

    def describe_queued(self) -> str:
        """Describe how many queued moves of operators' commands go on."""
        queued = sum(len(waiting.queued) for waiting in self.operator_state.waiting)
        if not queued:
            return ""
        return (
            "; 1 queued move goes on, too" if queued == 1 else f"; {queued} queued moves go on, too"
        )

    def change(self, **changes: Any) -> None:
        """Set fields of the operators' state."""
        self.operator_state = replace(self.operator_state, **changes)

    def _remembered(self, command_id: str) -> Mapping[str, Any] | None:
        return next(
            (answer for answer in self.operator_state.answers if answer["id"] == command_id), None
        )


def refuse_all(commands: Iterable[Received], text: str, rule: str) -> tuple[CommandAnswer, ...]:
    """Return the answers of a round that fails: every command is refused."""
    return tuple(
        CommandAnswer(**received.identity, outcome="refused", text=text, rule=rule)
        for received in commands
    )


def cut(text: str, most: int) -> str:
    """Return a text of at most this number of characters."""
    return text if len(text) <= most else f"{text[: most - 1]}…"
