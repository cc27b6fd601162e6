"""Find the commands that take others back: they set again what was in force before.

Each command knows its opposites (`Operation.opposites`). This module merges those of several.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import ValidationError

from lb_stream.core.commands.base import UNSENT, CannotUndo, Operation, make, operation
from lb_stream.core.model.operator_state import OperatorState
from lb_stream.settings.names import normalise_names, to_our_name


def find_opposites(
    kind: str,
    arguments: Mapping[str, object],
    before: OperatorState,
    now_ms: int,
    command_id: str = UNSENT,
) -> list[Operation]:
    """Return the commands that take a command back; none if it has changed nothing.

    They don't take back its moves. `before`: what was in force before it. Raises CannotUndo.
    """
    if "digest" in arguments and "characters" in arguments:
        raise CannotUndo(
            f"its arguments, {arguments['characters']} characters, were too long to be kept"
        )
    try:
        command = make(kind, **{"id": command_id, **arguments})
    except KeyError:
        raise CannotUndo(f"nothing takes {kind} back") from None
    except ValidationError as error:
        raise CannotUndo(f"its arguments are none of a {kind}: {error}") from None
    return command.opposites(before, now_ms)


def merge_commands(
    commands: Sequence[Operation], now: OperatorState, now_ms: int
) -> list[Operation]:
    """Reduce the commands that take back several others to those that have an effect.

    `commands`: in the order of what they take back, the newest first.

    Of commands about the same subject (a broker's drain, a setting, a policy, a bundle's pin, a
    rejection) the last one counts: it sets what was in force before all of them. A command that
    sets what is in force `now` is dropped.
    """
    kept: dict[tuple[str, str], Operation] = {}
    for part in (part for command in commands for part in command.parts()):
        subject = part.subject()
        kept.pop(subject, None)
        kept[subject] = part
    return _join_parts([part for part in kept.values() if not part.is_in_force(now, now_ms)])


def may_end_publishing(command: Operation, now: OperatorState) -> bool:
    """Return whether a command may end the publishing of decisions.

    It may where it changes the mode that another command has set: the job's own mode isn't known
    here. `now`: what is in force before it.
    """
    if _find_mode(now.settings) in (None, "observe"):
        return False
    arguments = command.arguments
    if command.kind == "delete-config":
        return to_our_name(arguments["key"], "") == "mode"
    return command.kind == "set-config" and _find_mode(arguments["values"]) == "observe"


def _find_mode(settings: Mapping[str, object]) -> str | None:
    """Return the mode that these settings give, under whichever name; None: they give none."""
    own = {name: value for name, value in settings.items() if to_our_name(name, value) == "mode"}
    mode = normalise_names(own).get("mode")
    return mode if isinstance(mode, str) else None


def find_cancelled(commands: Sequence[tuple[str, Mapping[str, object]]]) -> frozenset[int]:
    """Return the places of commands that cancel each other.

    Such are the creation and the deletion of a namespace, and the split and the merge of a bundle:
    nothing else takes these back. `commands`: kinds and arguments, the newest first.
    """
    models = [_read_command(kind, arguments) for kind, arguments in commands]
    found = set[int]()
    for later, command in enumerate(models):
        unmade = None if command is None else command.unmakes()
        if unmade is None:
            continue
        for earlier in range(later + 1, len(models)):
            before = models[earlier]
            is_same = before is not None and (before.kind, before.made()) == unmade
            if is_same and earlier not in found:
                found |= {later, earlier}
                break
    return frozenset(found)


def _read_command(kind: str, arguments: Mapping[str, object]) -> Operation | None:
    """Return a command of the past; None where its arguments were not kept."""
    try:
        return make(kind, **arguments)
    except (KeyError, ValidationError):
        return None


def _join_parts(parts: Sequence[Operation]) -> list[Operation]:
    """Return the parts in as few commands as possible, as some settings are only valid together.

    Pins and rejections are joined where all their other arguments are equal.
    """
    found: list[dict[str, Any]] = []
    for part in parts:
        given = part.given
        several = operation(part.kind).several
        own = {name: value for name, value in given.items() if name not in several}
        same = [other for other in found if several and own.items() <= other.items()]
        if not same:
            found.append(given)
            continue
        for name in sorted(given.keys() & set(several)):
            value = given[name]
            if isinstance(value, list):
                same[0][name] = [*same[0].get(name, ()), *value]
            else:
                same[0][name] = {**same[0].get(name, {}), **value}
    return [make(**fields) for fields in found]
