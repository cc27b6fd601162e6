"""Operators' commands about settings: overrides, which lie over the job's own settings.

`apply_setting_commands` runs before `decide`, so a command counts in the round that reads it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import msgspec
from pydantic import ValidationError

from lb_stream.contracts.balancer import BalancerConfig, NamespaceConfig
from lb_stream.contracts.base import canonical_json
from lb_stream.contracts.keys import (
    GivenSettings,
    SettingError,
    describe_expected_setting,
    key_metadata,
)
from lb_stream.core.commands.audited import find_own_changes
from lb_stream.core.commands.base import Effect, Operation, SettingsCommand, make, named, refused
from lb_stream.core.commands.responder import CommandResponder, Received
from lb_stream.core.config.cluster_config import ClusterConfig
from lb_stream.core.model.followed_profile import FollowedProfile, describe_doubts
from lb_stream.core.model.memory import Memory, OwnSettings
from lb_stream.core.model.operator_state import OperatorState
from lb_stream.core.observing.differing_settings import Grouped, update_differing
from lb_stream.core.round.decide import Inbox
from lb_stream.core.round.observe import list_self_balancing
from lb_stream.settings.absurd import explain_absurd
from lb_stream.settings.load_managers import CLASS_KEYS
from lb_stream.settings.names import list_models, normalise_names, to_our_name
from lb_stream.settings.resolve import (
    apply_overrides,
    resolve,
    resolve_uncached,
)
from lb_stream.settings.spelling import DRY_RUN, PREFIX


@dataclass(frozen=True, slots=True)
class RoundArguments:
    """What `decide` gets beside the view, after the commands about settings.

    `memory` has the overrides that they made; `inbox` has their answers, and the other commands.
    """

    config: ClusterConfig
    memory: Memory
    inbox: Inbox


def apply_setting_commands(own: GivenSettings, memory: Memory, inbox: Inbox) -> RoundArguments:
    """Apply the inbox's commands about settings, wherever they stand in it.

    Settings of its own that the last job didn't have become a change for the audit. `own`: the
    job's settings for this cluster, under our names or Pulsar's. Raises SettingError
    when these and the overrides exclude each other, also after the commands.
    """
    memory, inbox = _note_own_settings(own, memory, inbox)
    about_settings = tuple(filter(_is_about_settings, inbox.commands))
    if about_settings:
        responder = CommandResponder(
            memory.operator_state,
            pending=memory.pending,
            max_per_minute=_find_max_commands(own, memory),
        )
        balances = list_self_balancing(memory, inbox)
        differing = update_differing(memory.differing, inbox.differing, memory.dead)
        change = SettingsChange(
            responder, own, balances, inbox.caught_up, memory.followed, differing
        )
        for received in responder.new(about_settings):
            responder.take(received, _effect(received.command, change))
        others = tuple(received for received in inbox.commands if not _is_about_settings(received))
        inbox = replace(inbox, commands=others, answers=tuple(responder.answers))
        memory = replace(memory, operator_state=responder.operator_state)
    return RoundArguments(resolve_in_force(own, memory), memory, inbox)


def _note_own_settings(own: GivenSettings, memory: Memory, inbox: Inbox) -> tuple[Memory, Inbox]:
    """Return memory and inbox with the job's own settings, and their change by this job, if any."""
    known = memory.own_settings
    if memory.epoch == (0 if known is None else known.epoch):
        return memory, inbox  # one job has the same settings from its start to its end
    # As the log gives them back.
    given: dict[str, Any] = msgspec.json.decode(canonical_json(own))
    if known is not None and known.given != given:
        change = find_own_changes(known.given, given, memory.epoch)
        inbox = replace(inbox, job_changes=(*inbox.job_changes, change))
    return replace(memory, own_settings=OwnSettings(memory.epoch, given)), inbox


def resolve_in_force(own: GivenSettings, memory: Memory) -> ClusterConfig:
    """Resolve the settings under the followed profile, or without it if they don't go with it.

    `own`: the job's own settings for the cluster. Raises SettingError when they don't go with each
    other.
    """
    overrides = memory.operator_state.settings
    with suppress(SettingError):
        return resolve(own, overrides, memory.followed.profile).config
    return resolve(own, overrides).config


