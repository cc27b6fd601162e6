"""`lbctl config explain`: each setting's value, who gave it, and who reads it; what was given in
vain."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lb_stream.cli.shared.options import (
    BrokerConf,
    Cluster,
    ConfigFile,
    Effective,
    Json,
    Set,
    effective,
)
from lb_stream.cli.shared.output import CommandError, emit, emit_json, emit_rich, note, table
from lb_stream.cli.shared.settings_text import as_toml, hidden

if TYPE_CHECKING:
    from lb_stream.contracts.keys import KeyModel
    from lb_stream.core.config.cluster_config import ClusterConfig

Keys = Annotated[
    list[str] | None,
    typer.Argument(metavar="[KEY]...", help="Only these, under our names or Pulsar's; none: all."),
]
All = Annotated[
    bool,
    typer.Option(
        "--all",
        help="Also those that nobody reads under these settings, and that nobody has given.",
    ),
]


@dataclass(frozen=True, slots=True)
class ExplainedSetting:
    """One setting as it is in force.

    `given_by`: "default", "profile NAME", or where it was given; `why_unread`: "" when it is read.
    """

    section: str
    key: str
    pulsar: str
    value: Any
    unit: str
    default: Any
    given_by: str
    dynamic: bool
    meaning: str
    readers: tuple[str, ...]
    read_by: tuple[str, ...]
    why_unread: str

    @property
    def in_vain(self) -> bool:
        """Somebody has given it, and nobody reads it."""
        return (
            bool(self.why_unread)
            and self.given_by != "default"
            and not self.given_by.startswith("profile ")
        )


def explain(
    keys: Keys = None,
    cluster: Cluster = None,
    all_: All = False,
    config: ConfigFile = None,
    broker_conf: BrokerConf = None,
    set_: Set = None,
    json: Json = False,
) -> None:
    """Say of each setting what is in force, who gave it, and which of the chosen strategies read
    it; warn of what was given in vain.

    Who gave it: --set, a variable LB_SECTION__KEY, the TOML file, the broker.conf (with Pulsar's
    name), the profile, or nobody. What operators have changed since by commands lies above all of
    these, and isn't shown here.
    """
    given = effective(config, broker_conf, set_)
    from lb_stream.core.config.key_usage import NOBODY

    found = list(explained(given, cluster or ""))
    chosen = (
        _chosen(found, keys)
        if keys
        else [setting for setting in found if all_ or setting.read_by or setting.in_vain]
    )
    vain = [setting for setting in chosen if setting.in_vain]
    if json:
        emit_json(
            {
                "cluster": cluster,
                "settings": [asdict(setting) for setting in chosen],
                "in_vain": [setting.key for setting in vain],
            }
        )
        return
    if keys:
        emit("\n".join(_paragraph(setting) for setting in chosen))
    else:
        made: Any = table(("setting", "value", "given by", "read by"), list(_rows(chosen)))
        made.columns[0].no_wrap = True
        emit_rich(made)
    for setting in vain:
        if setting.readers != (NOBODY,):  # of these the settings themselves have told already
            note(
                f"warning: {setting.section}.{setting.key} ({setting.given_by}) is read by nobody: "
                f"{setting.why_unread}"
            )


def explained(given: Effective, cluster: str) -> Iterator[ExplainedSetting]:
    """Every setting there is, section by section; those of the balancer as they are for one cluster
    ("": one without its own section)."""
    from lb_stream.contracts.keys import metadata

    for section, model in job_sections().items():
        values = hidden(section, getattr(given.settings, section).model_dump())
        for name in model.model_fields:
            extra, field = metadata(model, name), model.model_fields[name]
            origins = [
                origin for path, origin in given.origins.items() if path[:2] == (section, name)
            ]
            yield ExplainedSetting(
                section,
                name,
                "",
                values[name],
                extra["unit"],
                field.default,
                ", ".join(dict.fromkeys(origins)) or "default",
                extra["dynamic"],
                str(field.description),
                (job_reader(section),),
                (job_reader(section),),
                "",
            )
    yield from _of_balancer(given, cluster)


def job_sections() -> dict[str, type[KeyModel]]:
    """Section → its model: those that aren't the balancer's."""
    from lb_stream.contracts.keys import KeyModel
    from lb_stream.contracts.settings import Settings

    models = {name: field.annotation for name, field in Settings.model_fields.items()}
    return {
        name: model
        for name, model in models.items()
        if isinstance(model, type) and issubclass(model, KeyModel)
    }


def job_reader(section: str) -> str:
    """Who reads such a section."""
    return {
        "upkeep": "lbctl tables maintain",
        "notify": "lbctl notify",
        "hooks": "lbctl agent",
    }.get(section, "the job")


def _of_balancer(given: Effective, cluster: str) -> Iterator[ExplainedSetting]:
    from lb_stream.contracts.balancer import PROFILES, SHEDDER_PROFILES, NamespaceConfig
    from lb_stream.contracts.keys import metadata
    from lb_stream.core.config.cluster_config import all_models, cluster_config
    from lb_stream.core.config.key_usage import (
        BALANCER,
        EVERY_CLUSTER,
        key_usage,
        reading,
        why_unread,
    )
    from lb_stream.core.config.namespaces import PREFIX, nested
    from lb_stream.io.local.configuration import effective as in_force

    values, checked = (
        in_force(given.settings, cluster),
        cluster_config(given.settings.of_cluster(cluster)),
    )
    profile = checked.balancer.profile
    of_profile = PROFILES[profile] | SHEDDER_PROFILES.get(profile, {}).get(checked.shedder.name, {})
    own = given.settings.of_cluster(cluster)
    for name, model in _models(all_models(), checked).items():
        extra, field = metadata(model, name), model.model_fields[name]
        origin = given.origins.get(("cluster", cluster, name)) or given.origins.get(
            ("balancer", name)
        )
        if origin is None:
            origin = f"profile {profile}" if name in of_profile else "default"
        if name == "report_timeout_ms" and origin == "default" and values[name] != field.default:
            origin = "two report_max_interval_ms"
        value = (
            values[name]
            if name in values
            else _typed(model, name, own.get(name, of_profile.get(name, field.default)))
        )
        read_by = reading(name, checked)
        yield ExplainedSetting(
            "balancer",
            name,
            extra["pulsar"] or "",
            value,
            extra["unit"],
            field.default,
            origin,
            extra["dynamic"],
            str(field.description),
            key_usage(name),
            read_by,
            "" if read_by else why_unread(name, checked),
        )
    for namespace, keys in nested(own).items():
        for own_key in keys:
            name, field = f"{PREFIX}{namespace}.{own_key}", NamespaceConfig.model_fields[own_key]
            yield ExplainedSetting(
                "balancer",
                name,
                "",
                values[name],
                metadata(NamespaceConfig, own_key)["unit"],
                field.default,
                given.origins.get(("cluster", cluster, name))
                or given.origins.get(("balancer", name), ""),
                True,
                str(field.description),
                (EVERY_CLUSTER,),
                (BALANCER,),
                "",
            )


def _typed(model: type[KeyModel], name: str, value: Any) -> Any:
    """A value that nobody reads, in its type; as it was given when it doesn't fit: nobody has
    checked it."""
    from pydantic import ValidationError

    try:
        return getattr(model(**{name: value}), name)
    except ValidationError:
        return value


def _models(models: Sequence[type[KeyModel]], checked: ClusterConfig) -> dict[str, type[KeyModel]]:
    """Key → the model that says what it means here: the balancer's if it has it, else the chosen
    strategies', else the first."""
    chosen = (type(checked.balancer), type(checked.shedder_config), type(checked.placement_config))
    found: dict[str, type[KeyModel]] = {}
    for model in (*chosen, *models):
        for name in model.model_fields:
            found.setdefault(name, model)
    order = {name: None for model in models for name in model.model_fields}
    return {name: found[name] for name in order}


