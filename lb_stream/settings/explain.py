"""Lists every setting in force: its value, where it was given, and who reads it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from pydantic import ValidationError

from lb_stream.contracts.balancer import PROFILES, SHEDDER_PROFILES, NamespaceConfig
from lb_stream.contracts.keys import GivenSettings, KeyModel, key_metadata
from lb_stream.contracts.settings import Settings
from lb_stream.core.config.cluster_config import ClusterConfig
from lb_stream.core.model.followed_profile import FollowedProfile
from lb_stream.settings.layers import KeyPath
from lb_stream.settings.names import list_models
from lb_stream.settings.resolve import ResolvedSettings, resolve
from lb_stream.settings.secrets import hide_section
from lb_stream.settings.spelling import PREFIX, group_namespaces
from lb_stream.settings.usage import (
    BALANCER,
    EVERY_CLUSTER,
    explain_unread,
    find_readers,
    list_possible_readers,
)

Origins = Mapping[KeyPath, str]
"""Path of a key → where it was given. A key that is missing has its default."""

NONE_FOLLOWED = FollowedProfile()
"""The profile of a cluster whose brokers' versions are not known."""

READERS = {
    "upkeep": "lbctl tables maintain",
    "notify": "lbctl notify",
    "hooks": "lbctl agent",
    "otel": "the job, lbctl agent",
    "console": "lbctl console",
    "oidc": "lbctl console",
    "lookup": "lbctl lookup-server",
}
"""Section → its reader; the job reads all other sections."""


@dataclass(frozen=True, slots=True)
class ExplainedSetting:
    """One setting in force.

    `given_by`: "default", "profile NAME" and why it is that one, or where it was given. `readers`:
    who reads it under some settings; `read_by`: under these. `why_unread`: empty when something
    reads it.
    """

    section: str
    key: str
    pulsar: str
    value: object
    unit: str
    default: object
    given_by: str
    dynamic: bool
    meaning: str
    readers: tuple[str, ...]
    read_by: tuple[str, ...]
    why_unread: str

    @property
    def is_ineffective(self) -> bool:
        """Return whether the setting was given although nothing reads it."""
        given = self.given_by != "default" and not self.given_by.startswith("profile ")
        return bool(self.why_unread) and given


def explain_settings(
    settings: Settings, origins: Origins, cluster: str, followed: FollowedProfile = NONE_FOLLOWED
) -> Iterator[ExplainedSetting]:
    """Explain every setting, section by section.

    The balancer's settings are those of `cluster`; "": of clusters without a section of their own.
    `followed`: the profile where no setting names one.
    """
    for section, model in list_job_sections().items():
        values = hide_section(section, getattr(settings, section).model_dump())
        for name in model.model_fields:
            given_by = dict.fromkeys(
                origin for path, origin in origins.items() if path[:2] == (section, name)
            )
            reader = (find_section_reader(section),)
            yield _explain(
                model,
                name,
                section=section,
                value=values[name],
                given_by=", ".join(given_by) or "default",
                readers=reader,
                read_by=reader,
            )
    yield from _explain_balancer(settings, origins, cluster, followed)


def list_job_sections() -> dict[str, type[KeyModel]]:
    """Return section → its model, for all sections that aren't the balancer's."""
    models = {name: field.annotation for name, field in Settings.model_fields.items()}
    return {
        name: model
        for name, model in models.items()
        if isinstance(model, type) and issubclass(model, KeyModel)
    }


def find_section_reader(section: str) -> str:
    """Return who reads a section that isn't the balancer's."""
    return READERS.get(section, "the job")


def _explain(
    model: type[KeyModel],
    name: str,
    *,
    value: object,
    given_by: str,
    readers: tuple[str, ...],
    read_by: tuple[str, ...],
    section: str = "balancer",
    key: str = "",
    why_unread: str = "",
) -> ExplainedSetting:
    """Explain a key of a model. `key`: its full name, if it differs from `name`."""
    extra, field = key_metadata(model, name), model.model_fields[name]
    return ExplainedSetting(
        section=section,
        key=key or name,
        pulsar=extra.pulsar or "",
        value=value,
        unit=extra.unit,
        default=field.default,
        given_by=given_by,
        dynamic=extra.dynamic,
        meaning=str(field.description),
        readers=readers,
        read_by=read_by,
        why_unread=why_unread,
    )


