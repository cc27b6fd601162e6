"""Settings of agents: hooks of moves, and settings of a Pulsar broker that differ."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lb_stream.cli.shared.output import CommandError

if TYPE_CHECKING:
    from lb_stream.agent.hooks import HookConfig
    from lb_stream.cli.shared.options import CliSettings

EXPECTED = {"mode", "enabled", "shedding_enabled", "split_enabled", "unloading_timeout_ms"}
"""Settings that are meant to differ.

Pulsar's own balancing is off when this balancer is on, and agents need a longer time-out.
"""


@dataclass(frozen=True, slots=True)
class DifferingSetting:
    """A setting with another value in a Pulsar broker than here.

    `pulsar` is Pulsar's key, `key` the one here, `origin` where the value here was set. Both values
    are in the units of `key`.
    """

    pulsar: str
    broker_value: object
    key: str
    value: object
    origin: str

    def __str__(self) -> str:
        return (
            f"{self.pulsar}: {self.key} is {self.value!r} here ({self.origin}), and "
            f"{self.broker_value!r} in the broker"
        )


def load_hooks(given: CliSettings) -> HookConfig:
    """Return the hooks that are set. Raises SettingError, CommandError."""
    from lb_stream.agent.hooks import HookConfig
    from lb_stream.settings.files import read_secret

    own = given.settings.hooks
    before, after, secret = (
        read_secret(("hooks", name), getattr(own, name))
        for name in ("before_move", "after_move", "secret")
    )
    try:
        return HookConfig(before, after, own.timeout_ms / 1000, own.unanswered, secret)
    except ValueError as error:
        raise CommandError(str(error), 2) from None


def find_differing_settings(
    runtime: Mapping[str, object], given: CliSettings, cluster: str
) -> Iterator[DifferingSetting]:
    """Yield the settings that differ from a broker's, are used here, and aren't set explicitly.

    `runtime` holds the broker's settings in force.
    """
    from lb_stream.contracts.keys import key_metadata
    from lb_stream.settings.load import same_value
    from lb_stream.settings.names import list_models
    from lb_stream.settings.usage import AGENTS, find_readers

    resolved = given.of_cluster(cluster)
    ours, theirs = resolved.values, _parse_settings(runtime)
    pulsar_keys = {
        name: key_metadata(model, name).pulsar
        for model in list_models()
        for name in model.model_fields
    }
    for name, pulsar in pulsar_keys.items():
        # Settings that the broker has, and that the job reads here.
        if pulsar not in runtime or name in EXPECTED or name not in theirs:
            continue
        if set(find_readers(name, resolved.config)) <= {AGENTS}:
            continue

        # Not those that were set here by another name than Pulsar's.
        origin = (
            given.origins.get(("cluster", cluster, name))
            or given.origins.get(("balancer", name))
            or "default"
        )
        is_implicit = origin == "default" or origin.endswith(f", {pulsar}")
        if is_implicit and not same_value(theirs[name], ours[name]):
            yield DifferingSetting(str(pulsar), theirs[name], name, ours[name], origin)


def _parse_settings(runtime: Mapping[str, object]) -> Mapping[str, object]:
    """Return a broker's settings by their names here; empty if they can't be read."""
    from lb_stream.contracts.keys import SettingError, pulsar_names
    from lb_stream.settings.names import list_models
    from lb_stream.settings.resolve import resolve

    known = {
        name: value
        for name, value in runtime.items()
        if name in pulsar_names(*list_models()) and value not in (None, "")
    }
    try:
        return resolve(known).values
    except SettingError:
        return {}