def _chosen(found: Sequence[ExplainedSetting], keys: Sequence[str]) -> list[ExplainedSetting]:
    """The asked ones in the order asked. Raises CommandError for a key that there isn't."""
    from difflib import get_close_matches

    from lb_stream.core.config.reading import DRY_RUN, OLD_SPELLINGS

    names: dict[str, ExplainedSetting] = {}
    for setting in found:
        names |= {setting.key: setting, f"{setting.section}.{setting.key}": setting} | (
            {setting.pulsar: setting} if setting.pulsar else {}
        )
    names |= {old: names[ours] for old, ours in (OLD_SPELLINGS | {DRY_RUN: "mode"}).items()}
    chosen = []
    for key in keys:
        if key not in names:
            nearest = ", ".join(get_close_matches(key, names, n=3, cutoff=0.0))
            raise CommandError(
                f"there is no setting {key}: nearest are {nearest} (`lbctl config explain --all` "
                "lists them)",
                2,
            )
        chosen.append(names[key])
    return chosen


def _rows(chosen: Sequence[ExplainedSetting]) -> Iterator[tuple[str, str, str, str]]:
    """The settings under the headings of their sections."""
    section = ""
    for setting in chosen:
        if setting.section != section:
            section = setting.section
            yield f"[{section}]", "", "", ""
        yield setting.key, _shown(setting), setting.given_by, ", ".join(setting.read_by) or "nobody"


def _shown(setting: ExplainedSetting) -> str:
    text = "not set" if setting.value is None else as_toml(setting.value)
    return (
        f"{text} {setting.unit}"
        if setting.unit and isinstance(setting.value, int | float)
        else text
    )


def _paragraph(setting: ExplainedSetting) -> str:
    default = "not set" if setting.default is None else as_toml(setting.default)
    lines = [
        f"{setting.section}.{setting.key} = {_shown(setting)}",
        f"  given by   {setting.given_by}"
        + (f" (default: {default})" if setting.given_by != "default" else ""),
        f"  meaning    {setting.meaning}",
        f"  in Pulsar  {setting.pulsar}" if setting.pulsar else "  in Pulsar  no such key",
        "  may change "
        f"{'by a command, while the job runs' if setting.dynamic else 'at a start only'}",
        f"  read by    {', '.join(setting.read_by) or f'nobody: {setting.why_unread}'}",
    ]
    return "\n".join(lines) + "\n"
