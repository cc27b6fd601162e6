"""Settings of agents: hooks of moves, and a Pulsar broker's settings beside those here."""

from __future__ import annotations

from collections.abc import Collection, Container, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lb_stream.cli.shared.output import CommandError

if TYPE_CHECKING:
    from lb_stream.agent.hooks import HookConfig
    from lb_stream.cli.shared.options import CliSettings
    from lb_stream.core.model.releases import PulsarVersion

DYNAMIC = "; update-dynamic-config has set it"


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


@dataclass(frozen=True, slots=True)
class SettingsCheck:
    """A broker's settings beside those of its cluster here.

    `profile`: the one here; unset, it is that of the broker's release. `settings`: those that
    differ, Pulsar's key → description. `notes`: what else doesn't fit. `advice`: what to do.
    """

    profile: str
    settings: Mapping[str, str]
    notes: tuple[str, ...]
    advice: tuple[str, ...]


def check_settings(
    runtime: Mapping[str, object],
    dynamic: Container[str],
    version: str | None,
    given: CliSettings,
    cluster: str,
) -> SettingsCheck:
    """Compare a broker's settings in force with those here.

    `dynamic`: Pulsar's keys that update-dynamic-config has set. `version`: the broker's, if known.
    """
    from lb_stream.contracts.keys import SettingError
    from lb_stream.core.model.releases import parse_version
    from lb_stream.settings.differing import compare_settings

    own = given.settings.of_cluster(cluster)
    release = None if version is None else parse_version(version)
    profile = str(own.get("profile") or (release and release.profile) or "default")
    notes = list(_check_profile(release, own.get("profile"), cluster))
    try:
        compared = compare_settings(runtime, {**own, "profile": profile}, given.origins, cluster)
    except SettingError as error:
        return SettingsCheck(profile, {}, (*notes, f"under profile {profile}: {error}"), ())
    lines = {
        setting.pulsar: f"{setting}{DYNAMIC if setting.pulsar in dynamic else ''}"
        for setting in compared.differing
    }
    return SettingsCheck(
        profile, lines, (*notes, *compared.unusable), _advise(lines, dynamic, cluster)
    )


def find_differing_keys(
    given: CliSettings, cluster: str, runtime: Mapping[str, object], version: str | None
) -> list[str]:
    """Return Pulsar's keys with other values in a broker than here."""
    return sorted(check_settings(runtime, (), version, given, cluster).settings)


def _advise(differing: Collection[str], dynamic: Container[str], cluster: str) -> tuple[str, ...]:
    """Return what to do about settings that differ, given by Pulsar's keys."""
    if not differing:
        return ()
    of_file = "give the job and the agents the brokers' own file: --broker-conf FILE"
    by_command = f"what update-dynamic-config has set is in no file: set it in [cluster.{cluster}]"
    kept = f"a value that is meant to differ: set it in [cluster.{cluster}] by the name in brackets"
    are_dynamic = {name in dynamic for name in differing}
    return (*[of_file] * (False in are_dynamic), *[by_command] * (True in are_dynamic), kept)


def _check_profile(release: PulsarVersion | None, profile: object, cluster: str) -> Iterator[str]:
    """Describe what doesn't fit between the broker's release and the profile that is set."""
    if release is None:
        return
    if release.note:
        yield f"the broker's version: {release.note}"
    if str(profile).startswith("pulsar-") and release.profile not in (None, profile):
        yield (
            f"profile {profile} isn't that of the broker's release {release.text}: in "
            f'[cluster.{cluster}] set profile = "{release.profile}", or none, and it follows the '
            "brokers' versions"
        )
