"""Operators' commands about settings: they lie over the job's own, and count in the very round that takes them.

`apply_setting_commands` runs before `decide`, which gets the settings that are then in force.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pydantic import ValidationError

from lb_stream.contracts.balancer import NamespaceConfig
from lb_stream.contracts.keys import SettingError, describe_expected_setting, key_metadata
from lb_stream.core.commands.base import Effect, Operation, SettingsCommand, make, named, refused
from lb_stream.core.commands.responder import CommandResponder, Received
from lb_stream.core.config.cluster_config import ClusterConfig
from lb_stream.core.model.memory import Memory
from lb_stream.core.model.operator_state import OperatorState
from lb_stream.core.round.decide import Inbox
from lb_stream.settings.load_managers import CLASS_KEYS
from lb_stream.settings.names import list_models, normalise_names, to_our_name
from lb_stream.settings.resolve import (
    ResolvedSettings,
    apply_overrides,
    resolve,
    resolve_uncached,
)
from lb_stream.settings.spelling import DRY_RUN, PREFIX


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
        responder = CommandResponder(memory.operator_state, pending=memory.pending)
        change = SettingsChange(responder, own, memory.balances)
        for received in responder.new(about_settings):
            responder.take(received, _effect(received.command, change))
        others = tuple(received for received in inbox.commands if not _is_about_settings(received))
        inbox = replace(inbox, commands=others, answers=tuple(responder.answers))
        memory = replace(memory, operator_state=responder.operator_state)
    return RoundArguments(resolve(own, memory.operator_state.settings).config, memory, inbox)


def _is_about_settings(received: Received) -> bool:
    return received.rejected is None and isinstance(received.command, SettingsCommand)


def _effect(command: Operation, change: SettingsChange) -> Effect:
    assert isinstance(command, SettingsCommand)
    try:
        return command.change_settings(change)
    except SettingError as error:
        return refused("setting", str(error))


@dataclass(frozen=True, slots=True)
class SettingsChange:
    """What a command that changes settings finds. `given`: the job's own settings.

    `balances`: brokers whose own cluster balances by itself → the settings that make it so.
    """

    responder: CommandResponder
    given: Mapping[str, Any]
    balances: Mapping[str, Sequence[str]]

    @property
    def commanded(self) -> dict[str, Any]:
        """What commands have set so far, those before it in the batch included."""
        return dict(self.responder.operator_state.settings)

    def set(self, values: Mapping[str, Any]) -> tuple[dict[str, Any], str]:
        """Return what commands have set with these values, and what to answer.

        Raises SettingError.
        """
        return _set_values(self.commanded, values, self.given)

    def without(self, key: str) -> dict[str, Any]:
        """Return what commands have set without a key. Raises SettingError."""
        before = self.commanded
        after = _remove_keys(before, [to_our_name(key, "")])
        if len(after) < len(before):
            resolve(self.given, after)
        return after

    def dry_run(self, on: bool) -> dict[str, Any]:
        """Return what commands have set with a dry run begun or ended. Raises SettingError.

        A commanded need for approval is kept meanwhile: the end of a dry run doesn't lift it.
        """
        values: dict[str, Any] = {DRY_RUN: on}
        if self.commanded.get("mode") == "approve":
            values = {"mode": "approve"} | ({DRY_RUN: True} if on else {})
        return self.set(values)[0]

    def mode_after(self, commanded: Mapping[str, Any]) -> str | None:
        """Return the cluster's mode once commands have set these; None: no setting says it."""
        mode: str | None = apply_overrides(self.given, commanded).get("mode")
        return mode

    def normalise_names(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Return settings under our names. Raises SettingError."""
        return normalise_names(values)

    def describe_pending(self) -> str:
        """Say how many earlier decisions go on, to end a sentence."""
        return self.responder.describe_pending()

    def describe_own_balancing(self) -> str:
        """Warn whoever has decisions published while brokers' own cluster balances by itself."""
        if not self.balances:
            return ""
        keys = sorted({key for settings in self.balances.values() for key in settings})
        return (
            f"; but the cluster also balances by itself ({', '.join(keys)} on at "
            f"{named(self.balances)}): agents refuse to act until that is off"
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
    for model in list_models():
        for name, field in model.model_fields.items():
            extra = key_metadata(model, name)
            if extra.dynamic:
                found[str(extra.pulsar or name)] = str(field.description)
    found |= {
        f"{PREFIX}TENANT/NAMESPACE.{name}": str(field.description)
        for name, field in NamespaceConfig.model_fields.items()
    }
    return dict(sorted(found.items()))


def _set_values(
    settings: dict[str, Any], values: Mapping[str, Any], given: Mapping[str, Any]
) -> tuple[dict[str, Any], str]:
    """The settings with all the values, and what is said to that. Raises SettingError for one that can't be."""
    before = _resolved_or_none(given, settings)
    ours = [_require_dynamic(name, value) for name, value in values.items()]
    after = _remove_keys(settings, ours) | dict(values)
    try:
        resolved = resolve_uncached(
            apply_overrides(given, after), dynamic=not set(ours).isdisjoint(CLASS_KEYS.values())
        )
    except SettingError as error:
        name = dict(zip(ours, values, strict=True)).get(error.key, error.key)
        raise SettingError(name, values.get(name, error.value), error.expected) from None
    known = () if before is None else before.warnings
    said = [
        f"{name} = {value!r}{_describe_former(name, own, apply_overrides(given, settings))}"
        for own, (name, value) in zip(ours, values.items(), strict=True)
    ]
    said += [warning for warning in resolved.warnings if warning not in known]
    return after, "; ".join(said)


def _describe_former(name: str, ours: str, values: Mapping[str, Any]) -> str:
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


def _remove_keys(settings: Mapping[str, Any], ours: Iterable[str]) -> dict[str, Any]:
    taken = set(ours)
    return {
        name: value for name, value in settings.items() if to_our_name(name, value) not in taken
    }


def _require_dynamic(name: str, value: Any) -> str:
    """Our name of a key that may be set to this value while the job runs. Raises SettingError."""
    ((ours, own_value),) = normalise_names({name: value}).items()
    if ours.startswith(PREFIX):
        resolve({ours: own_value})
        return ours
    for model in list_models():
        if ours not in model.model_fields:
            continue
        if not key_metadata(model, ours).dynamic:
            raise SettingError(
                name, value, "a dynamic key (this one: in the job's settings, and start it anew)"
            )
        try:
            if (
                ours not in CLASS_KEYS.values()
            ):  # what a class name comes to is found with all settings in sight
                model(**{ours: own_value})
        except ValidationError as error:
            raise SettingError(name, value, describe_expected_setting(error.errors()[0])) from None
    return ours


def build_inverse_commands(names: Sequence[str], before: OperatorState) -> list[Operation]:
    """Return commands that set each setting as a command had set it before, or take it back."""
    had = defaultdict[str, dict[str, Any]](dict)  # one setting may have been set under two names
    for name, value in before.settings.items():
        had[to_our_name(name, value)][name] = value
    ours = [to_our_name(name, "") for name in names]
    again = {name: value for own in ours for name, value in had.get(own, {}).items()}
    taken_back = [
        make("delete-config", key=name)
        for name, own in zip(names, ours, strict=True)
        if own not in had
    ]
    return ([make("set-config", values=again)] if again else []) + taken_back
