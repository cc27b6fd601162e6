"""`lbctl simulate`: runs policies in scenarios, and compares their measures."""

from __future__ import annotations

import json as json_module
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from lb_stream.cli.shared.options import Json
from lb_stream.cli.shared.output import CommandError, emit_json, emit_rich, note, table

if TYPE_CHECKING:
    from lb_stream.sim.measures import TraceMeasures
    from lb_stream.sim.scenario import Scenario
    from lb_stream.sim.simulation import Policy

    Runs = dict[str, dict[str, TraceMeasures]]
    """Scenario → policy → its measures."""

Named = TypeVar("Named", "Scenario", "Policy")

PARTS = 100
"""Steps of the progress of one simulation."""
EPILOG = (
    "Example: lbctl simulate --scenario zipf --policy AvgShedder --policy "
    "ThresholdShedder+LeastLongTermMessageRate --html zipf.html · "
    "Exit codes: 0 simulated, held or lost; 2 an unknown scenario or policy."
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
            "--html", metavar="FILE", help="Write a page with pictures, as one HTML file."
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Run scenarios with policies, and measure imbalance, moves, clients' time lost, violations.

    One line says why a policy lost the scenario. The same arguments give the same bytes. --json:
    the last line is one object with all measures, by scenario and policy where there are several.
    docs/simulation.md describes the measures.
    """
    from lb_stream.sim.families import load_scenario
    from lb_stream.sim.simulation import read_policy

    scenarios = _by_name("--scenario", (load_scenario(place) for place in scenario))
    policies = _by_name("--policy", (read_policy(name_or_file) for name_or_file in policy))
    runs = _simulate_all(
        scenarios,
        policies,
        {} if trace is None else _trace_files(trace, list(scenarios), list(policies)),
    )
    if html is not None:
        from lb_stream.cli.simulate.page import page

        _write(html, [page(runs)])
        note(f"wrote {html}")
    if json:
        emit_json(_nested(runs))
    else:
        _show(runs)


def _simulate_all(
    scenarios: Mapping[str, Scenario],
    policies: Mapping[str, Policy],
    traces: Mapping[tuple[str, str], Path],
) -> Runs:
    """Run every policy in every scenario; each trace is written as soon as it is complete."""
    from lb_stream.io.local.progress import progress
    from lb_stream.sim.measures import measure_trace
    from lb_stream.sim.simulation import run_simulation

    runs: Runs = {name: {} for name in scenarios}
    count = len(scenarios) * len(policies)
    with progress("simulating", every=PARTS) as show_progress:
        for done, (name, label) in enumerate(product(scenarios, policies)):
            result = run_simulation(
                scenarios[name],
                policies[label],
                _overall_progress(show_progress, f"{name} {label}", done, count),
            )
            if (name, label) in traces:
                _write(
                    traces[name, label],
                    (json_module.dumps(line) + "\n" for line in (result.header, *result.lines)),
                )
            runs[name][label] = measure_trace(scenarios[name], result.lines)
    return runs


def _overall_progress(
    show_progress: Callable[[str, int, int], None], text: str, done: int, count: int
) -> Callable[[float], None]:
    """Return a function that shows one simulation's progress, 0 to 1, within that of all."""
    return lambda share: show_progress(text, int((done + share) * PARTS), count * PARTS)


def _by_name(option: str, given: Iterable[Named]) -> dict[str, Named]:
    """Return name → scenario or policy. Raises CommandError for a name that comes twice."""
    found: dict[str, Named] = {}
    for item in given:
        if item.name in found:
            raise CommandError(
                f"{option}: there are two of the name {item.name}, expected each once", code=2
            )
        found[item.name] = item
    return found


def _trace_files(
    trace: Path, scenarios: Sequence[str], policies: Sequence[str]
) -> dict[tuple[str, str], Path]:
    """Return the file of each trace: the given one, or files beside it where there are several."""
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


def _nested(runs: Runs) -> object:
    """Return the figures, by scenario and policy where there are several."""
    by_policy = {
        name: {label: measured.figures for label, measured in policies.items()}
        for name, policies in runs.items()
    }
    if all(len(figures) == 1 for figures in by_policy.values()):
        by_policy = {name: next(iter(figures.values())) for name, figures in by_policy.items()}
    return by_policy if len(by_policy) > 1 else next(iter(by_policy.values()))


def _show(runs: Runs) -> None:
    """Show each scenario's verdicts, and the policies' measures side by side."""
    from lb_stream.cli.simulate.figures import side_by_side
    from lb_stream.sim.measures import judge_trace

    for name, policies in runs.items():
        numbers = [str(at) for at in range(1, len(policies) + 1)]
        verdicts = [
            f"{number}  {label}: {judge_trace(measured)}"
            for number, (label, measured) in zip(numbers, policies.items(), strict=True)
        ]
        rows = side_by_side(
            {
                number: measured.figures
                for number, measured in zip(numbers, policies.values(), strict=True)
            }
        )
        emit_rich(
            "\n".join([name, *verdicts, ""]), table(["measure", *numbers], rows, right=numbers), ""
        )
