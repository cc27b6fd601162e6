"""Operators' commands in a round: each is answered, once, with what happened or why not.

First settings (`command_settings`), then what stays in force (`command_standing`), both for the whole round, wherever in the batch the
command stood; then unloads and splits (`command_moves`), one after another.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from lb_stream.contracts.commands import COMMANDS, Command, Outcome
from lb_stream.core.orders import Orders

MOST_REMEMBERED = 100
"""Commands that a cluster remembers its answers to: one that is sent again within that many others isn't done again."""
MOST_NAMED = 6
"""Names in a message."""


@dataclass(frozen=True, slots=True)
class Received:
    """A command as it was read. `record`: its fields; `rejected`: field, value and what was expected, where it could not be read."""

    at_ms: int
    record: Mapping[str, Any]
    rejected: Mapping[str, str] | None = None

    @staticmethod
    def of(command: Command, at_ms: int) -> Received:
        """A command that could be read."""
        return Received(at_ms, command.model_dump(mode="json"))

    @property
    def command(self) -> Command:
        """The command itself, if it could be read."""
        return COMMANDS[self.record["kind"]].model_validate(dict(self.record))

    @property
    def head(self) -> dict[str, Any]:
        """Who wants what, since when."""
        arguments = {} if self.rejected is not None else self.command.arguments
        return {name: str(self.record.get(name, "")) for name in ("id", "kind", "by")} | {"at_ms": self.at_ms, "arguments": arguments}

    def to_dict(self) -> dict[str, Any]:
        """As JSON-able fields."""
        return {"at_ms": self.at_ms, "record": dict(self.record), "rejected": None if self.rejected is None else dict(self.rejected)}


@dataclass(frozen=True, slots=True)
class Answer:
    """What a round says to a command. `repeated`: it was said before, the command has come twice."""

    id: str
    kind: str
    by: str
    at_ms: int  # the command's
    arguments: Mapping[str, Any]
    outcome: Outcome
    text: str
    rule: str | None = None
    decision_ids: tuple[str, ...] = ()
    repeated: bool = False

    def to_dict(self) -> dict[str, Any]:
        """As JSON-able fields."""
        return {name: getattr(self, name) for name in self.__slots__} | {"decision_ids": list(self.decision_ids)}


_REMEMBERED = ("id", "outcome", "text", "rule", "decision_ids")


@dataclass(slots=True)
class Desk:
    """Where one round's commands are answered. `orders` is what is in force from now on."""

    orders: Orders
    answers: list[Answer] = field(default_factory=list)

    def new(self, commands: Iterable[Received]) -> Iterable[Received]:
        """Those that are to be done, one after another. Answered at once: those that have come before, and those that can't be read."""
        for received in commands:
            if (before := self._remembered(received.head["id"])) is not None:
                self.answers.append(Answer(**{**received.head, **before, "decision_ids": tuple(before["decision_ids"])}, repeated=True))
            elif received.rejected is not None:
                wrong = received.rejected
                self.answer(received, "refused", f"{wrong['field']} = {wrong['value']}: expected {wrong['expected']}", rule="unreadable")
            else:
                yield received

    def answer(self, received: Received, outcome: Outcome, text: str, rule: str | None = None, decision_ids: Iterable[str] = ()) -> None:
        """Answer a command."""
        self.say(received.head, outcome, text, rule, decision_ids)

    def say(self, head: Mapping[str, Any], outcome: Outcome, text: str, rule: str | None = None, decision_ids: Iterable[str] = ()) -> None:
        """Answer the command with that id, kind, by, at_ms and arguments."""
        answer = Answer(**head, outcome=outcome, text=text, rule=rule, decision_ids=tuple(decision_ids))
        self.answers.append(answer)
        if answer.kind == "assign":  # done twice it is done once, and lookups are many
            return
        others = [one for one in self.orders.answers if one["id"] != answer.id]
        said = {name: value for name, value in answer.to_dict().items() if name in _REMEMBERED}
        self.orders = replace(self.orders, answers=(*others, said)[-MOST_REMEMBERED:])

    def change(self, **changes: Any) -> None:
        """Lay something down."""
        self.orders = replace(self.orders, **changes)

    def _remembered(self, command_id: str) -> Mapping[str, Any] | None:
        return next((one for one in self.orders.answers if one["id"] == command_id), None)


def refuse_all(commands: Iterable[Received], text: str, rule: str) -> tuple[Answer, ...]:
    """The answers of a round that can't be had."""
    return tuple(Answer(**received.head, outcome="refused", text=text, rule=rule) for received in commands)


def named(names: Iterable[str], of: int = MOST_NAMED) -> str:
    """Some names, for a message."""
    every = list(names)
    return ", ".join(every[:of]) + (f" and {len(every) - of} more" if len(every) > of else "") if every else "none"