def _explain_balancer(
    settings: Settings, origins: Origins, cluster: str, followed: FollowedProfile
) -> Iterator[ExplainedSetting]:
    """Explain the balancer's settings of one cluster."""
    own = settings.of_cluster(cluster)
    resolved = resolve(own, followed=followed.profile)
    config, values = resolved.config, resolved.values
    profile = config.balancer.profile
    of_profile = PROFILES[profile] | SHEDDER_PROFILES.get(profile, {}).get(config.shedder.name, {})
    origin = "" if "profile" in own else followed.origin
    by_profile = f"profile {profile}, {origin}" if origin else f"profile {profile}"
    for name, model in _choose_models(list_models(), config).items():
        default = model.model_fields[name].default
        # where it was given
        given_by = _find_origin(origins, cluster, name)
        if not given_by:
            given_by = by_profile if name in of_profile else "default"
        if name == "profile" and origin:
            given_by = origin
        if name == "report_timeout_ms" and given_by == "default" and values[name] != default:
            given_by = "two report_max_interval_ms"
        # its value, and who reads it
        unread = own.get(name, of_profile.get(name, default))
        if name == "placement_strategy" and config.balancer.bad_strategies == "replace":
            given_by = _name_replaced(str(unread), config.balancer.placement_strategy, given_by)
        read_by = find_readers(name, config)
        yield _explain(
            model,
            name,
            value=values[name] if name in values else _convert_if_valid(model, name, unread),
            given_by=given_by,
            readers=list_possible_readers(name),
            read_by=read_by,
            why_unread="" if read_by else explain_unread(name, config),
        )
    yield from _explain_namespaces(own, resolved, origins, cluster)


def _name_replaced(given: str, value: str, given_by: str) -> str:
    """Return where a strategy comes from that may have taken another's place."""
    given = given.rpartition(".")[2]
    if given == value.rpartition(".")[2]:
        return given_by
    return f"bad_strategies, in place of {given} ({given_by})"


def _explain_namespaces(
    own: GivenSettings, resolved: ResolvedSettings, origins: Origins, cluster: str
) -> Iterator[ExplainedSetting]:
    """Explain the settings of the namespaces that have their own."""
    values = resolved.values
    for namespace, keys in group_namespaces(own).items():
        for name in keys:
            key = f"{PREFIX}{namespace}.{name}"
            yield _explain(
                NamespaceConfig,
                name,
                key=key,
                value=values[key],
                given_by=_find_origin(origins, cluster, key),
                readers=(EVERY_CLUSTER,),
                read_by=(BALANCER,),
            )


def _find_origin(origins: Origins, cluster: str, name: str) -> str:
    """Find where a key of the balancer's was given for a cluster; empty: nowhere."""
    return origins.get(("cluster", cluster, name)) or origins.get(("balancer", name), "")


def _convert_if_valid(model: type[KeyModel], name: str, value: object) -> object:
    """Return a value in its type. A value that nothing reads was not checked, and may be wrong."""
    try:
        converted: object = getattr(model(**{name: value}), name)
        return converted
    except ValidationError:
        return value


def _choose_models(
    models: Sequence[type[KeyModel]], config: ClusterConfig
) -> dict[str, type[KeyModel]]:
    """Return key → the model that explains it under these settings.

    It is the balancer's if it has the key, else a chosen strategy's, else the first one.
    """
    chosen = (type(config.balancer), type(config.shedder_config), type(config.placement_config))
    found: dict[str, type[KeyModel]] = {}
    for model in (*chosen, *models):
        for name in model.model_fields:
            found.setdefault(name, model)
    order = {name: None for model in models for name in model.model_fields}
    return {name: found[name] for name in order}
