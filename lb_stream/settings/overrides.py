"""Operators' commands about settings: they lie over the job's own, and count in the very round that takes them.

`apply_setting_commands` runs before `decide`, which gets the settings that are then in force.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pydantic import ValidationError

from lb_stream.contracts.balancer import NamespaceConfig
from lb_stream.contracts.commands import Command, DeleteConfig, DryRun, SetConfig
from lb_stream.contracts.keys import SettingError, expected, metadata
from lb_stream.core.commands.responder import CommandResponder, Received, named
from lb_stream.core.config.cluster_config import ClusterConfig
from lb_stream.core.model.memory import Memory
from lb_stream.core.round.decide import Inbox
from lb_stream.settings.load_managers import CLASS_KEYS
from lb_stream.settings.names import all_models, canonical, our_name
from lb_stream.settings.resolve import (
    ResolvedSettings,
    in_force,
    resolve,
    resolve_values,
)
from lb_stream.settings.spelling import DRY_RUN, PREFIX

PUBLISHED = "decisions are published from now on"


@dataclass(frozen=True, slots=True)
class RoundArguments:
    """What `decide` gets beside the view, once the commands about settings have been done.

    `memory` has what they lay down and their answers; `inbox` has the other commands.
    """

    config: ClusterConfig
    memory: Memory
    inbox: Inbox


def apply_setting_commands(own: Mapping[str, Any], memory: Memory, inbox: Inbox) -> RoundArguments:
    """Do the commands that are about settings, wherever in the batch they stood.

    `own`: the job's settings for this cluster, under our names or Pulsar's. Raises SettingError when
    these and what was commanded before don't go together and no command mends it.
    """
    about_settings = tuple(filter(_is_about_settings, inbox.commands))
    if about_settings:
        desk = CommandResponder(memory.orders, pending=memory.pending)
        for received in desk.new(about_settings):
            _take(desk, received, received.command, own, memory.balances)
        others = tuple(one for one in inbox.commands if not _is_about_settings(one))
        inbox = replace(inbox, commands=others, answers=tuple(desk.answers))
        memory = replace(memory, orders=desk.orders)
    return RoundArguments(resolve(own, memory.orders.settings).config, memory, inbox)


def _is_about_settings(received: Received) -> bool:
    return received.rejected is None and isinstance(
        received.command, SetConfig | DeleteConfig | DryRun
    )


def without_approval(values: Mapping[str, Any]) -> dict[str, Any]:
    """Let nothing wait for approval: for whoever only asks what would be decided.

    `values`: under our names.
    """
    return {**values, "mode": "act"} if values.get("mode") == "approve" else dict(values)


def dynamic_keys() -> dict[str, str]:
    """Every setting that a command may change: Pulsar's name where it has one, else ours → what it
    means."""
    found = {}
    for model in all_models():
        for name, field in model.model_fields.items():
            extra = metadata(model, name)
            if extra["dynamic"]:
                found[str(extra["pulsar"] or name)] = str(field.description)
    found |= {
        f"{PREFIX}TENANT/NAMESPACE.{name}": str(field.description)
        for name, field in NamespaceConfig.model_fields.items()
    }
    return dict(sorted(found.items()))


def _beside(balances: Mapping[str, Sequence[str]]) -> str:
    """A warning for who has decisions published while brokers' own cluster balances by itself."""
    if not balances:
        return ""
    keys = sorted({key for balance in balances.values() for key in balance})
    return (
        f"; but the cluster also balances by itself ({', '.join(keys)} on at "
        f"{named(balances)}): agents refuse to act until that is off"
    )


def _take(
    desk: CommandResponder,
    received: Received,
    command: Command,
    given: Mapping[str, Any],
    balances: Mapping[str, Sequence[str]],
) -> None:
    settings = dict(desk.orders.settings)
    try:
        match command:
            case SetConfig():
                after, text = _set(settings, command.values, given)
                mode = canonical(command.values).get("mode", "observe")
                text += _beside(balances) if mode != "observe" else ""
                text += desk.still_under_way() if _stops(canonical(command.values)) else ""
            case DryRun():
                after, text = _dry_run(settings, command.on, given)
                text += desk.still_under_way() if command.on else _beside(balances)
            case DeleteConfig():
                after = _without(settings, [our_name(command.key, "")])
                if len(after) == len(settings):
                    desk.answer(
                        received,
                        "refused",
                        f"no command has set {command.key}; set are: {named(settings)}",
                        rule="not_set",
                    )
                    return
                resolve(given, after)
                text = f"{command.key} is the job's own setting again"
            case _:
                raise TypeError(f"{command.kind} changes no settings")
    except SettingError as error:
        desk.answer(received, "refused", str(error), rule="setting")
        return
    desk.change(settings=after)
    desk.answer(received, "done", text)


