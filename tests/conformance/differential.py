"""python -m tests.conformance.differential REFERENCE: generated cases to both sides, and where they
differ.

REFERENCE is a command that reads cases as JSON lines and writes what Pulsar's own classes decide.
Exit codes: 0 all are equal, 1 some differ, 2 the reference can't be run.
"""

from __future__ import annotations

import argparse
import json
import shlex
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from rich.progress import track

import tests.conformance.adapters  # noqa: F401  registers them
from lb_stream.contracts.balancer import PROFILES
from tests.conformance.comparison import differences
from tests.conformance.generated import Case
from tests.conformance.generated_releases import ALL_KINDS, cases
from tests.conformance.registry import PULSAR_4_0, answer

ORDERS = ("brokerOrder", "bundleOrder")
HEAVY_KINDS = ("overload", "threshold", "uniform", "avg", "transfer", "manager")
"""Twice as many of these: they have the most to go wrong."""


def reference_answers(command: Sequence[str], asked: Iterable[Case]) -> list[dict[str, Any]]:
    """What the reference decides, case by case.

    Raises OSError, CalledProcessError, ValueError when it doesn't answer.
    """
    text = "".join(f"{json.dumps(case)}\n" for case in asked)
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=True)
    return [_error_of_the_case(json.loads(line)) for line in done.stdout.splitlines()]


def _error_of_the_case(line: dict[str, Any]) -> dict[str, Any]:
    """A case that is nothing but an error has it in its place, as the recorded ones do."""
    result = line.get("result")
    return (
        {"id": line["id"], "kind": line["kind"]} | result
        if isinstance(result, dict) and [*result] == ["error"]
        else line
    )


def in_the_order_of(case: Case, wanted: dict[str, Any]) -> Case:
    """The case with its rows as the reference's hash maps laid them: that is how it breaks ties."""
    result = wanted.get("result")
    if isinstance(result, dict):
        return case | {name: result[name] for name in ORDERS if name in result}
    if not isinstance(result, list) or "rounds" not in case:
        return case
    laid, index = [], 0
    for given in case["rounds"]:
        found = result[index] if isinstance(result[index], dict) else {}
        laid.append(given | {name: found[name] for name in ORDERS if name in found})
        index += int(given.get("repeat", 1))
    return case | {"rounds": laid}


def compare(
    command: Sequence[str], kind: str, count: int, seed: int, profile: str = PULSAR_4_0
) -> tuple[int, list[tuple[Case, str]]]:
    """How many cases of a kind were tried, and those that differ with the first difference."""
    asked = cases(kind, count, seed, profile)
    found = []
    for case, wanted in zip(asked, reference_answers(command, asked), strict=True):
        laid = in_the_order_of(case, wanted)
        different = next(differences(wanted, answer(laid, profile)), None)
        if different is not None:
            found.append((laid, different))
    return len(asked), found


def main() -> int:
    """Try all kinds, print a table and the smallest case of each kind that differs; the last line
    is one JSON object."""
    parser = argparse.ArgumentParser(
        description=__doc__.splitlines()[0], prog="python -m tests.conformance.differential"
    )
    parser.add_argument("reference", help="the reference's command, e.g. '../reference/run.sh'")
    parser.add_argument(
        "--cases", type=int, default=22_000, help="of all kinds together (default %(default)s)"
    )
    parser.add_argument("--seed", type=int, default=0, help="other cases (default %(default)s)")
    parser.add_argument(
        "--kind",
        action="append",
        choices=sorted(ALL_KINDS),
        help="only this one; several times for several",
    )
    parser.add_argument(
        "--profile",
        choices=sorted(PROFILES),
        default=PULSAR_4_0,
        help="the reference's release (default %(default)s)",
    )
    options = parser.parse_args()
    kinds = options.kind or [*ALL_KINDS]
    share = {kind: 2 if kind in HEAVY_KINDS else 1 for kind in kinds}
    tried, differ, smallest = Counter[str](), Counter[str](), dict[str, tuple[Case, str]]()
    for kind in track(kinds, "cases", disable=not sys.stderr.isatty()):
        try:
            tried[kind], found = compare(
                shlex.split(options.reference),
                kind,
                options.cases * share[kind] // sum(share.values()) + 1,
                options.seed,
                options.profile,
            )
        except (OSError, ValueError, subprocess.CalledProcessError) as error:
            print(
                f"the reference did not answer: {error}\n{getattr(error, 'stderr', '') or ''}",
                file=sys.stderr,
            )
            return 2
        differ[kind] = len(found)
        if found:
            smallest[kind] = min(found, key=lambda pair: len(json.dumps(pair[0])))
        print(f"{kind:28} {tried[kind]:6} cases {differ[kind]:6} different", flush=True)
    for case, where in smallest.values():
        print(f"{where}\n  {json.dumps(case)}")
    print(json.dumps({"cases": tried.total(), "different": differ.total(), "seed": options.seed}))
    return int(differ.total() > 0)


if __name__ == "__main__":
    sys.exit(main())
