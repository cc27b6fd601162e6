"""What every operator's command is made of: its model, its effect, its opposite, and how people
give it.

One file of `lb_stream/operations` holds one command. Options of the command line, the
console's
form, the schema and the rows of docs/commands.md follow from it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol, TypeVar, cast

from pydantic import BaseModel, ConfigDict
from pydantic.fields import FieldInfo

from lb_stream.contracts.base import canonical_json
from lb_stream.contracts.commands import COMMANDS, Command, CommandOutcome

if TYPE_CHECKING:
    from lb_stream.core.commands.apply import CommandContext
    from lb_stream.core.commands.progress import Progress
    from lb_stream.core.commands.responder import BundleAnswer
    from lb_stream.core.model.operator_state import OperatorState, Waiting
    from lb_stream.core.round.operator_moves import OperatorMoves
    from lb_stream.settings.overrides import SettingsChange

MOST_NAMED = 6
"""Names in a message."""
UNSENT = "unsent"
"""The id of a command that is not sent as it is: one that is previewed, or takes another back."""
Role = Literal["operator", "admin"]
"""Who may give a command on the console's pages."""


# --- how people give a command ---


@dataclass(frozen=True, slots=True)
class Cli:
    """How the command line takes a field. Without flags it is an argument.

    `parse` turns the text given into the field's value, and raises ValueError with what it
    expected; `default`: the text where none is given. `is_json_file`: a file's name is given, whose
    JSON is the value.
    """

    flags: tuple[str, ...] = ()
    metavar: str | None = None
    parse: Callable[[str], Any] | None = None
    default: str | None = None
    is_json_file: bool = False


def option(
    *flags: str,
    metavar: str | None = None,
    parse: Callable[[str], Any] | None = None,
    default: str | None = None,
) -> Cli:
    """Have the command line take a field by an option."""
    return Cli(flags, metavar, parse, default)


def argument(metavar: str, is_json_file: bool = False) -> Cli:
    """Have the command line take a field by an argument."""
    return Cli((), metavar, is_json_file=is_json_file)


@dataclass(frozen=True, slots=True)
class CommandLine:
    """A command of lbctl. `name`: its group and itself, such as `brokers drain`.

    `form`: what its options are; None: the fields of the command. `cluster`: how the cluster is
    named: by --cluster, or by an argument; `must_be_known`: it stands in the tables already.
    `handwritten`: a function of the command line reads tables or asks before it sends.
    """

    name: str
    example: str
    help: str
    form: type[Form] | None = None
    cluster: Literal["option", "argument"] = "option"
    all_clusters: bool = False
    preview: bool = False
    must_be_known: bool = False
    handwritten: bool = False


@dataclass(frozen=True, slots=True)
class Button:
    """A form of the console. `on`: what its page is about, in the address; `asks`: other fields.

    `name` stands in the address. `sentence` says what will be done, with the fields of `on`.
    `fields`: what the form sends beside these.
    """

    name: str
    title: str
    sentence: str
    on: tuple[str, ...] = ()
    asks: tuple[str, ...] = ()
    fields: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CommandSpec:
    """What is known of a command beside its model. `effect`: its row in docs/commands.md."""

    kind: str
    role: Role
    effect: str
    lines: tuple[CommandLine, ...] = ()
    buttons: tuple[Button, ...] = ()


class Form(BaseModel):
    """What people give for a command, where that is not the command's own fields."""

    model_config = ConfigDict(frozen=True)

    def fields(self) -> dict[str, Any]:
        """Return the fields of the command. Raises BadForm."""
        raise NotImplementedError


class BadForm(ValueError):
    """What was given for a command can't be. The text names the field and what was expected."""


# --- what comes of it ---


@dataclass(frozen=True, slots=True)
class Effect:
    """What a command does: its answer, and what it sets in the operators' state.

    An accepted one waits for `waits_for`, a broker to be empty, or else for its decisions.
    `declared_dead`, `undrained`: brokers that this round treats so.
    """

    outcome: CommandOutcome
    text: str
    rule: str | None = None
    changes: Mapping[str, Any] = field(default_factory=dict)
    waits_for: str | None = None
    declared_dead: frozenset[str] = frozenset()
    undrained: frozenset[str] = frozenset()


