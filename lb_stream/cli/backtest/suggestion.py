"""`lbctl backtest --suggest`: its options, the table of the front, and the file of settings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lb_stream.cli.shared.output import CommandError, emit_json, emit_rich, note, styled, table
from lb_stream.cli.shared.settings_text import format_toml

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.text import Text

    from lb_stream.sim.simulation import Policy

JsonObject = Mapping[str, Any]
"""A part of the result that the back-test's program prints as JSON."""
_PANEL = "Search for better settings"
IMBALANCE, CONSTRAINT = "max_over_bound_median", "violation_count"
HEADS = {
    IMBALANCE: "max/bound",
    "moves": "moves",
    "client_seconds_lost": "client-s lost",
    CONSTRAINT: "rules broken",
}
"""Measure → head of its column."""


class Choose(StrEnum):
    """The measure that the chosen settings have least of."""

    moves = "moves"
    client_seconds = "client-seconds"
    imbalance = "imbalance"


Suggest = Annotated[
    bool,
    typer.Option(
        "--suggest", help="Search for better settings of the one --policy.", rich_help_panel=_PANEL
    ),
]
Search = Annotated[
    list[str] | None,
    typer.Option(
        "--search",
        metavar="NAME=LOW..HIGH|A|B",
        help="A setting to search: bounds, or choices; may be given again. Default: what the "
        "shedder goes by.",
        rich_help_panel=_PANEL,
    ),
]
Trials = Annotated[
    int,
    typer.Option(
        "--trials",
        metavar="NUMBER",
        help="How many policies are tried.",
        min=2,
        rich_help_panel=_PANEL,
    ),
]
Seed = Annotated[
    int,
    typer.Option(
        "--seed",
        metavar="NUMBER",
        help="The same seed gives the same result.",
        min=0,
        rich_help_panel=_PANEL,
    ),
]
ChooseBy = Annotated[
    Choose,
    typer.Option(
        "--choose",
        help="By which measure a policy of the front is chosen: the one with the least.",
        rich_help_panel=_PANEL,
    ),
]
Within = Annotated[
    float,
    typer.Option(
        "--within",
        metavar="PERCENT",
        help="How far the chosen policy may be above the least imbalance.",
        min=0.0,
        rich_help_panel=_PANEL,
    ),
]
Out = Annotated[
    Path | None,
    typer.Option(
        "--out",
        metavar="FILE.toml",
        help="Write the chosen settings, for --policy and --config.",
        rich_help_panel=_PANEL,
    ),
]


def require_possible(
    suggest: bool, policies: Sequence[Policy], searched: Sequence[str], out: Path | None
) -> None:
    """Require a search that is possible, before the long part.

    Raises SettingError, SuggestError for a wrong search; CommandError for a file that can't be
    written.
    """
    from lb_stream.backtest.suggest import require_space

    require_space(suggest, policies, searched)
    if out is None:
        return
    if not suggest:
        raise CommandError("--out is for --suggest: give both", 2)
    if out.suffix != ".toml":
        raise CommandError(
            f"--out {out}: expected a name that ends with .toml, as --policy and --config read it",
            2,
        )
    if out.exists() or not out.parent.is_dir():
        raise CommandError(
            f"--out {out}: expected a file that isn't there yet, in a folder that is", 2
        )


def show(result: JsonObject, out: Path | None, json: bool) -> None:
    """Print the front, and write the chosen settings.

    Raises CommandError where every trial failed.
    """
    made = result["suggestion"]
    if made["chosen"] is None:
        raise CommandError(
            f"all {made['trials']} trials failed: {result['rows'][0]['error'].splitlines()[-1]}"
        )
    chosen = next(row for row in made["front"] if row["number"] == made["chosen"])
    if json:
        emit_json({"run": result["run"], **made})
    else:
        emit_rich(_table(made))
        failed = f", {made['failed']} failed" if made["failed"] else ""
        best = f"{len(made['front'])} of {made['trials']} policies that no other one beats"
        note(f"{best}{failed}; all are rows of backtests, run {result['run']}")
        note(f"chosen: {chosen['number']}, {made['why']}")
    if out is not None:
        _write(out, settings_file(result["run"], made, chosen))
        note(f"wrote {out}: try it on other days with lbctl backtest --policy {out}")


def _table(made: JsonObject) -> RenderableType:
    """Build the table of the front; above it the base policy, if another one beats it.

    The column of broken rules is left out when no rule is broken.
    """
    beaten = all(row["number"] for row in made["front"])
    shown = [made["start"]] * beaten + made["front"]
    heads = {
        name: head
        for name, head in HEADS.items()
        if name != CONSTRAINT or any(row["measures"].get(name) for row in shown)
    }
    rows = [
        [_number(row, made["chosen"]), *(_figure(row, name) for name in heads), _changed(row)]
        for row in shown
    ]
    return table(("", *heads.values(), "settings changed"), rows, right=tuple(heads.values()))


def _number(row: JsonObject, chosen: int) -> str:
    return f"{row['number']} chosen" if row["number"] == chosen else str(row["number"])


def _figure(row: JsonObject, name: str) -> str:
    value = row["measures"].get(name)
    if value is None:
        return "-"
    return f"{value:,.3f}" if name == IMBALANCE else f"{value:,.1f}".removesuffix(".0")


def _changed(row: JsonObject) -> Text:
    """Return the settings that differ from the base's, each on a line of its own."""
    return styled(
        *(f"{name} = {format_toml(value)}" for name, value in row["changes"].items())
        if row["number"]
        else ("as it is",)
    )


def settings_file(run: str, made: JsonObject, chosen: JsonObject) -> str:
    """Return the chosen settings as TOML for --policy and --config."""
    figures = [
        f"# {head}: {_figure(chosen, name)}, was {_figure(made['start'], name)}"
        for name, head in HEADS.items()
    ]
    settings = [
        f"{name} = {format_toml(value)}"
        for name, value in chosen["settings"].items()
        if value is not None
    ]
    head = (
        f"# {chosen['policy']} of {made['trials']} tried by lbctl backtest --suggest, run "
        f"{run}: {made['why']}."
    )
    return "\n".join([head, *figures, "[balancer]", *settings, ""])


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise CommandError(f"{path}: {error.strerror}") from None
