"""The parts of operators' commands: model, effect, opposite, and how people give them.

Each file of `lb_stream/operations` holds one command. The options of the command line, the form of
the console, the schema and the row in docs/commands.md follow from it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, product
from typing import TYPE_CHECKING, ClassVar, Literal, NamedTuple, Protocol, TypeVar, cast

from pydantic import BaseModel, ConfigDict
from pydantic.fields import FieldInfo

from lb_stream.contracts.base import canonical_json
from lb_stream.contracts.commands import COMMANDS, Command, CommandOutcome
from lb_stream.contracts.verbs import ALL, BuiltInRole, RequiredRight, Verb, find_role

if TYPE_CHECKING:
    from lb_stream.core.commands.apply import CommandContext
    from lb_stream.core.commands.progress import Progress
    from lb_stream.core.commands.responder import BundleAnswer
    from lb_stream.core.model.operator_state import OperatorState, WaitingCommand
    from lb_stream.core.round.operator_moves import OperatorMoves
    from lb_stream.settings.overrides import SettingsChange

MOST_NAMED = 6
"""Names in a message."""
UNSENT = "unsent"
"""The id of a command that is not sent: it is previewed, or copied with another id first."""


# --- how people give a command ---


@dataclass(frozen=True, slots=True)
class Cli:
    """How the command line takes a field."""

    flags: tuple[str, ...] = ()  # of the option; empty: the field is an argument
    metavar: str | None = None
    # Text → value of the field. Raises ValueError with what was expected.
    parse: Callable[[str], object] | None = None
    default: str | None = None  # the text if none is given
    is_json_file: bool = False  # the text is the name of a file, whose JSON is the value


def option(
    *flags: str,
    metavar: str | None = None,
    parse: Callable[[str], object] | None = None,
    default: str | None = None,
) -> Cli:
    """Return a field that the command line takes by an option."""
    return Cli(flags, metavar, parse, default)


def argument(metavar: str, is_json_file: bool = False) -> Cli:
    """Return a field that the command line takes by an argument."""
    return Cli((), metavar, is_json_file=is_json_file)


@dataclass(frozen=True, slots=True)
class CommandLine:
    """A command of lbctl that sends an operator's command."""

    name: str  # with its group, such as `brokers drain`
    example: str
    help: str
    form: type[Form] | None = None  # holds the options; None: the fields of the command do
    cluster: Literal["option", "argument"] = "option"  # how the cluster is named
    all_clusters: bool = False  # has the option --all-clusters
    preview: bool = False  # has the option --preview
    must_be_known: bool = False  # the tables must have the cluster
    handwritten: bool = False  # a function of the command line reads tables or asks first
    arguments: str = ""  # of a handwritten one, as docs/commands.md shows them


@dataclass(frozen=True, slots=True)
class Button:
    """A form of the console that sends an operator's command."""

    name: str  # in the address
    title: str
    sentence: str  # what will be done; may contain {fields} of `on`
    on: tuple[str, ...] = ()  # fields that the page gives, in the address
    asks: tuple[str, ...] = ()  # fields that the person fills in
    fields: Mapping[str, object] = field(default_factory=dict)  # fields that are always sent


@dataclass(frozen=True, slots=True)
class CommandSpec:
    """The description of a command beside its model."""

    kind: str
    verb: Verb  # what its sender must be allowed to do
    effect: str  # the text of its row in docs/commands.md
    lines: tuple[CommandLine, ...] = ()
    buttons: tuple[Button, ...] = ()

    @property
    def role(self) -> BuiltInRole:
        """The first built-in role that may give the command."""
        return find_role(self.verb)


class Form(BaseModel):
    """The fields that people give for a command, where they differ from the command's own."""

    model_config = ConfigDict(frozen=True)

    def fields(self) -> dict[str, object]:
        """Return the fields of the command. Raises BadForm."""
        raise NotImplementedError


class BadForm(ValueError):
    """A field that was given for a command is invalid. The text says what was expected."""