def _stops(values: Mapping[str, Any]) -> bool:
    """Whether these settings, under our names, switch publishing or balancing off."""
    switched_off = values.get("enabled") is False or values.get("shedding_enabled") is False
    return switched_off or values.get("mode") == "observe"


def _dry_run(
    settings: dict[str, Any], on: bool, given: Mapping[str, Any]
) -> tuple[dict[str, Any], str]:
    """The settings with a dry run begun or ended.

    A commanded need for approval is kept meanwhile: the end of a dry run doesn't lift it.
    """
    kept = {"mode": "approve"} if settings.get("mode") == "approve" else {}
    after = _set(
        settings, kept | ({DRY_RUN: True} if on else {} if kept else {DRY_RUN: False}), given
    )[0]
    if on:
        return after, "decisions are made and logged, and not published"
    waits = in_force(given, after).get("mode") == "approve"
    return after, PUBLISHED + (
        "; what balancing wants waits for approval (mode = approve)" if waits else ""
    )


def _set(
    settings: dict[str, Any], values: Mapping[str, Any], given: Mapping[str, Any]
) -> tuple[dict[str, Any], str]:
    """The settings with all the values, and what is said to that. Raises SettingError for one that can't be."""
    before = _resolved_or_none(given, settings)
    ours = [_checked(name, value) for name, value in values.items()]
    after = _without(settings, ours) | dict(values)
    try:
        resolved = resolve_values(
            in_force(given, after), dynamic=not set(ours).isdisjoint(CLASS_KEYS.values())
        )
    except SettingError as error:
        name = dict(zip(ours, values, strict=True)).get(error.key, error.key)
        raise SettingError(name, values.get(name, error.value), error.expected) from None
    known = () if before is None else before.warnings
    said = [
        f"{name} = {value!r}{_was(name, own, in_force(given, settings))}"
        for own, (name, value) in zip(ours, values.items(), strict=True)
    ]
    said += [warning for warning in resolved.warnings if warning not in known]
    return after, "; ".join(said)


def _was(name: str, ours: str, values: Mapping[str, Any]) -> str:
    """What a setting was, a number in our unit; nothing of one that nobody had set."""
    if ours not in values:
        return ""
    if name == DRY_RUN:
        return f" (was {values[ours] == 'observe'})"
    other = name != ours and not isinstance(values[ours], str)
    return f" (was {f'{ours} = ' if other else ''}{values[ours]!r})"


def _resolved_or_none(
    own: Mapping[str, Any], commanded: Mapping[str, Any]
) -> ResolvedSettings | None:
    """The settings resolved; None when they don't go together."""
    try:
        return resolve(own, commanded)
    except SettingError:
        return None


def _without(settings: Mapping[str, Any], ours: Iterable[str]) -> dict[str, Any]:
    taken = set(ours)
    return {name: value for name, value in settings.items() if our_name(name, value) not in taken}


def _checked(name: str, value: Any) -> str:
    """Our name of a key that may be set to this value while the job runs. Raises SettingError."""
    ((ours, own_value),) = canonical({name: value}).items()
    if ours.startswith(PREFIX):
        resolve({ours: own_value})
        return ours
    for model in all_models():
        if ours not in model.model_fields:
            continue
        if not metadata(model, ours)["dynamic"]:
            raise SettingError(
                name, value, "a dynamic key (this one: in the job's settings, and start it anew)"
            )
        try:
            if (
                ours not in CLASS_KEYS.values()
            ):  # what a class name comes to is found with all settings in sight
                model(**{ours: own_value})
        except ValidationError as error:
            raise SettingError(name, value, expected(error.errors()[0])) from None
    return ours
