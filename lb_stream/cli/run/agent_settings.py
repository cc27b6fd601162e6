"""Settings of agents: hooks of moves; and with which ones a Pulsar broker runs, where this balancer
would run with others."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lb_stream.cli.shared.output import CommandError

if TYPE_CHECKING:
    from lb_stream.agent.hooks import HookConfig
    from lb_stream.cli.shared.options import CliSettings

EXPECTED = {"mode", "enabled", "shedding_enabled", "split_enabled", "unloading_timeout_ms"}
"""What is meant to differ: Pulsar's own balancing goes off when ours goes on, and agents need a
longer time-out."""


@dataclass(frozen=True, slots=True)
class Otherwise:
    """One of Pulsar's keys with its value in the broker, and what stands here: our key, value, who
    gave it. Values under our key."""

    pulsar: str
    there: Any
    key: str
    here: Any
    given_by: str

    def __str__(self) -> str:
        return (
            f"{self.pulsar}: {self.key} would be {self.there!r}, and is {self.here!r} here "
            f"({self.given_by})"
        )


def hooks_of(given: CliSettings) -> HookConfig:
    """The hooks that are set. Raises SettingError, CommandError."""
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


def otherwise(runtime: Mapping[str, Any], given: CliSettings, cluster: str) -> Iterator[Otherwise]:
    """The settings that are read here, that the broker has with another value, and that nobody has
    set here on purpose."""
    from lb_stream.contracts.keys import key_metadata
    from lb_stream.settings.load import same_value
    from lb_stream.settings.names import list_models
    from lb_stream.settings.usage import AGENTS, find_readers

    resolved = given.of_cluster(cluster)
    ours, theirs = resolved.values, _typed(runtime)
    for name, pulsar in {
        name: key_metadata(model, name).pulsar
        for model in list_models()
        for name in model.model_fields
    }.items():
        if (
            pulsar not in runtime
            or name in EXPECTED
            or name not in theirs
            or set(find_readers(name, resolved.config)) <= {AGENTS}
        ):
            continue
        origin = (
            given.origins.get(("cluster", cluster, name))
            or given.origins.get(("balancer", name))
            or "default"
        )
        if (origin == "default" or origin.endswith(f", {pulsar}")) and not same_value(
            theirs[name], ours[name]
        ):
            yield Otherwise(str(pulsar), theirs[name], name, ours[name], origin)


def _typed(runtime: Mapping[str, Any]) -> dict[str, Any]:
    """The broker's settings under our names, as far as they can be read."""
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