# --- the effect of a command ---


@dataclass(frozen=True, slots=True)
class Effect:
    """The effect of a command: its answer, and what it sets in the operators' state."""

    outcome: CommandOutcome
    text: str
    rule: str | None = None
    changes: Mapping[str, object] = field(default_factory=dict)  # field of OperatorState → value
    waits_for: str | None = None  # a broker to be empty; None: an accepted one awaits decisions
    declared_dead: frozenset[str] = frozenset()  # brokers that the round takes as dead
    undrained: frozenset[str] = frozenset()  # brokers whose drain the round ends


def done(text: str, **changes: object) -> Effect:
    """Return the effect of a command that is done at once, with what it sets."""
    return Effect("done", text, None, changes)


ABSURD = "absurd"
"""Rule of a command that is legal but absurd: it must be forced."""
FORCE_HELP = "Do it even if the balancer calls it absurd."


def refused_as_absurd(text: str) -> Effect:
    """Return the effect of a command that must be forced. `text`: what it would do."""
    return refused(ABSURD, f"{text}. With --force (field force) it is done all the same")


def refused(rule: str, text: str) -> Effect:
    """Return the effect of a command that changes nothing: which rule refuses it, and why."""
    return Effect("refused", text, rule)


@dataclass(frozen=True, slots=True)
class Ended:
    """The second answer to a command whose decisions took time."""

    outcome: Literal["done", "failed"]
    text: str
    decision_ids: tuple[str, ...] = ()
    changes: Mapping[str, object] = field(default_factory=dict)  # of the operators' state


@dataclass(frozen=True, slots=True)
class WhatIf:
    """The change that a preview simulates beside the present."""

    settings: Mapping[str, object] = field(default_factory=dict)  # over those in force
    drained: Sequence[str] = ()  # brokers
    undrained: Sequence[str] = ()  # brokers
    silent: Sequence[str] = ()  # brokers, silent in both runs; the change declares them dead
    commands: Sequence[Command] = ()  # given when the simulation begins
    resumes: bool = False  # the change ends the pause of the present
    waits: bool = False  # in both runs, the moves that balancing wants wait for approval


class Present(Protocol):
    """The facts about a cluster's present that a preview needs."""

    def silent_brokers(self) -> tuple[str, ...]:
        """Return the brokers that have been silent for too long."""

    def is_paused(self) -> bool:
        """Return whether the cluster is paused."""


class CannotUndo(Exception):
    """A command can't be taken back. The text says what to do instead."""


class CannotPreview(Exception):
    """A command would have no effect: it would be refused, or nothing would change."""


# --- the command ---

ObjectKind = Literal[
    "broker", "bundle", "namespace", "policy", "proposal", "rollout", "setting", "topic"
]


class NamedObject(NamedTuple):
    """A thing that a command names, with its kind."""

    kind: ObjectKind
    name: str

    @property
    def namespace(self) -> str:
        """Return the namespace that it is, or that the bundle is of; empty: neither."""
        if self.kind == "bundle":
            return self.name.rpartition("/")[0]
        return self.name if self.kind == "namespace" else ""