def done(text: str, **changes: Any) -> Effect:
    """Return the effect of a command that is done at once, with what it sets."""
    return Effect("done", text, None, changes)


def refused(rule: str, text: str) -> Effect:
    """Return the effect of a command that changes nothing: which rule refuses it, and why."""
    return Effect("refused", text, rule)


@dataclass(frozen=True, slots=True)
class Ended:
    """The second answer to a command whose decisions took time."""

    outcome: Literal["done", "failed"]
    text: str
    decision_ids: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class WhatIf:
    """What is tried before it is done: settings over those in force, what happens to brokers,
    commands at the beginning.

    `silent`: brokers that have fallen silent, in both runs; the changed one takes them for dead at
    once. `resumes`: the change ends the present's pause. `waits`: what balancing wants waits for
    approval, in both.
    """

    settings: Mapping[str, Any] = field(default_factory=dict)
    drained: Sequence[str] = ()
    undrained: Sequence[str] = ()
    silent: Sequence[str] = ()
    commands: Sequence[Command] = ()
    resumes: bool = False
    waits: bool = False


class Present(Protocol):
    """What a preview may ask of a cluster's present."""

    def silent_brokers(self) -> tuple[str, ...]:
        """Return the brokers that have been silent for too long."""

    def is_paused(self) -> bool:
        """Return whether the cluster is paused."""


class CannotUndo(Exception):
    """Why a command can't be taken back, and what may be done instead."""


class CannotPreview(Exception):
    """Why nothing would come of a command: the balancer would refuse it, or nothing would change.
    Why nothing would come of a command: the balancer would refuse it, or nothing would change."""


# --- the command ---


class Operation(Command):
    """A command that operators send, with all that the balancer knows of its kind."""

    spec: ClassVar[CommandSpec]
    brokers: ClassVar[tuple[str, ...]] = ()
    """Fields that hold brokers' names, which people may give short."""
    several: ClassVar[tuple[str, ...]] = ()
    """Fields that name several things, each of which could have a command of its own."""
    instead: ClassVar[str] = "nothing takes it back"
    """What to do where nothing takes the command back."""

    @classmethod
    def follow(cls, progress: Progress, waiting: Waiting) -> Waiting | Ended:
        """Return a command that was accepted as it goes on waiting, or its second answer."""
        return progress.of_decisions(waiting)

    @classmethod
    def check_given(cls, fields: Mapping[str, Any]) -> None:
        """Raise BadForm where a person has left out what the command needs."""

    def preview(self, present: Present) -> WhatIf:
        """Return what is tried for a preview. Raises CannotPreview."""
        return WhatIf(commands=(self.model_copy(update={"sent_ms": 0}),))  # played time is another

    @classmethod
    def fields_from_form(cls, given: Mapping[str, str]) -> dict[str, Any]:
        """Return the fields of a command from those of a form of the console. Raises BadForm."""
        own = cls.model_fields.keys() - Command.model_fields.keys()
        return {name: value for name, value in given.items() if name in own and value}

    # what undo needs to know

    def opposites(self, before: OperatorState, now_ms: int) -> list[Operation]:
        """Return the commands that take this one back, none if it has changed nothing.

        `before`: what was in force when it came. Moves are not among them. Raises CannotUndo.
        """
        raise CannotUndo(self.instead)

    def parts(self) -> list[Operation]:
        """Return the command as one for each thing that it is about."""
        parts = list[Operation]()
        for name in self.several:
            value = getattr(self, name)
            if isinstance(value, Mapping):
                parts += [
                    make(self.kind, **self._own() | {name: {key: value[key]}}) for key in value
                ]
            else:
                parts += [make(self.kind, **self._own() | {name: [item]}) for item in value]
        return parts or [self]

    def _own(self) -> dict[str, Any]:
        """Return the fields that were given, without those that name several things."""
        names = self.model_fields_set - set(self.several) - Command.model_fields.keys()
        return {name: getattr(self, name) for name in names}

    def subject(self) -> tuple[str, str]:
        """Return what a command with one part is about: the same where one takes another's place.
        Return what a command with one part is about: the same where one takes another's place."""
        return self.kind, canonical_json(self.arguments)

    def is_in_force(self, now: OperatorState, now_ms: int) -> bool:
        """Return whether what a command with one part would set is so already."""
        return False

    def made(self) -> tuple[str, ...]:
        """Return what the command makes, such as a namespace: the same for one that takes it away.
        Return what the command makes, such as a namespace: the same for one that takes it away."""
        return ()

    def unmakes(self) -> tuple[str, tuple[str, ...]] | None:
        """Return the kind of command whose work this one takes away, and what that made."""
        return None

    def explain_lost(self, now: OperatorState) -> str | None:
        """Say why what the command would set can't be set any more; None: it can be."""
        return None


