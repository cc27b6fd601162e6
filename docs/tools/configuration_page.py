"""The pages of the settings, written from their models by `python -m docs.tools`.

docs/configuration.md says how settings are given; a page for each owner lists the keys.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin

from pydantic.fields import FieldInfo

from lb_stream.contracts.balancer import PROFILES, SHEDDER_PROFILES, BalancerConfig, NamespaceConfig
from lb_stream.contracts.keys import KeyModel, key_metadata
from lb_stream.contracts.reports import ReportConfig
from lb_stream.contracts.unread import WHY, UnreadKeys
from lb_stream.core.model.registry import Registry
from lb_stream.core.placement import placement, simple_placement
from lb_stream.core.shedding import shedder
from lb_stream.core.splitting import SplittingConfig, split_algorithm
from lb_stream.core.splitting.config import INT_MAX
from lb_stream.settings.explain import find_section_reader, list_job_sections
from lb_stream.settings.names import list_models
from lb_stream.settings.spelling import OLD_SPELLINGS
from lb_stream.settings.usage import EVERY_CLUSTER, list_possible_readers, list_strategies_reading

NAMES: dict[str, Registry[Any]] = {
    "shedding_strategy": shedder,
    "placement_strategy": placement,
    "simple_placement_strategy": simple_placement,
    "split_algorithm": split_algorithm,
}
"""Key → the strategies that it may name."""

_FRONT = """\
# Configuration

A setting is a key with a value. Its value comes from the first of these that gives one:

