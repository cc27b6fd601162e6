"""`make bench-plan`: how good LeastMoves' plans are; the last line is one JSON object.

Without a folder: small random clusters, beside the fewest moves that there are (HiGHS). With one:
the instances of the ROADEF/EURO challenge 2012 in it (model_NAME.txt and assignment_NAME.txt),
beside the best that is known of each.

What of the challenge maps. Machines are brokers, processes bundles. A machine is hot when it uses
more of a resource than its safety capacity; or, where all of them together do, more than an even
load of the scarcest resource. Hard constraints are rules on who may take what: capacity, also of
what a move takes twice, conflict, spread, dependency. A process' cost of moving is a bundle's. What
doesn't map is not sought, only counted: balance costs, which machines it is moved between, how many
processes of one service move. The challenge's programs had five minutes for each instance and
minimise nothing but its cost; this is one round of the balancer.

examples:
  the comparison with the fewest moves:
    python -m tests.bench.plan
  the challenge's instances of a folder, or some of them:
    python -m tests.bench.plan FOLDER --only a1_1 a1_2
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import track
from rich.table import Table

from lb_stream.core.least_moves.plan import MovePlan
from lb_stream.core.model.view import Bools, Floats, Ints
from lb_stream.core.shedding.base import Disruption
from tests.bench.reassignment import Instance, Rules, costs, read_instance, usage, violations
from tests.support.exact_plan import (
    Compared,
    Unproven,
    bring_all_down,
    compare,
    nobody_connected,
    random_case,
)

CASES = 200
EVEN = 1.0
"""Machines are brought down to what they are entitled to, and filled up to it."""
PASSES = 1
"""A pass is one round of the balancer. The last one moves nothing, or is this one."""

# The best of the challenge's qualification (Gualandi, "Challenging MIPs instances", 2012; a2_1 is
# his own), or what the winner's program finds in five minutes, where that is better (Gavranović and
# Buljubašić, team S41: resultsS41.xls beside its source).
BEST_KNOWN = {
    "a1_1": 44_306_501,
    "a1_2": 777_532_896,
    "a1_3": 583_005_717,
    "a1_4": 252_728_589,
    "a1_5": 727_578_309,
    "a2_1": 196,
    "a2_2": 746_097_632,
    "a2_3": 1_210_644_572,
    "a2_4": 1_680_615_349,
    "a2_5": 318_358_949,
    "b_1": 3_353_533_859,
    "b_2": 1_015_569_276,
    "b_3": 157_091_678,
    "b_4": 4_677_962_661,
    "b_5": 924_769_283,
    "b_6": 9_525_888_445,
    "b_7": 14_835_258_465,
    "b_8": 1_214_470_739,
    "b_9": 15_885_647_774,
    "b_10": 18_048_493_393,
}


def entitled(instance: Instance) -> Floats:
    """(machines, resources): the usage that makes a machine just as full as it ought to be."""
    yard = np.maximum(np.where(instance.load_weight > 0, instance.safety, instance.capacity), 1)
    even = float((usage(instance, instance.start).sum(axis=0) / yard.sum(axis=0)).max())
    return np.minimum(yard * max(even, 1.0), np.maximum(instance.capacity, 1))


def reassign(instance: Instance) -> Ints:
    """Where LeastMoves puts each process, in one round of the balancer."""
    rules, per_unit = Rules(instance), np.asfortranarray(1.0 / entitled(instance))

    def may_take(process: int) -> Bools:
        rules.follow(plan.moves)
        return rules.takers(process)

    machines, process_move = len(per_unit), instance.process_move.astype(np.float64)
    plan = MovePlan(
        share=np.asfortranarray(usage(instance, instance.start) * per_unit),
        per_unit=per_unit,
        demand=instance.demand.astype(np.float64),
        cost=0.5 + 0.5 * process_move / max(float(process_move.mean()), 1.0),
        payback=nobody_connected(machines, len(instance.demand)),
        may_take=may_take,
        acceptable_share=EVEN,
        target_share=EVEN,
        min_gain=0.0,
        limit=np.full(machines, EVEN),
        disruption=Disruption.none(len(instance.demand)),
        intake_left=np.full(machines, len(instance.demand)),
    )
    hot = np.flatnonzero(plan.share.max(axis=1) > EVEN)
    order = np.argsort(instance.start, kind="stable")
    rows = np.split(order, np.searchsorted(instance.start[order], np.arange(1, machines)))
    bring_all_down(plan, hot, rows.__getitem__)
    rules.carry_out(plan.moves)
    return rules.at


def judge(name: str, instance: Instance) -> dict[str, Any]:
    """An instance before and after, beside the best that is known."""
    begun = time.perf_counter()
    at = reassign(instance)
    seconds = time.perf_counter() - begun
    before, after, best = (
        sum(costs(instance, instance.start).values()),
        costs(instance, at),
        BEST_KNOWN.get(name),
    )
    total = sum(after.values())
    return {
        "machines": len(instance.capacity),
        "processes": len(instance.demand),
        "before": before,
        "after": total,
        "best_known": best,
        "gap": None if best is None else round((total - best) / best, 4),
        "of_possible": None if best is None else round((before - total) / (before - best), 4),
        "parts_before": costs(instance, instance.start),
        "parts_after": after,
        "moves": int((at != instance.start).sum()),
        "seconds": round(seconds, 2),
        "violations": sum(violations(instance, at).values()),
    }


def small_cases(count: int) -> dict[str, Any]:
    """LeastMoves' plans of random small clusters, those with a hot broker, beside the fewest moves
    that do as much."""
    found, unproven = list[Compared](), 0
    for seed in track(range(count), "solving", console=Console(stderr=True)):
        try:
            found.append(compare(random_case(seed)))
        except Unproven:
            unproven += 1
    hot = [one for one in found if one.bound]
    possible = [one for one in hot if one.needed is not None]
    shortest = [one for one in hot if one.moves == one.fewest]
    return {
        "cases": len(hot),
        "moves": sum(one.moves for one in hot),
        "fewest": sum(one.fewest for one in hot),
        "as_few_as_possible": len(shortest),
        "most_too_many": max((one.moves - one.fewest for one in hot), default=0),
        "cost_over_least": round(
            sum(one.cost for one in shortest) / max(sum(one.least_cost for one in shortest), 1e-9),
            3,
        ),
        "can_be_relieved": len(possible),
        "relieved": sum(one.relieved for one in possible),
        "bound_over_fewest": round(
            sum(one.bound for one in possible) / max(sum(one.needed or 0 for one in possible), 1), 3
        ),
        "unproven": unproven,
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Print a table, then the JSON line. Exit code 2: the folder has no such instance."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.bench.plan", formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.description = __doc__
    parser.add_argument(
        "folder",
        type=Path,
        nargs="?",
        help="instances of the challenge; default: small clusters beside the fewest moves",
    )
    parser.add_argument(
        "--only", nargs="+", metavar="NAME", help="instances; default: all of the folder"
    )
    parser.add_argument("--cases", type=int, default=CASES, help=f"small clusters, default {CASES}")
    options = parser.parse_args(arguments)
    if options.folder is None:
        found = small_cases(options.cases)
        table = Table(
            "",
            "",
            title="small clusters, LeastMoves beside the fewest moves that do as much",
            show_header=False,
        )
        for name, value in found.items():
            table.add_row(name.replace("_", " "), f"{value:,}")
        Console(width=140).print(table)
        print(json.dumps(found))
        return 0
    known = sorted(path.stem.removeprefix("model_") for path in options.folder.glob("model_*.txt"))
    names = options.only or known
    if not names or set(names) - set(known):
        expected = ", ".join(names) or "files model_NAME.txt and assignment_NAME.txt"
        print(
            f"{options.folder}: expected instances {expected}, found {', '.join(known) or 'none'}",
            file=sys.stderr,
        )
        return 2
    judged = dict[str, dict[str, Any]]()
    for name in track(names, "planning", console=Console(stderr=True)):
        judged[name] = judge(
            name,
            read_instance(
                options.folder / f"model_{name}.txt", options.folder / f"assignment_{name}.txt"
            ),
        )
    table = Table(
        "instance",
        "machines",
        "processes",
        "before",
        "after",
        "best known",
        "of what is possible",
        "moves",
        "s",
        "violations",
    )
    for name, one in judged.items():
        best, part = (
            (f"{one['best_known']:,}", f"{one['of_possible']:.1%}")
            if one["best_known"]
            else ("", "")
        )
        table.add_row(
            name,
            *(f"{one[key]:,}" for key in ("machines", "processes", "before", "after")),
            best,
            part,
            f"{one['moves']:,}",
            str(one["seconds"]),
            str(one["violations"]),
        )
    Console(width=160).print(table)
    print(json.dumps(judged))
    return 0


if __name__ == "__main__":
    sys.exit(main())
