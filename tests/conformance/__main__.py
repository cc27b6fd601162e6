"""python -m tests.conformance < cases.jsonl > decisions.jsonl: what this project decides on the
reference's cases, line by line.

Exit codes: 0 every line was answered (an answer may be an error), 2 a line is no JSON object.
"""

import argparse
import json
import sys
from collections.abc import Sequence

import tests.conformance.adapters  # noqa: F401  registers them
from lb_stream.contracts.balancer import PROFILES
from tests.conformance.registry import PULSAR_4_0, answer


def main(arguments: Sequence[str] | None = None) -> int:
    """Answer standard input on standard output."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.conformance",
        description="Answers recorded cases, one JSON object a line, as this project decides.",
    )
    parser.add_argument(
        "--profile",
        choices=sorted(PROFILES),
        default=PULSAR_4_0,
        help="whose behaviour to follow where a case sets no key (default %(default)s)",
    )
    profile = parser.parse_args(arguments).profile
    for number, line in enumerate(sys.stdin, 1):
        if not line.strip():
            continue
        try:
            case = json.loads(line)
        except ValueError as error:
            print(f"line {number} is no JSON: {error}", file=sys.stderr)
            return 2
        if not isinstance(case, dict):
            print(
                f"line {number}: expected a JSON object, got {type(case).__name__}", file=sys.stderr
            )
            return 2
        print(json.dumps(answer(case, profile)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
