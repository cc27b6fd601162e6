"""python -m tests.conformance < cases.jsonl > decisions.jsonl: what this project decides on the
reference's cases, line by line.

Profile pulsar-4.0. Exit codes: 0 every line was answered (an answer may be an error), 2 a line is
no JSON object.
"""

import json
import sys

import tests.conformance.adapters  # noqa: F401  registers them
from tests.conformance.registry import answer


def main() -> int:
    """Answer standard input on standard output."""
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
        print(json.dumps(answer(case)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