def _find_max_commands(own: GivenSettings, memory: Memory) -> int:
    """Return the limit on commands of one sender within a minute.

    Settings that don't go with each other don't hold back the command that corrects them.
    """
    try:
        return resolve_in_force(own, memory).balancer.max_commands_per_minute
    except SettingError:
        return BalancerConfig().max_commands_per_minute


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
    """What a command that changes settings works with.

    `own`: the job's own settings for the cluster. `balances`: broker whose cluster also balances by
    itself → the settings by which it does, by the heartbeats so far. `caught_up`: the heartbeats
    from before the job's start are among them. `followed`: the profile where no setting names one.
    `differing`: keys of Pulsar's → brokers whose values of these differ from those here.
    """

    responder: CommandResponder
    own: GivenSettings
    balances: Mapping[str, Sequence[str]]
    caught_up: bool
    followed: FollowedProfile
    differing: Grouped

    @property
    def overrides(self) -> dict[str, object]:
        """Return the overrides so far, those of earlier commands in the batch included."""
        return dict(self.responder.operator_state.settings)

    def with_values(self, values: GivenSettings) -> tuple[dict[str, object], str]:
        """Return the overrides with these values, and the answer. Raises SettingError."""
        return _set_values(self, values)

    def without_key(self, key: str) -> dict[str, object]:
        """Return the overrides without a key. Raises SettingError."""
        before = self.overrides
        after = _remove_keys(before, [to_our_name(key, "")])
        if len(after) < len(before):
            resolve(self.own, after, self.followed.profile)
        return after

    def with_dry_run(self, on: bool) -> dict[str, object]:
        """Return the overrides with a dry run begun or ended. Raises SettingError.

        An override of the mode with `approve` is kept: the end of the dry run leads back to it.
        """
        values: dict[str, object] = {DRY_RUN: on}
        if self.overrides.get("mode") == "approve":
            values = {"mode": "approve"} | ({DRY_RUN: True} if on else {})
        return self.with_values(values)[0]

    def mode_after(self, overrides: GivenSettings) -> str | None:
        """Return the cluster's mode with these overrides; None: no setting gives it."""
        mode = apply_overrides(self.own, overrides).get("mode")
        return mode if isinstance(mode, str) else None

    def normalise_names(self, values: GivenSettings) -> dict[str, object]:
        """Return settings under our names. Raises SettingError."""
        return normalise_names(values)

    def explain_absurd(self, values: GivenSettings) -> list[str]:
        """Explain what absurd ones among these settings would do. Raises SettingError."""
        return explain_absurd(normalise_names(values))

    def describe_pending(self) -> str:
        """Describe how many earlier decisions go on, as the end of a sentence."""
        return self.responder.describe_pending()

    def describe_brokers(self) -> str:
        """Describe what of the brokers' settings doesn't fit, as the end of a sentence."""
        return self._describe_own_balancing() + self._describe_differing()

    def _describe_differing(self) -> str:
        """Describe that brokers run with other settings, as the end of a sentence; empty: no."""
        if not self.differing:
            return ""
        keys = sorted({key for keys in self.differing for key in keys.split(",")})
        brokers = sorted({broker for brokers in self.differing.values() for broker in brokers})
        return (
            f"; {named(brokers)} run with other settings than the balancer ({named(keys)}): lbctl "
            "agent pulsar --check names the values"
        )

    def _describe_own_balancing(self) -> str:
        """Describe that brokers' own cluster balances too, as the end of a sentence; empty: no."""
        if not self.balances:
            return ""
        keys = sorted({key for settings in self.balances.values() for key in settings})
        where = f"{', '.join(keys)} on at {named(self.balances)}"
        if not self.caught_up:
            return (
                "; whether the cluster also balances by itself is not known yet: it does by the "
                f"heartbeats read so far ({where}), and later ones from before the job's start "
                "have not been read"
            )
        return (
            "; but by the last heartbeats, which show a change within 15 s or so, the "
            f"cluster also balances by itself ({where}): agents refuse to act until that is off"
        )


