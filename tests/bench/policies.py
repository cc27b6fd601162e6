"""What each pair of shedder and placement reaches in each scenario of a folder.

Every pair plays every scenario through the balancer's own path; the last line is one JSON object
{pair: {scenario: measures}}. The measures: docs/simulation.md.

examples:
  all pairs on the scenarios of a folder:
    python -m tests.bench.policies FOLDER
  two policies on one scenario:
    python -m tests.bench.policies FOLDER --policies none AvgShedder --scenarios drain
"""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import track
from rich.table import Table

from lb_stream.core.placement import placement, simple_placement
from lb_stream.core.shedding import shedder
from lb_stream.core.shedding.base import traits_of
from lb_stream.sim.measures import measure_figures
from lb_stream.sim.scenario.reading import read_scenario
from lb_stream.sim.simulation import read_policy, run_simulation
from lb_stream.sim.simulation.policy import NONE

LARGE = ("big_1000",)
"""Scenarios that take minutes each: only when they are named."""
RELEASE = "pulsar-5.0"
"""The profile whose own strategy differs from those of the others: AvgShedder by a plan."""


def pairs() -> list[str]:
    """Every pair there is: a shedder with each placement of its manager; one that is a placement,
    too, and the extensible one alone; and what a release runs when nothing is set."""
    found = [NONE]
    placements = {
        "modular": [name for name in placement.names if name not in shedder.names],
        "simple": simple_placement.names,
        "extensible": (),
    }
    for name in shedder.names:
        alone = name in placement.names or not placements[traits_of(shedder[name]).manager]
        found += (
            [name]
            if alone
            else [f"{name}+{other}" for other in placements[traits_of(shedder[name]).manager]]
        )
    return [*found, RELEASE]


def played(folder: Path, policy: str) -> dict[str, Any]:
    """The measures of one policy in one scenario."""
    scenario = read_scenario(folder)
    return measure_figures(scenario, run_simulation(scenario, read_policy(policy)).lines)


def row_of(measures: Sequence[Mapping[str, Any]]) -> list[str]:
    """A policy's line of the table: geometric means of ratios, sums of everything that can be added
    up."""

    def geometric(name: str) -> float:
        return math.exp(sum(math.log(one[name]) for one in measures) / len(measures))

    def total(name: str) -> float:
        return sum(one[name] for one in measures)

    never = sum(one["time_to_balance_s"] is None for one in measures)
    return [
        f"{geometric('max_over_bound_median'):.3f} ({geometric('max_over_bound_p95'):.3f})",
        str(never),
        f"{total('balanced_share') / len(measures):.2f}",
        *(
            f"{total(name):,.0f}"
            for name in (
                "moves",
                "undone",
                "redundant",
                "overload_s_85",
                "overload_s_100",
                "client_seconds_lost",
            )
        ),
        f"{total('violation_count'):.0f}, {total('budget_breaches'):.0f}",
    ]


HEAD = (
    *(
        "policy",
        "max/bound (p95)",
        "never balanced",
        "balanced share",
        "moves",
        "undone",
        "redundant",
    ),
    *("broker-s > 0.85", "> 1", "client-s lost", "violations, breaches"),
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Play all, print the table, then the JSON line. Exit code 2: there is no scenario."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.bench.policies", formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.description = __doc__
    parser.add_argument("folder", type=Path, help="a folder of scenarios")
    parser.add_argument(
        "--policies", nargs="+", default=None, metavar="POLICY", help="default: every pair"
    )
    parser.add_argument(
        "--scenarios",
        nargs="+",
        default=None,
        metavar="NAME",
        help=f"default: all but {', '.join(LARGE)}",
    )
    parser.add_argument(
        "--processes", type=int, default=os.cpu_count(), help="default: one for each core"
    )
    options = parser.parse_args(arguments)
    known = sorted(path.parent.name for path in options.folder.glob("*/scenario.json"))
    names = options.scenarios or [name for name in known if name not in LARGE]
    if not names or set(names) - set(known):
        expected = ", ".join(names) or "folders with a scenario.json"
        print(
            f"{options.folder}: expected scenarios {expected}, found {', '.join(known) or 'none'}",
            file=sys.stderr,
        )
        return 2
    policies = options.policies or pairs()
    found: dict[str, dict[str, Any]] = {policy: {} for policy in policies}
    own_threads = get_context(
        "spawn"
    )  # a fork of a process with threads (Arrow's, a solver's) may never come to its work
    with ProcessPoolExecutor(options.processes, own_threads) as pool:
        waiting = {
            pool.submit(played, options.folder / name, policy): (policy, name)
            for name in names
            for policy in policies
        }
        for done in track(
            as_completed(waiting),
            description="playing",
            total=len(waiting),
            console=Console(stderr=True),
        ):
            policy, name = waiting[done]
            found[policy][name] = done.result()
    table = Table(*HEAD, title=f"{len(names)} scenarios: geometric means of max/bound, sums")
    for policy, measures in found.items():
        table.add_row(policy, *row_of(list(measures.values())))
    Console(width=200).print(table)
    print(
        json.dumps(
            {policy: {name: measures[name] for name in names} for policy, measures in found.items()}
        )
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
