"""`lbctl config explain`: each setting's value, its origin, and which strategies read it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, cast

import typer

from lb_stream.cli.shared.output import CommandError, emit, emit_rich, note, table
from lb_stream.cli.shared.reading import ReadOptions, with_read_options
from lb_stream.cli.shared.settings_text import format_toml
from lb_stream.io.messages.times import clock

if TYPE_CHECKING:
    from rich.table import Table

    from lb_stream.query.profiles import ProfileFacts
    from lb_stream.settings.explain import ExplainedSetting

Keys = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[KEY]...",
        help="Only these keys, by this project's names or Pulsar's. Default: all.",
    ),
]
All = Annotated[
    bool,
    typer.Option(
        "--all",
        help="Also show settings that were not given and that no chosen strategy reads.",
    ),
]


@with_read_options(watch=False)
def explain(
    keys: Keys = None,
    all_: All = False,
    *,
    options: ReadOptions,
) -> None:
    """Explain settings: the value in force, where it was given, and which strategies read it.

    A setting is given by --set, a variable LB_SECTION__KEY, the TOML file, the broker.conf (with
    Pulsar's name), or the profile; otherwise it has its default. A setting that is given and not
    read causes a warning. Operators' overrides precede all of these, and are not shown here.

    Where no setting names a profile, it follows the brokers' versions, which the tables have. A
    change of it is listed before it counts: the settings with their old and new values.
    """
    from lb_stream.query.profiles import build_profile_facts, load_states_if_any
    from lb_stream.settings.explain import NONE_FOLLOWED, explain_settings
    from lb_stream.settings.usage import NONE_READS

    given, cluster = options.given, options.cluster
    states = load_states_if_any(given.tables, cluster)
    followed = states[0].memory.followed if len(states) == 1 else NONE_FOLLOWED
    profiles = {state.cluster: build_profile_facts(state) for state in states}
    found = list(explain_settings(given.settings, given.origins, cluster or "", followed))
    chosen = (
        _choose(found, keys)
        if keys
        else [setting for setting in found if all_ or setting.read_by or setting.is_ineffective]
    )
    ineffective = [setting for setting in chosen if setting.is_ineffective]
    answer = {
        "cluster": cluster,
        "settings": [asdict(setting) for setting in chosen],
        "ineffective": [setting.key for setting in ineffective],
        "profiles": {name: asdict(facts) for name, facts in profiles.items()},
    }
    if options.emit_object(answer):
        return
    if keys:
        emit("\n".join(_describe_setting(setting) for setting in chosen))
    else:
        columns = ("setting", "value", "given by", "read by")
        built = cast("Table", table(columns, list(_list_cells(chosen))))
        built.columns[0].no_wrap = True
        emit_rich(built)
    for name, facts in profiles.items():
        emit("".join(f"{line}\n" for line in _describe_profile(name, facts)))
    for setting in ineffective:
        if setting.readers != (NONE_READS,):  # loading the settings has warned of these already
            note(
                f"warning: {setting.section}.{setting.key} ({setting.given_by}) is not read: "
                f"{setting.why_unread}"
            )


def _describe_profile(cluster: str, facts: ProfileFacts) -> Iterator[str]:
    """Yield lines about doubtful versions, and about the profile that is to follow."""
    for doubt in facts.doubts:
        yield f"{cluster}: {doubt}"
    if not facts.next:
        return
    yield (
        f"{cluster}: at {clock(facts.next_ms)} profile {facts.next} follows {facts.name}, as its "
        f"brokers run {facts.next_version}:"
    )
    for change in facts.changes:
        yield f"  {change.text}"
    yield f"  to stay: lbctl config set profile {facts.name} --cluster {cluster}"


def _choose(found: Sequence[ExplainedSetting], keys: Sequence[str]) -> list[ExplainedSetting]:
    """Choose settings by their keys, in the keys' order. Raises CommandError for an unknown key."""
    from difflib import get_close_matches

    from lb_stream.settings.spelling import DRY_RUN, OLD_SPELLINGS

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


def _list_cells(chosen: Sequence[ExplainedSetting]) -> Iterator[tuple[str, str, str, str]]:
    """Yield the cells of each section's heading and of its settings."""
    section = ""
    for setting in chosen:
        if setting.section != section:
            section = setting.section
            yield f"[{section}]", "", "", ""
        read_by = ", ".join(setting.read_by) or "none"
        yield setting.key, _describe_value(setting), setting.given_by, read_by


def _describe_value(setting: ExplainedSetting) -> str:
    text = "not set" if setting.value is None else format_toml(setting.value)
    return (
        f"{text} {setting.unit}"
        if setting.unit and isinstance(setting.value, int | float)
        else text
    )


def _describe_setting(setting: ExplainedSetting) -> str:
    """Describe a setting on six lines."""
    default = "not set" if setting.default is None else format_toml(setting.default)
    lines = [
        f"{setting.section}.{setting.key} = {_describe_value(setting)}",
        f"  given by   {setting.given_by}"
        + (f" (default: {default})" if setting.given_by != "default" else ""),
        f"  meaning    {setting.meaning}",
        f"  in Pulsar  {setting.pulsar}" if setting.pulsar else "  in Pulsar  no such key",
        "  may change "
        f"{'by a command, while the job runs' if setting.dynamic else 'at a start only'}",
        f"  read by    {', '.join(setting.read_by) or f'none: {setting.why_unread}'}",
    ]
    return "\n".join(lines) + "\n"