1. an operator's [command](commands.md#brokers-and-settings), while the job runs
2. an argument: `--set SECTION.KEY=VALUE` (the balancer's keys need no section)
3. an environment variable: `LB_SECTION__KEY`, with two underscores
4. the TOML file (`--config`): `[cluster.NAME]` before `[balancer]`
5. a Pulsar `broker.conf` (`--broker-conf`)
6. the [profile](configuration-strategies.md#profiles)
7. the default

An unknown key is refused. A `broker.conf` may have keys that concern no load balancer; these are
ignored. A key that is named like the load balancer's, and is none of them, is a warning with the
nearest name. What a `broker.conf` leaves out has the default of the profile's release.

A *context* is a name for the files of `--config` and `--broker-conf`. Commands that name no file
use those of the current context. The option `--context NAME`, right after `lbctl`, chooses another,
and so does the variable `LB_CONTEXT`. `lbctl context set eu-1 --config lb.toml` makes one, `lbctl
run` too, and `lbctl context list` shows all; `none` stands for no context. They are in a file of
the user's own (`LB_CONTEXTS` names another); give services their files.

Variables and `--set` override the files of a context like any others. `lbctl sim` and `lbctl
reports send`, whose reports are made up or old, use a context only where `--context` or
`LB_CONTEXT` names it. `lbctl demo` uses none, and nor do the commands that it prints.

`lbctl config show` prints the settings in force. `lbctl config explain [KEY]` names where a value
was given and what reads it, and warns of values without effect.

| page | sections | what reads them |
|---|---|---|
| [job](configuration-job.md) | `[kafka]`, `[topics]`, `[stream]`, `[security]`, `[admission]`, `[upkeep]`, `[otel]` | job, upkeep, agents |
| [servers](configuration-servers.md) | `[console]`, `[oidc]`, `[lookup]`, `[metrics]` | `lbctl console`, `lbctl lookup-server`, job |
| [balancer](configuration-balancer.md) | `[balancer]`, `[cluster.NAME]`, namespaces | the balancer of every cluster, agents |
| [strategies](configuration-strategies.md) | `[balancer]`, `[cluster.NAME]` | the chosen strategies; profiles |
| [notifications and hooks](configuration-notify.md) | `[notify]`, `[hooks]` | `lbctl notify`, `lbctl agent` |
| [Pulsar's other keys](configuration-pulsar.md) | `broker.conf` | nothing: they have no effect here |

## The tables

A *dynamic* key can be changed by a command while the job runs; another key counts from the next
start. *Pulsar's key* is accepted wherever this project's key is; the factor after ×
converts its unit.

A key's name ends with its unit: `_ms` milliseconds, `_hours` hours, `_mb` MB (or MB/s),
`_bytes_per_s` bytes/s, `_percent` per cent (0 to 100), `_points` percentage points, `_ratio` a
ratio. A key that has Pulsar's meaning keeps the words of Pulsar's key. `max_…` and `min_…` are
limits. 1 MiB is 1 048 576 bytes. *The reference* is Apache Pulsar 4.0.7.
"""

_NOTE = "[How settings are given and how to read this table](configuration.md)."

_HEAD = (
    "| key | default | unit | allowed | Pulsar's key | dynamic | meaning | read by "
    "|\n|---|---|---|---|---|---|---|---|"
)
_SECTIONS = {
    "kafka": "The Kafka cluster.",
    "topics": "Names of the topics; `lbctl topics create` makes them.",
    "stream": "How the job runs.",
    "upkeep": "What `lbctl tables maintain` keeps of the tables.",
    "otel": "Traces and metrics for OpenTelemetry ([traces](traces.md)).",
    "notify": "Which events `lbctl notify` reports to which targets, and how often\n"
    "([notifications](alerts.md#notifications)).",
    "hooks": "Addresses that agents call before and after a move "
    "([hooks](approval.md#hooks-of-moves)).",
    "console": "The server of the [console](console.md); [its safety](security.md#servers).",
    "oidc": "Logins of the console by [OpenID Connect](console.md#openid-connect).",
    "lookup": "The server of [lookups](lookups.md).",
    "metrics": "The server of the job's [metrics](metrics.md), at `stream.metrics_address`.",
    "security": "Keys, and which records must be signed ([security](security.md#signed-records)).",
    "admission": "How much one broker or cluster may cause ([senders](security.md#senders)).",
}


def pages() -> dict[str, str]:
    """Return page → its text.

    The same models give the same pages; strategies of other packages aren't on them.
    """
    return {
        "configuration.md": _FRONT,
        "configuration-job.md": _sections(
            "Settings of the job",
            "kafka",
            "topics",
            "stream",
            "security",
            "admission",
            "upkeep",
            "otel",
        ),
        "configuration-servers.md": _sections(
            "Settings of the servers", "console", "oidc", "lookup", "metrics"
        ),
        "configuration-balancer.md": _balancer(),
        "configuration-strategies.md": _strategies(),
        "configuration-notify.md": _sections(
            "Settings of notifications and hooks", "notify", "hooks"
        ),
        "configuration-pulsar.md": _unread(),
    }


def _sections(title: str, *sections: str) -> str:
    models = list_job_sections()
    parts = [f"# {title}\n\n{_NOTE}\n"]
    for section in sections:
        table = _table(_rows(models[section], (find_section_reader(section),)))
        parts.append(f"## [{section}]\n\n{_SECTIONS[section]}\n\n{table}\n")
    return "\n".join(parts)


def _balancer() -> str:
    return f"""\
# Settings of the balancer

{_NOTE}
Keys of `[cluster.NAME]` override those of `[balancer]`. Keys of its [shadows](shadows.md),
`[cluster.NAME.shadow.SHADOW]`, override both.

## All strategies

{_table(_rows(BalancerConfig))}

## Splitting

What these keys do: [splitting](splitting.md).

{_table(_rows(SplittingConfig))}

## Reporting

When a broker's agent sends a load report.

{_table(_rows(ReportConfig))}

## [namespace."TENANT/NAMESPACE"]

What moves may cost the clients of one namespace ([how it is counted](disruption.md#budgets)).
`[cluster.NAME.namespace."TENANT/NAMESPACE"]` overrides it. For `--set` and commands they are keys
of the balancer: `namespace.TENANT/NAMESPACE.KEY`.

{_table(_rows(NamespaceConfig, (EVERY_CLUSTER,)))}
"""


def _strategies() -> str:
    return f"""\
# Settings of strategies

{_NOTE}
What each strategy does with its keys: [strategies](strategies.md). Several strategies may read one
key.

## Keys

{_table(_of_strategies())}

{_profiles()}"""


def _table(rows: Iterable[tuple[str, ...]]) -> str:
    return "\n".join([_HEAD, *(f"| {' | '.join(row)} |" for row in rows)])


def _rows(model: type[KeyModel], read_by: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    for name in model.model_fields:
        yield _row(model, name, read_by or list_possible_readers(name))


def _of_strategies() -> Iterator[tuple[str, ...]]:
    """Yield the rows of the keys that only strategies have, each once."""
    seen = {
        *BalancerConfig.model_fields,
        *SplittingConfig.model_fields,
        *ReportConfig.model_fields,
        *UnreadKeys.model_fields,
    }
    for model in list_models():
        for name in model.model_fields:
            if name not in seen:
                seen.add(name)
                yield _row(model, name, list_strategies_reading(name))


def _row(model: type[KeyModel], name: str, read_by: Iterable[str]) -> tuple[str, ...]:
    """Return a key's row of the table."""
    extra, field = key_metadata(model, name), model.model_fields[name]
    factor = f" × {_number(extra.factor)}" if extra.factor != 1 else ""
    pulsar = f"`{extra.pulsar}`{factor}" if extra.pulsar else ""
    old = [f"`{spelling}`" for spelling, ours in OLD_SPELLINGS.items() if ours == name]
    return (
        f"`{name}`",
        _value(field.default),
        extra.unit,
        _allowed(model, name),
        ", ".join([pulsar, *old]),
        "yes" if extra.dynamic else "",
        str(field.description).replace("|", "\\|"),
        ", ".join(read_by),
    )


def _value(value: object) -> str:
    if value is None:
        return "not set"
    if isinstance(value, bool | str):
        return f"`{json.dumps(value)}`"
    if isinstance(value, tuple | list):
        return "<br>".join(map(_value, value)) or "`[]`"
    return _number(value) if isinstance(value, int | float) else f"`{json.dumps(value)}`"


def _number(value: float) -> str:
    return f"{value:,}".replace(",", " ")


def _allowed(model: type[KeyModel], name: str) -> str:
    """Describe which values a key may have, by its type and limits."""
    if name in NAMES:
        registry = NAMES[name]
        own = (
            strategy
            for strategy in registry.names
            if registry[strategy].function.__module__.startswith("lb_stream.")
        )
        return ", ".join(own)
    field = model.model_fields[name]
    annotation: Any = field.annotation
    if get_origin(annotation) in (Union, UnionType):
        annotation = next(kind for kind in get_args(annotation) if kind is not NoneType)
    if get_origin(annotation) is Literal:
        return ", ".join(f"`{choice}`" for choice in get_args(annotation))
    if annotation is bool:
        return "true, false"
    if annotation in (int, float):
        kind = "whole number" if annotation is int else "number"
        return f"{kind}{_limits(field)}"
    if annotation is str:
        return "text"
    if get_origin(annotation) is tuple:
        return "names" if name.endswith(("namespaces", "algorithms")) else "texts"
    return "a section"


def _limits(field: FieldInfo) -> str:
    """Describe a number's limits, after a comma; empty: it has none."""
    limits = {
        name: getattr(limit, name)
        for limit in field.metadata
        for name in ("ge", "le")
        if hasattr(limit, name)
    }
    least, most = (
        _number(limits[name]) if abs(limits.get(name, INT_MAX)) < INT_MAX else ""
        for name in ("ge", "le")
    )
    if least and most:
        return f", {least} to {most}"
    return f", {least} or more" if least else ""


def _profiles() -> str:
    """Return the table of what each profile sets. The profile `default` gives all defaults."""
    defaults = {
        name: model.model_fields[name].default
        for model in reversed(list_models())
        for name in model.model_fields
    }
    shedders = dict.fromkeys(
        (strategy, name)
        for changes in SHEDDER_PROFILES.values()
        for strategy, own in changes.items()
        for name in own
    )
    rows = [
        (f"`{name}`", name, [given.get(name) for given in PROFILES.values()])
        for name in dict.fromkeys(name for given in PROFILES.values() for name in given)
    ]
    rows += [
        (
            f"`{name}`, with {strategy}",
            name,
            [SHEDDER_PROFILES.get(profile, {}).get(strategy, {}).get(name) for profile in PROFILES],
        )
        for strategy, name in shedders
    ]
    lines = [
        f"| {shown} | "
        f"{' | '.join(_value(defaults[name] if value is None else value) for value in values)} |"
        for shown, name, values in rows
    ]
    return (
        "## Profiles\n\n`profile` says whose behaviour to follow: Pulsar 4.0's without what harms "
        "its operators\n"
        "([what that is](strategies.md#profiles)), a release's to the letter, or what Pulsar's "
        "documentation\n"
        "says. Where no setting names one, it [follows the brokers'\n"
        "version](strategies.md#which-profile-counts). A profile replaces defaults; any given "
        "value\n"
        "replaces the profile's.\n\n"
        f"| key | {' | '.join(f'`{profile}`' for profile in PROFILES)} "
        f"|\n|{'---|' * (1 + len(PROFILES))}\n" + "\n".join(lines) + "\n"
    )


def _unread() -> str:
    rows = []
    for name, why in WHY.items():
        extra, field = key_metadata(UnreadKeys, name), UnreadKeys.model_fields[name]
        rows.append(
            f"| `{name}` | {_value(field.default)} | {extra.unit} | {field.description} | {why} |"
        )
    return (
        "# Keys of Pulsar's without effect here\n\nThese keys are accepted and checked. A warning "
        "names each that is given with another value than\nPulsar's default, and counts the others. "
        "Those of scalable topics come with Pulsar 5.0.\n\n"
        "| key | Pulsar's default | unit | in Pulsar | here |\n|---|---|---|---|---|\n"
        + "\n".join(rows)
        + "\n"
    )