def without_approval(values: GivenSettings) -> dict[str, object]:
    """Return settings, under our names, with which no decision waits for approval."""
    return {**values, "mode": "act"} if values.get("mode") == "approve" else dict(values)


def dynamic_keys() -> dict[str, str]:
    """Return every setting that a command may change → its meaning.

    The name is Pulsar's if there is one, else ours.
    """
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


def _set_values(change: SettingsChange, values: GivenSettings) -> tuple[dict[str, object], str]:
    """Return the overrides with these values, and the answer. Raises SettingError."""
    before, own, followed = change.overrides, change.own, change.followed.profile
    # the overrides afterwards, checked together with the job's own settings
    ours = [_require_dynamic(name, value) for name, value in values.items()]
    after = _remove_keys(before, ours) | dict(values)
    try:
        resolved = resolve_uncached(
            apply_overrides(own, after),
            dynamic=not set(ours).isdisjoint(CLASS_KEYS.values()),
            followed=followed,
        )
    except SettingError as error:
        name = dict(zip(ours, values, strict=True)).get(error.key, error.key)
        raise SettingError(name, values.get(name, error.value), error.expected) from None
    # the answer: each value with its former one, and new warnings
    former = apply_overrides(own, before)
    parts = [
        f"{name} = {value!r}{_describe_former(name, our_name, former)}"
        for our_name, (name, value) in zip(ours, values.items(), strict=True)
    ]
    known = _find_warnings(own, before, followed)
    parts += [warning for warning in resolved.warnings if warning not in known]
    if "profile" in ours:
        parts += describe_doubts(change.followed, resolved.config.balancer.profile)
    return after, "; ".join(parts)


def _describe_former(name: str, ours: str, values: GivenSettings) -> str:
    """Describe a setting's former value, a number in our unit; empty: it was not set."""
    if ours not in values:
        return ""
    if name == DRY_RUN:
        return f" (was {values[ours] == 'observe'})"
    # A number under Pulsar's key may be in another unit than ours: ours is named.
    key = f"{ours} = " if name != ours and not isinstance(values[ours], str) else ""
    return f" (was {key}{values[ours]!r})"


def _find_warnings(own: GivenSettings, overrides: GivenSettings, followed: str) -> tuple[str, ...]:
    """Find the warnings about these settings; none when the settings exclude each other."""
    try:
        return resolve(own, overrides, followed).warnings
    except SettingError:
        return ()


def _remove_keys(overrides: GivenSettings, ours: Iterable[str]) -> dict[str, object]:
    """Return the overrides without those keys, given by our names."""
    removed = set(ours)
    return {
        name: value for name, value in overrides.items() if to_our_name(name, value) not in removed
    }


def _require_dynamic(name: str, value: object) -> str:
    """Return our name of a key that a command may set to this value. Raises SettingError."""
    ((ours, own_value),) = normalise_names({name: value}).items()
    if ours.startswith(PREFIX):
        resolve({ours: own_value})
        return ours
    for model in list_models():
        if ours not in model.model_fields:
            continue
        if not key_metadata(model, ours).dynamic:
            raise SettingError(
                name,
                value,
                "a dynamic key; set this one in the job's settings, and restart the job",
            )
        try:
            # A class name is checked together with all other settings.
            if ours not in CLASS_KEYS.values():
                model(**{ours: own_value})
        except ValidationError as error:
            raise SettingError(name, value, describe_expected_setting(error.errors()[0])) from None
    return ours


def build_inverse_commands(names: Sequence[str], before: OperatorState) -> list[Operation]:
    """Return the commands that restore these settings as commands had set them `before`."""
    # One setting may have been set under two names.
    had = defaultdict[str, dict[str, object]](dict)
    for name, value in before.settings.items():
        had[to_our_name(name, value)][name] = value
    ours = [to_our_name(name, "") for name in names]
    again = {name: value for own in ours for name, value in had.get(own, {}).items()}
    removals = [
        make("delete-config", key=name)
        for name, own in zip(names, ours, strict=True)
        if own not in had
    ]
    force = {"force": True} if explain_absurd(normalise_names(again)) else {}
    return ([make("set-config", values=again, **force)] if again else []) + removals