class Operation(Command):
    """A command that operators send, with all that the balancer knows of its kind."""

    spec: ClassVar[CommandSpec]
    brokers: ClassVar[tuple[str, ...]] = ()
    """Fields that hold brokers' names, which people may give short."""
    namespaces: ClassVar[tuple[str, ...]] = ()
    """Fields that hold namespaces' names."""
    ranges: ClassVar[tuple[str, ...]] = ()
    """Fields that hold hash ranges of bundles of the namespace."""
    objects: ClassVar[Mapping[str, ObjectKind]] = {}
    """Fields that hold other names → what these name."""
    several: ClassVar[tuple[str, ...]] = ()
    """Fields that name several things, each of which could have a command of its own."""
    instead: ClassVar[str] = "nothing takes it back"
    """What to do where nothing takes the command back."""
    phrase: ClassVar[str] = ""
    """What its sender does, with {fields}: drains {broker}."""

    def describe(self) -> str:
        """Return what its sender does, as the rest of a sentence that begins with the sender."""
        names = type(self).model_fields.keys() - Command.model_fields.keys()
        values = {name: getattr(self, name) for name in names}
        shown = {
            name: named(value) if isinstance(value, list | tuple) else value
            for name, value in values.items()
        }
        return self.phrase.format(**shown) or self.kind.replace("-", " ")

    def required_rights(self) -> tuple[RequiredRight, ...]:
        """Return the rights that its sender needs: all of them.

        They follow from the brokers and namespaces that it names. A command that names none of a
        kind may concern all.
        """
        named = self.named_objects()
        brokers = [found.name for found in named if found.kind == "broker"] or [ALL]
        namespaces = dict.fromkeys(found.namespace for found in named if found.namespace)
        return tuple(
            RequiredRight(self.spec.verb, broker, namespace)
            for broker, namespace in product(brokers, namespaces or [ALL])
        )

    def named_objects(self) -> tuple[NamedObject, ...]:
        """Return what the command names, each thing once: for its rights and for the audit."""
        found = [NamedObject("broker", broker_of(name)) for name in self._names_in(self.brokers)]
        ranges = self._names_in(self.ranges)
        for namespace in self._names_in(self.namespaces):
            found += [NamedObject("bundle", f"{namespace}/{bounds}") for bounds in ranges]
            if not ranges:
                found.append(NamedObject("namespace", namespace))
        for field_name, kind in self.objects.items():
            names = self._names_in([field_name])
            found += [
                NamedObject(kind, broker_of(name) if kind == "broker" else name) for name in names
            ]
        return tuple(dict.fromkeys(found))

    def _names_in(self, fields: Iterable[str]) -> list[str]:
        values = [getattr(self, name) for name in fields]
        names = [[value] if isinstance(value, str) else list(value or ()) for value in values]
        return list(dict.fromkeys(getattr(item, "name", item) for item in chain(*names)))

    @classmethod
    def follow(cls, progress: Progress, waiting: WaitingCommand) -> WaitingCommand | Ended:
        """Return a command that was accepted as it goes on waiting, or its second answer."""
        return progress.of_decisions(waiting)

    @classmethod
    def check_given(cls, fields: Mapping[str, object]) -> None:
        """Raise BadForm where a person has left out what the command needs."""

    def preview(self, present: Present) -> WhatIf:
        """Return what is tried for a preview. Raises CannotPreview."""
        # The simulation has a time of its own.
        return WhatIf(commands=(self.model_copy(update={"sent_ms": 0}),))

    @classmethod
    def fields_from_form(cls, given: Mapping[str, str]) -> dict[str, object]:
        """Return the fields of a command from those of a form of the console. Raises BadForm."""
        own = cls.model_fields.keys() - Command.model_fields.keys()
        return {name: value for name, value in given.items() if name in own and value}

    # what undo needs to know

    def opposites(self, before: OperatorState, now_ms: int) -> list[Operation]:
        """Return the commands that take this one back; none if it has changed nothing.

        `before`: the operators' state before it. Its moves are taken back elsewhere. Raises
        CannotUndo.
        """
        raise CannotUndo(self.instead)

    def parts(self) -> list[Operation]:
        """Return a command for each thing that this one is about."""
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

    def _own(self) -> dict[str, object]:
        """Return the given fields, without those that name several things."""
        names = self.model_fields_set - set(self.several) - Command.model_fields.keys()
        return {name: getattr(self, name) for name in names}

    def subject(self) -> tuple[str, str]:
        """Return what a command with one part is about; a later one with the same replaces it."""
        return self.kind, canonical_json(self.arguments)

    def is_in_force(self, now: OperatorState, now_ms: int) -> bool:
        """Return whether the state already has what a command with one part would set."""
        return False

    def made(self) -> tuple[str, ...]:
        """Return what the command makes, such as a namespace; see `unmakes`."""
        return ()

    def unmakes(self) -> tuple[str, tuple[str, ...]] | None:
        """Return the kind of command whose work this one removes, and what that has made."""
        return None

    def explain_lost(self, now: OperatorState) -> str | None:
        """Explain why the command can no longer set what it would set; None: it can."""
        return None


