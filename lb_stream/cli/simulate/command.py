"""`lbctl simulate`: what policies would do in a scenario, and what that is worth, side by side."""

from __future__ import annotations

import json as json_module
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from lb_stream.cli.shared.options import Json
from lb_stream.cli.shared.output import CommandError, emit_json, emit_rich, note, table

if TYPE_CHECKING:
    from lb_stream.sim.measures import TraceMeasures
    from lb_stream.sim.scenario import Scenario
    from lb_stream.sim.simulation import Policy

    Runs = dict[str, dict[str, TraceMeasures]]
    """Scenario → policy → what came of it."""

Named = TypeVar("Named", "Scenario", "Policy")

PARTS = 100
"""Steps of the progress of one scenario and policy."""
EPILOG = (
    "Example: lbctl simulate --scenario zipf --policy AvgShedder --policy "
    "ThresholdShedder+LeastLongTermMessageRate --html zipf.html · "
    "Exit codes: 0 played, held or lost; 2 a scenario or a policy that there isn't."
)


def register(app: typer.Typer) -> None:
    """Add the command to lbctl."""
    app.command("simulate", epilog=EPILOG)(simulate)


def simulate(
    scenario: Annotated[
        list[Path],
        typer.Option(
            "--scenario",
            "-s",
            metavar="DIR|FAMILY",
            help="A scenario's folder, or a family; may be given again.",
        ),
    ],
    policy: Annotated[
        list[str],
        typer.Option(
            "--policy",
            "-p",
            metavar="NAME|FILE",
            help="Shedder+Placement, a name that is both, none, or a file of settings; again for "
            "more.",
        ),
    ],
    trace: Annotated[
        Path | None,
        typer.Option(
            "--trace",
            metavar="FILE",
            help="Decisions and effects, as JSON lines. Of several: FILE-SCENARIO-POLICY.",
        ),
    ] = None,
    html: Annotated[
        Path | None,
        typer.Option(
            "--html", metavar="FILE", help="A page with pictures, which needs nothing else."
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Play scenarios with policies: reports, rounds, moves, as a cluster would; then measure
    imbalance, moves, clients' time lost, rules.

    One line says why a policy lost the scenario. Two runs give the same bytes. --json: the last
    line is one object with all measures, by scenario and policy where there are several.
    docs/simulation.md says what each measure is.
    """
    from lb_stream.sim.families import load_scenario
    from lb_stream.sim.simulation import read_policy

    scenarios = _by_name("--scenario", (load_scenario(place) for place in scenario))
    policies = _by_name("--policy", (read_policy(name_or_file) for name_or_file in policy))
    runs = _play_all(
        scenarios,
        policies,
        {} if trace is None else _traces(trace, list(scenarios), list(policies)),
    )
    if html is not None:
        from lb_stream.cli.simulate.page import page

        _write(html, [page(runs)])
        note(f"wrote {html}")
    if json:
        emit_json(_nested(runs))
    else:
        _show(runs)


def _play_all(
    scenarios: Mapping[str, Scenario],
    policies: Mapping[str, Policy],
    traces: Mapping[tuple[str, str], Path],
) -> Runs:
    """Every policy in every scenario; where a trace is wanted, it is written as soon as it is
    there."""
    from lb_stream.io.local.progress import progress
    from lb_stream.sim.measures import measure_trace
    from lb_stream.sim.simulation import run_simulation

    runs: Runs = {name: {} for name in scenarios}
    plays = len(scenarios) * len(policies)
    with progress("simulating", every=PARTS) as told:
        for done, (name, label) in enumerate(product(scenarios, policies)):
            played = run_simulation(
                scenarios[name], policies[label], _part(told, f"{name} {label}", done, plays)
            )
            if (name, label) in traces:
                _write(
                    traces[name, label],
                    (json_module.dumps(line) + "\n" for line in (played.header, *played.lines)),
                )
            runs[name][label] = measure_trace(scenarios[name], played.lines)
    return runs


def _part(
    told: Callable[[str, int, int], None], what: str, done: int, plays: int
) -> Callable[[float], None]:
    """Tells of a play's progress, 0..1, within that of all plays."""
    return lambda part: told(what, int((done + part) * PARTS), plays * PARTS)


def _by_name(option: str, given: Iterable[Named]) -> dict[str, Named]:
    """Each by the name that it is shown by. CommandError: a name is there twice."""
    found: dict[str, Named] = {}
    for item in given:
        if item.name in found:
            raise CommandError(
                f"{option}: there are two of the name {item.name}, expected each once", code=2
            )
        found[item.name] = item
    return found


def _traces(
    trace: Path, scenarios: Sequence[str], policies: Sequence[str]
) -> dict[tuple[str, str], Path]:
    """Where each trace goes: to the file itself, or beside it, if there are several."""
    if len(scenarios) * len(policies) == 1:
        return {(scenarios[0], policies[0]): trace}
    return {
        (scenario, other): trace.with_name(
            re.sub(r"[^\w.+-]", "_", f"{trace.stem}-{scenario}-{other}") + trace.suffix
        )
        for scenario in scenarios
        for other in policies
    }


def _write(path: Path, parts: Iterable[str]) -> None:
    try:
        with path.open("w", encoding="utf-8") as file:
            file.writelines(parts)
    except OSError as error:
        raise CommandError(f"{path}: {error.strerror}") from None


def _nested(runs: Runs) -> Any:
    """The measures, by scenario and policy where there are several."""
    by_policy = {
        name: {label: measures.figures for label, measures in of.items()}
        for name, of in runs.items()
    }
    if all(len(of) == 1 for of in by_policy.values()):
        by_policy = {name: next(iter(of.values())) for name, of in by_policy.items()}
    return by_policy if len(by_policy) > 1 else next(iter(by_policy.values()))


def _show(runs: Runs) -> None:
    """For each scenario who held or lost it, and the measures side by side."""
    from lb_stream.cli.simulate.figures import side_by_side
    from lb_stream.sim.measures import judge_trace

    for name, of in runs.items():
        numbers = [str(at) for at in range(1, len(of) + 1)]
        verdicts = [
            f"{number}  {label}: {judge_trace(measures)}"
            for number, (label, measures) in zip(numbers, of.items(), strict=True)
        ]
        rows = side_by_side(
            {
                number: measures.figures
                for number, measures in zip(numbers, of.values(), strict=True)
            }
        )
        emit_rich(
            "\n".join([name, *verdicts, ""]), table(["measure", *numbers], rows, right=numbers), ""
        )