class SettingsCommand(Operation):
    """A command that changes settings: they count in the round that takes it."""

    def change_settings(self, change: SettingsChange) -> Effect:
        """Return what the command does. Raises SettingError."""
        raise NotImplementedError


class StateCommand(Operation):
    """A command whose effect stays until another one changes it. It counts for the whole round."""

    def apply(self, context: CommandContext) -> Effect:
        """Return what the command does."""
        raise NotImplementedError


class MoveCommand(Operation):
    """A command that has the round make decisions about bundles."""

    about: ClassVar[str] = "bundles leave their brokers"
    """What its decisions do, after "3 of 5"."""
    is_answered_at_once: ClassVar[bool] = False
    """Whether its one answer comes with its decision, which isn't waited for."""

    def decide(self, moves: OperatorMoves) -> list[BundleAnswer]:
        """Make its decisions, and return an answer about each bundle."""
        raise NotImplementedError


Model = TypeVar("Model", bound=type[Operation])


def command(
    *lines: CommandLine, role: Role, effect: str, buttons: Sequence[Button] = ()
) -> Callable[[Model], Model]:
    """Register the decorated model as the command of its kind."""

    def register(model: Model) -> Model:
        fields: Mapping[str, FieldInfo] = model.__pydantic_fields__
        kind = fields["kind"].default
        model.spec = CommandSpec(kind, role, effect, lines, tuple(buttons))
        COMMANDS.register(kind, model)
        return model

    return register


def operation(kind: str) -> type[Operation]:
    """Return the model of a kind of command. Raises KeyError."""
    return cast(type[Operation], COMMANDS[kind])


def operations() -> list[type[Operation]]:
    """Return the models of all commands, by the names of their kinds."""
    return [operation(kind) for kind in COMMANDS]


def make(kind: str, **fields: Any) -> Operation:
    """Return a command that is not sent as it is. Raises ValidationError."""
    return operation(kind).model_validate({"id": UNSENT, **fields})


# --- words ---


def broker_of(given: str) -> str:
    """Return a broker's name as reports have it: without a scheme, and without what follows the
    port."""
    return given.rpartition("://")[2].strip("/")


def named(names: Iterable[str], of: int = MOST_NAMED) -> str:
    """Return some names, for a message."""
    every = list(names)
    if not every:
        return "none"
    more = f" and {len(every) - of} more" if len(every) > of else ""
    return ", ".join(every[:of]) + more


def plural(count: int, noun: str) -> str:
    """Return a number with its noun."""
    return f"{count} {noun}" + ("" if count == 1 else "s")


HOUR_MS = 3_600_000


def parse_hours(given: Mapping[str, str], most_ms: int) -> int:
    """Return how long something is to hold, in ms, from a form's `hours`; 0: not at all.

    Raises BadForm.
    """
    text = given.get("hours", "0")
    if not (text.isascii() and text.isdigit()) or int(text) * HOUR_MS > most_ms:
        raise BadForm(
            f"hours={text}: expected a whole number of hours, {most_ms // HOUR_MS} at most"
        )
    return int(text) * HOUR_MS


def split_bundle(name: str) -> dict[str, str]:
    """Return a bundle's name as the fields `namespace` and `bundle`."""
    namespace, _, bounds = name.rpartition("/")
    return {"namespace": namespace, "bundle": bounds}
