"""docs/configuration.md, written from the models of the settings.

`python -m docs.tools.configuration_page` writes the page; `--check` writes nothing and exits 1 when
it differs.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin

from lb_stream.contracts.balancer import PROFILES, SHEDDER_PROFILES, BalancerConfig, NamespaceConfig
from lb_stream.contracts.keys import KeyModel, metadata
from lb_stream.contracts.reports import ReportConfig
from lb_stream.contracts.unread import WHY, UnreadKeys
from lb_stream.core.model.registry import Registry
from lb_stream.core.placement import placement, simple_placement
from lb_stream.core.shedding import shedder
from lb_stream.core.splitting import SplittingConfig, split_algorithm
from lb_stream.core.splitting.config import INT_MAX
from lb_stream.settings.explain import job_reader, job_sections
from lb_stream.settings.names import all_models
from lb_stream.settings.spelling import OLD_SPELLINGS
from lb_stream.settings.usage import EVERY_CLUSTER, key_usage, strategies_reading

PAGE = Path(__file__).resolve().parents[2] / "docs" / "configuration.md"

NAMES: dict[str, Registry[Any]] = {
    "shedding_strategy": shedder,
    "placement_strategy": placement,
    "simple_placement_strategy": simple_placement,
    "split_algorithm": split_algorithm,
}
"""Key → the strategies that it may name."""

_INTRO = """\
# Configuration

The models make this page: `python -m docs.tools.configuration_page`. A test fails when it is out of
date.

A key's value comes from the first of these that gives one:

1. an argument: `--set SECTION.KEY=VALUE` (the balancer's keys need no section)
2. an environment variable: `LB_SECTION__KEY`, with two underscores
3. the TOML file (`--config`): `[cluster.NAME]` before `[balancer]`
4. a Pulsar `broker.conf` (`--broker-conf`)
5. the profile
6. the default

An unknown key is refused, except in a `broker.conf`, where keys that concern no load balancer are
passed over. `lbctl config show` prints what is in force. `lbctl config explain [KEY]` says who gave
a value and who reads it, and warns of values that have no effect.

A *dynamic* key can be changed by a [command](commands.md#brokers-and-settings) while the job runs;
the others count from the next start on. *Pulsar's key* is accepted wherever ours is; after × stands
the factor between their units. MiB are 1 048 576 bytes; per cent are 0 to 100. *The
reference* is Apache Pulsar 4.0.7. What each strategy does with its keys:
[strategies](strategies.md).
"""

_HEAD = (
    "| key | default | unit | allowed | Pulsar's key | dynamic | meaning | read by "
    "|\n|---|---|---|---|---|---|---|---|"
)
_SECTIONS = {
    "kafka": "The Kafka cluster.",
    "topics": "Names of the topics; `lbctl topics create` makes them.",
    "stream": "How the job runs.",
    "upkeep": "What `lbctl tables maintain` keeps of the tables.",
    "notify": "Whom `lbctl notify` tells what, and how often ([telling "
    "people](alerts.md#notifications)).",
    "hooks": "Whom agents ask before a move, and tell after it "
    "([hooks](approval.md#hooks-of-moves)).",
}


def page() -> str:
    """The whole page.

    The same models always give the same page; strategies of other packages aren't on it.
    """
    parts = [_INTRO]
    for section, model in job_sections().items():
        about = _SECTIONS.get(section, str(model.__doc__).splitlines()[0])
        parts.append(
            f"## [{section}]\n\n{about}\n\n{_table(_rows(model, (job_reader(section),)))}\n"
        )
    parts.append(
        "## [balancer] and [cluster.NAME]\n\nWhat the balancer does. Keys of a cluster's own "
        "section lie over those of `[balancer]`,\n"
        "those of its [shadows](shadows.md), `[cluster.NAME.shadow.SHADOW]`, over both.\n\n"
        f"### All strategies\n\n{_table(_rows(BalancerConfig))}\n\n### "
        f"Splitting\n\n{_table(_rows(SplittingConfig))}\n\n"
        f"### Strategies\n\nOne key may be read by several.\n\n{_table(_of_strategies())}\n\n"
        f"### Reporting\n\nWhen a broker's agent writes a report.\n\n"
        f"{_table(_rows(ReportConfig))}\n"
    )
    parts.append(
        '## [namespace."TENANT/NAMESPACE"]\n\nWhat moves may cost the clients of one namespace\n'
        "([how it is counted](disruption.md#budgets)).\n"
        '`[cluster.NAME.namespace."TENANT/NAMESPACE"]` lies over it. For `--set` and commands they '
        "are keys\nof the balancer: "
        f"`namespace.TENANT/NAMESPACE.KEY`.\n\n{_table(_rows(NamespaceConfig, (EVERY_CLUSTER,)))}\n"
    )
    parts.append(_profiles())
    parts.append(_unread())
    return "\n".join(parts)


def _table(rows: Iterable[tuple[str, ...]]) -> str:
    return "\n".join([_HEAD, *(f"| {' | '.join(row)} |" for row in rows)])


def _rows(model: type[KeyModel], read_by: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    for name in model.model_fields:
        yield _row(model, name, read_by or key_usage(name))


def _of_strategies() -> Iterator[tuple[str, ...]]:
    """The keys that only strategies have, each once."""
    seen = {
        *BalancerConfig.model_fields,
        *SplittingConfig.model_fields,
        *ReportConfig.model_fields,
        *UnreadKeys.model_fields,
    }
    for model in all_models():
        for name in model.model_fields:
            if name not in seen:
                seen.add(name)
                yield _row(model, name, strategies_reading(name))


def _row(model: type[KeyModel], name: str, read_by: Iterable[str]) -> tuple[str, ...]:
    extra, field = metadata(model, name), model.model_fields[name]
    pulsar = (
        f"`{extra['pulsar']}`" + (f" × {_number(extra['factor'])}" if extra["factor"] != 1 else "")
        if extra["pulsar"]
        else ""
    )
    old = [f"`{spelling}`" for spelling, ours in OLD_SPELLINGS.items() if ours == name]
    return (
        f"`{name}`",
        _value(field.default),
        extra["unit"],
        _allowed(model, name),
        ", ".join([pulsar, *old]),
        "yes" if extra["dynamic"] else "",
        str(field.description).replace("|", "\\|"),
        ", ".join(read_by),
    )


def _value(value: Any) -> str:
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
    """What a key may be, from its type and limits."""
    if name in NAMES:
        own = (
            one
            for one in NAMES[name].names
            if NAMES[name][one].function.__module__.startswith("lb_stream.")
        )
        return ", ".join(own)
    field = model.model_fields[name]
    annotation: Any = field.annotation
    if get_origin(annotation) in (Union, UnionType):
        annotation = next(one for one in get_args(annotation) if one is not NoneType)
    if get_origin(annotation) is Literal:
        return ", ".join(f"`{choice}`" for choice in get_args(annotation))
    limits = {
        limit: getattr(one, limit)
        for one in field.metadata
        for limit in ("ge", "le")
        if hasattr(one, limit)
    }
    if annotation is bool:
        return "true, false"
    if annotation in (int, float):
        kind = "whole number" if annotation is int else "number"
        least, most = (
            _number(limits[limit]) if abs(limits.get(limit, INT_MAX)) < INT_MAX else ""
            for limit in ("ge", "le")
        )
        return kind + (
            f", {least} to {most}" if least and most else f", {least} or more" if least else ""
        )
    if annotation is str:
        return "text"
    if get_origin(annotation) is tuple:
        return "names" if name.endswith(("namespaces", "algorithms")) else "texts"
    return "a section"


def _profiles() -> str:
    """What each profile sets; a key that it doesn't set has its default, which is what `default`
    gives."""
    defaults = {
        name: model.model_fields[name].default
        for model in reversed(all_models())
        for name in model.model_fields
    }
    shedders = dict.fromkeys(
        (one, name)
        for changes in SHEDDER_PROFILES.values()
        for one, own in changes.items()
        for name in own
    )
    rows = [
        (f"`{name}`", name, [given.get(name) for given in PROFILES.values()])
        for name in dict.fromkeys(name for given in PROFILES.values() for name in given)
    ]
    rows += [
        (
            f"`{name}`, with {one}",
            name,
            [SHEDDER_PROFILES.get(profile, {}).get(one, {}).get(name) for profile in PROFILES],
        )
        for one, name in shedders
    ]
    lines = [
        f"| {shown} | "
        f"{' | '.join(_value(defaults[name] if value is None else value) for value in values)} |"
        for shown, name, values in rows
    ]
    return (
        "## Profiles\n\n`profile` says whose behaviour to follow: Pulsar 4.0's without what harms "
        "its operators\n"
        "([what that is](strategies.md#profiles)), Pulsar 4.0's to the letter, or what its "
        "documentation\n"
        "says. A profile replaces defaults; any value that somebody gives replaces the "
        "profile's.\n\n"
        f"| key | {' | '.join(f'`{profile}`' for profile in PROFILES)} "
        f"|\n|{'---|' * (1 + len(PROFILES))}\n" + "\n".join(lines) + "\n"
    )


def _unread() -> str:
    rows = []
    for name, why in WHY.items():
        extra, field = metadata(UnreadKeys, name), UnreadKeys.model_fields[name]
        rows.append(
            f"| `{name}` | {_value(field.default)} | {extra['unit']} | {field.description} | {why} "
            "|"
        )
    return (
        "## Keys of Pulsar's without effect here\n\nThey are accepted and checked, and a warning "
        "tells of them.\n\n"
        "| key | Pulsar's default | unit | in Pulsar | here |\n|---|---|---|---|---|\n"
        + "\n".join(rows)
        + "\n"
    )


def main(arguments: list[str]) -> int:
    """Exit codes: 0 written, or nothing differs; 1 it differs; 2 wrong usage."""
    if arguments not in ([], ["--check"]):
        print("usage: python -m docs.tools.configuration_page [--check]", file=sys.stderr)
        return 2
    made = page()
    differs = not PAGE.exists() or PAGE.read_text() != made
    if arguments:
        command = "python -m docs.tools.configuration_page"
        print(
            f"docs/configuration.md differs: run `{command}`"
            if differs
            else "docs/configuration.md is up to date"
        )
        return int(differs)
    PAGE.write_text(made)
    print(f"docs/configuration.md: {'written' if differs else 'as it was'}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
