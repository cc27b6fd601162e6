"""`lbctl config show`, and the group of the commands about settings."""

from __future__ import annotations

import json as json_
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lb_stream.cli.inspect.config_explain import explain
from lb_stream.cli.shared.command_lines import OperatorGroup
from lb_stream.cli.shared.options import (
    CliSettings,
)
from lb_stream.cli.shared.output import emit
from lb_stream.cli.shared.reading import ReadOptions, with_read_options
from lb_stream.cli.shared.settings_text import format_key, format_toml

if TYPE_CHECKING:
    from lb_stream.query.cluster_state import ClusterState

app = typer.Typer(
    name="config",
    cls=OperatorGroup,
    help="Settings: those in force, and those of a running cluster.",
    no_args_is_help=True,
)

app.command(
    "explain",
    epilog="Example: lbctl config explain --broker-conf broker.conf; lbctl config explain "
    "threshold_percent",
)(explain)


@app.callback()
def _group() -> None:
    """The settings in force."""


@app.command(epilog="Example: lbctl config show --broker-conf broker.conf --explain > lb.toml")
@with_read_options(cluster=False, watch=False)
def show(
    explain: Annotated[
        bool,
        typer.Option(
            "--explain", help="Add each key's meaning, unit and Pulsar name as a comment."
        ),
    ] = False,
    *,
    options: ReadOptions,
) -> None:
    """Print all settings in force as TOML for --config; secrets are hidden.

    Files, the environment (LB_SECTION__KEY) and --set are applied. Profiles that follow the
    brokers' versions come last, as comments.
    """
    from lb_stream.contracts.settings import SHADOW
    from lb_stream.query.profiles import build_profile_facts, load_states_if_any

    given = options.given
    sections = _collect_sections(given)
    states = load_states_if_any(given.tables)
    profiles = {state.cluster: build_profile_facts(state) for state in states}
    clusters = {
        name.partition(".")[2]: keys
        for name, keys in sections.items()
        if name.startswith("cluster.")
    }
    clusters = {
        name: keys | {SHADOW: own} if (own := given.settings.shadows_of(name)) else keys
        for name, keys in clusters.items()
    }
    origins = {".".join(path): origin for path, origin in given.origins.items()}
    general = {name: keys for name, keys in sections.items() if not name.startswith("cluster.")}
    own = {name: asdict(facts) for name, facts in profiles.items()}
    if options.emit_object(general | {"cluster": clusters, "origins": origins, "profiles": own}):
        return
    emit(
        "\n".join(
            [
                *(_format_section(name, keys, given, explain) for name, keys in sections.items()),
                *_format_shadows(given),
                *_format_profiles(states),
            ]
        )
    )


def _collect_sections(given: CliSettings) -> dict[str, dict[str, object]]:
    """Return section → key → value in force. Clusters' sections include inherited keys."""
    from lb_stream.settings.explain import list_job_sections
    from lb_stream.settings.secrets import hide_section

    settings = given.settings
    sections = {
        name: hide_section(name, getattr(settings, name).model_dump())
        for name in list_job_sections()
    }
    sections["balancer"] = given.of_cluster("").values
    return sections | {
        f"cluster.{name}": given.of_cluster(name).values for name in settings.cluster
    }


def _format_shadows(given: CliSettings) -> Iterator[str]:
    """Yield the sections of the clusters' shadows, with the settings of their own."""
    from lb_stream.contracts.settings import SHADOW

    for cluster in given.settings.cluster:
        for name, own in given.settings.shadows_of(cluster).items():
            place = ("cluster", cluster, SHADOW, name)
            lines = [
                f"{format_key(key)} = {format_toml(value)}"
                f"  # {given.origins.get((*place, key), '')}"
                for key, value in own.items()
            ]
            heading = f"[cluster.{json_.dumps(cluster)}.{SHADOW}.{name}]"
            yield "\n".join([heading, *lines]) + "\n"


def _format_profiles(states: Sequence[ClusterState]) -> Iterator[str]:
    """Yield comments: the profiles that follow the brokers' versions, and what they set."""
    from lb_stream.contracts.balancer import PROFILES
    from lb_stream.settings.move_limits import find_set_profile

    for state in states:
        followed = state.memory.followed
        chosen = find_set_profile(state.given, state.operator_state.settings)
        if chosen is not None or not followed.origin:
            continue
        lines = [
            f"# {format_key(key)} = {format_toml(value)}"
            for key, value in PROFILES[followed.profile].items()
            if key not in state.given
        ]
        heading = f"# {state.cluster}: profile {followed.profile}, {followed.origin}"
        yield "\n".join([heading, *lines]) + "\n"


def _format_section(
    section: str, keys: Mapping[str, object], given: CliSettings, explain: bool
) -> str:
    """Return a section as TOML, with the origin of each value that was given."""
    prefix = tuple(section.split(".", 1))
    lines = [f"[cluster.{json_.dumps(prefix[1])}]" if prefix[0] == "cluster" else f"[{section}]"]
    for name, value in keys.items():
        origin = given.origins.get((*prefix, name))
        if prefix[0] == "cluster" and origin is None:
            continue  # inherited from [balancer]
        lines += [f"# {line}" for line in _explain_key(prefix[0], name)] if explain else []
        text = f"# {name} is not set"
        follows = name == "profile" and origin is None
        if follows:
            text += ": it follows the brokers' versions"
        elif value is not None:
            text = f"{format_key(name)} = {format_toml(value)}"
        lines.append(f"{text}  # {origin}" if origin else text)
    return "\n".join(lines) + "\n"


def _explain_key(section: str, name: str) -> Iterable[str]:
    """Yield a key's meaning, with its unit and its Pulsar name."""
    from lb_stream.contracts.balancer import NamespaceConfig
    from lb_stream.contracts.keys import key_metadata
    from lb_stream.contracts.settings import Settings
    from lb_stream.settings.names import list_models
    from lb_stream.settings.spelling import PREFIX

    model = Settings.model_fields[section].annotation
    models: Any = list_models() if section in ("balancer", "cluster") else (model,)
    if name.startswith(PREFIX):
        models, name = (NamespaceConfig,), name.rpartition(".")[2]
    for settings_model in models:
        if name in settings_model.model_fields:
            extra = key_metadata(settings_model, name)
            unit = f" [{extra.unit}]" if extra.unit else ""
            pulsar = f" (Pulsar: {extra.pulsar})" if extra.pulsar else ""
            yield f"{settings_model.model_fields[name].description}{unit}{pulsar}"
            return