class SettingsCommand(Operation):
    """A command that changes settings, which count in the same round."""

    def change_settings(self, change: SettingsChange) -> Effect:
        """Return the effect of the command. Raises SettingError."""
        raise NotImplementedError


class StateCommand(Operation):
    """A command that sets operators' state, which counts for the whole round and stays."""

    def apply(self, context: CommandContext) -> Effect:
        """Return the effect of the command."""
        raise NotImplementedError


class MoveCommand(Operation):
    """A command that makes decisions about bundles."""

    about: ClassVar[str] = "bundles leave their brokers"
    """What its decisions do; the answer puts "3 of 5" before it."""
    is_answered_at_once: ClassVar[bool] = False
    """Whether its only answer comes with its decision, before reports confirm that."""

    def decide(self, moves: OperatorMoves) -> list[BundleAnswer]:
        """Make the decisions of the command, and return an answer about each bundle."""
        raise NotImplementedError


Model = TypeVar("Model", bound=type[Operation])


def command(
    *lines: CommandLine, verb: Verb, effect: str, buttons: Sequence[Button] = ()
) -> Callable[[Model], Model]:
    """Register the decorated model as the command of its kind."""

    def register(model: Model) -> Model:
        fields: Mapping[str, FieldInfo] = model.__pydantic_fields__
        kind = fields["kind"].default
        model.spec = CommandSpec(kind, verb, effect, lines, tuple(buttons))
        COMMANDS.register(kind, model)
        return model

    return register


def operation(kind: str) -> type[Operation]:
    """Return the model of a kind of command. Raises KeyError."""
    return cast(type[Operation], COMMANDS[kind])


def operations() -> list[type[Operation]]:
    """Return the models of all commands, by the names of their kinds."""
    return [operation(kind) for kind in COMMANDS]


def make(kind: str, **fields: object) -> Operation:
    """Return a command that is not sent as it is. Raises ValidationError."""
    return operation(kind).model_validate({"id": UNSENT, **fields})


# --- texts ---


def broker_of(given: str) -> str:
    """Return a broker's name as in reports: without a scheme, without what follows the port."""
    return given.rpartition("://")[2].strip("/")


def named(names: Iterable[str], of: int = MOST_NAMED) -> str:
    """Return up to `of` names and the number of the others, for a message."""
    every = list(names)
    if not every:
        return "none"
    more = f" and {len(every) - of} more" if len(every) > of else ""
    return ", ".join(every[:of]) + more


def describe_bundle(namespace: str, bundle: str | None, topic: str | None = None) -> str:
    """Return what a command names: a bundle, the bundle of a topic, or all of a namespace."""
    if bundle is not None:
        return f"{namespace}/{bundle}"
    return f"the bundle of {topic}" if topic is not None else f"bundles of {namespace}"


def plural(count: int, noun: str) -> str:
    """Return a number with its noun."""
    return f"{count} {noun}" + ("" if count == 1 else "s")


HOUR_MS = 3_600_000


def parse_hours(given: Mapping[str, str], most_ms: int) -> int:
    """Return the field `hours` of a form in ms. Raises BadForm above `most_ms`."""
    text = given.get("hours", "0")
    if not (text.isascii() and text.isdigit()) or int(text) * HOUR_MS > most_ms:
        raise BadForm(
            f"hours = {text}: expected a whole number of hours, {most_ms // HOUR_MS} at most"
        )
    return int(text) * HOUR_MS


def split_bundle(name: str) -> dict[str, object]:
    """Return a bundle's name as the fields `namespace` and `bundle`."""
    namespace, _, bounds = name.rpartition("/")
    return {"namespace": namespace, "bundle": bounds}
