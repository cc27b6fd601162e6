"""`lbctl scenario`: make, check and show scenarios for the simulator."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lb_stream.cli.scenario import from_history
from lb_stream.cli.scenario.from_history import Force, check_free
from lb_stream.cli.shared.options import Format, Json, Output
from lb_stream.cli.shared.output import (
    CommandError,
    emit,
    emit_json,
    emit_line,
    emit_rich,
    emit_rows,
    note,
    table,
)

if TYPE_CHECKING:
    from lb_stream.cli.scenario.facts import ScenarioFacts

app = typer.Typer(
    name="scenario",
    help="Scenarios for the simulator: make, check and show them.",
    no_args_is_help=True,
)

Folder = Annotated[Path, typer.Argument(metavar="DIR", help="The scenario's folder.")]
MOST_BROKERS = 20


@app.callback()
def _group() -> None:
    """Scenarios for the simulator: a cluster, its loads over time, what happens to it, the rules
    that hold. See docs/simulation.md."""


@app.command(
    epilog="Example: lbctl scenario new --family drain --set cluster.brokers=30 --set "
    "load.usage=0.6 my-drain"
)
def new(
    paths: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="[FILE.toml] DIR",
            help="A TOML file, if there is one, and the scenario's folder.",
        ),
    ] = None,
    family: Annotated[
        str | None,
        typer.Option(
            "--family",
            metavar="NAME",
            help="The family to begin with: see lbctl scenario families.",
        ),
    ] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="KEY=VALUE", help="One key, above family and file; may be given again."
        ),
    ] = None,
    print_: Annotated[
        bool,
        typer.Option(
            "--print",
            help="Print the family's file, or one with every key, instead: a file of your own to "
            "begin with.",
        ),
    ] = False,
    force: Force = False,
    json: Json = False,
) -> None:
    """Make a scenario from a short TOML file, from a family, or from both.

    The same input gives the same bytes.
    """
    from lb_stream.cli.scenario.facts import ScenarioFacts
    from lb_stream.sim.families import TEMPLATE, build_from_file, preset
    from lb_stream.sim.scenario import write_scenario

    if print_:
        if paths or set_:
            raise CommandError("--print takes --family and nothing else: it writes no scenario", 2)
        emit(preset(family or TEMPLATE))
        return
    if not paths or len(paths) > 2:
        raise CommandError(
            "name a folder for the scenario, and before it a TOML file if there is one: "
            "[FILE.toml] DIR",
            2,
        )
    *files, folder = paths
    if not (files or family or set_):
        raise CommandError(
            "say what to make: a TOML file before DIR (--print shows one), or --family NAME", 2
        )
    check_free(folder, force)
    scenario = build_from_file(files[0] if files else None, family or "", set_ or ())
    write_scenario(scenario, folder)
    _show_facts(folder, ScenarioFacts(scenario), json)


@app.command(epilog="Example: lbctl scenario families --json")
def families(json: Json = False, output: Output = Format.table) -> None:
    """List the families that `lbctl scenario new --family` knows."""
    from lb_stream.sim.families import families as known

    rows = ({"family": name, "why": why} for name, why in known().items())
    if not emit_rows(rows, output, json):
        emit_rich(table(("family", "what it is about"), list(known().items())))


@app.command(epilog="Example: lbctl scenario check my-drain")
def check(folder: Folder, json: Json = False) -> None:
    """Read a scenario and check all of it.

    Exit code 2, and one line that names file, field and value, if it breaks the format.
    """
    from lb_stream.cli.scenario.facts import ScenarioFacts
    from lb_stream.sim.scenario import ScenarioError, read_scenario

    try:
        facts = ScenarioFacts(read_scenario(folder))
    except ScenarioError as error:
        if json:
            emit_json(
                {
                    "folder": str(folder),
                    "ok": False,
                    "error": str(error),
                    "file": error.file,
                    "field": error.field,
                }
            )
        raise
    _show_facts(folder, facts, json)


@app.command(epilog="Example: lbctl scenario show my-drain --png my-drain.png")
def show(
    folder: Folder,
    png: Annotated[
        Path | None, typer.Option("--png", metavar="FILE", help="Write a picture as a PNG file.")
    ] = None,
    html: Annotated[
        Path | None,
        typer.Option("--html", metavar="FILE", help="Write a page as one HTML file."),
    ] = None,
    json: Json = False,
) -> None:
    """Show a scenario: brokers and load at the start, events, and imbalance if nothing moves."""
    from lb_stream.cli.scenario.facts import ScenarioFacts
    from lb_stream.sim.scenario import read_scenario

    facts = ScenarioFacts(read_scenario(folder))
    for path, write in ((png, _png), (html, _html)):
        if path is not None:
            try:
                write(facts, path)
            except OSError as error:
                raise CommandError(f"{path}: {error.strerror}") from None
            note(f"wrote {path}")
    if json:
        emit_json({"folder": str(folder), **facts.summary(), **facts.details()})
        return
    _show_facts(folder, facts, json)
    _show(facts.details())


def _png(facts: ScenarioFacts, path: Path) -> None:
    from lb_stream.cli.scenario.picture import draw

    draw(facts, path)


def _html(facts: ScenarioFacts, path: Path) -> None:
    from lb_stream.cli.scenario.page import page

    path.write_text(page(facts), encoding="utf-8")


def _show_facts(folder: Path, facts: ScenarioFacts, json: bool) -> None:
    """Show the short summary of `new` and `check`."""
    summary = facts.summary()
    if json:
        emit_json({"folder": str(folder), "ok": True, **summary})
        return
    size = (
        f"{summary['brokers_up']} of {summary['brokers']} brokers up, {summary['bundles']} bundles "
        f"in {summary['namespaces']} namespaces"
    )
    emit_line(f"{folder}: {summary['name']}, {summary['length_s'] / 60:g} minutes, {size}")
    if summary["why"]:
        emit_line(summary["why"])
    parts = {
        **summary["events"],
        **summary["faults"],
        **{name: count for name, count in summary["policies"].items() if count},
    }
    if parts:
        emit_line("with " + ", ".join(f"{count} {name}" for name, count in parts.items()))
    if summary["unreported"]:
        emit_line(_describe_unreported(summary["unreported"]))
    for text in summary["notes"]:
        note(f"note: {text}")


def _describe_unreported(counts: dict[str, int]) -> str:
    """Describe what load reports leave out or state wrongly, and what can be split."""
    texts = {
        "brokers_with_unknown_limits": "brokers with unknown limits: {}",
        "brokers_with_wrong_limits": "brokers with wrong limits: {}",
        "brokers_with_background": "brokers with cpu that no bundle causes: {}",
        "topics": "topics at which bundles can be split: {:,}",
    }
    return ", ".join(texts[name].format(count) for name, count in counts.items())


def _show(details: dict[str, Any]) -> None:
    rows = details["at_start"]
    columns = {"usage": "usage", "cpu": "cpu", "bandwidth_in": "in", "bandwidth_out": "out"}
    if any(row["background"] for row in rows):
        columns = {**columns, "background": "cpu of no bundle"}
    heads = ("broker", "bundles", *columns.values())
    cells = [
        (
            row["broker"] + ("" if row["up"] else " (down)"),
            row["bundles"],
            *(f"{row[name]:.2f}" for name in columns),
        )
        for row in rows[:MOST_BROKERS]
    ]
    emit_rich("", table(heads, cells, right=heads[1:]))
    if len(rows) > MOST_BROKERS:
        emit_line(f"and {len(rows) - MOST_BROKERS} more brokers (--json has all)")
    happens = [(event["t_s"], f"{event['t_s']:g}", event["what"]) for event in details["events"]]
    happens += [
        (fault["from_s"], f"{fault['from_s']:g} to {fault['to_s']:g}", fault["what"])
        for fault in details["faults"]
    ]
    if happens:
        emit_rich(
            "", table(("s", "what happens"), [cells[1:] for cells in sorted(happens)], right=("s",))
        )
    usages = {"max_usage": "busiest", "mean": "mean", "bound": "bound"}
    if details["unmoved"][0]["finest"] is not None:
        usages["finest"] = "with splits"
    unmoved = [
        (f"{row['t_s']:g}", *(f"{row[name]:.2f}" for name in usages), row["orphaned"])
        for row in details["unmoved"]
    ]
    over_time = ("s", *usages.values(), "bundles without owner")
    emit_rich("", "If nothing is moved:", table(over_time, unmoved, right=over_time))


from_history.register(app)
