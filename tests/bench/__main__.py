"""`python -m tests.bench [NAME …]`: a table on stderr as it goes, one JSON object as the last line
of stdout."""

import importlib
import json
import os
import platform
import sys
from pathlib import Path

from tests.bench import BENCHMARKS, measure


def main(names: list[str]) -> int:
    for path in sorted(Path(__file__).parent.glob("bench_*.py")):
        importlib.import_module(f"tests.bench.{path.stem}")
    unknown = sorted(set(names) - set(BENCHMARKS))
    if unknown:
        print(
            f"no benchmark named {', '.join(unknown)}; there are {', '.join(sorted(BENCHMARKS))}",
            file=sys.stderr,
        )
        return 2
    results = []
    for name in names or sorted(BENCHMARKS):
        timing = measure(BENCHMARKS[name])
        line = (
            f"{name}: {timing.ours} {timing.ours_s:.4g} s, {timing.other} {timing.other_s:.4g} s, "
        )
        line += (
            f"ratio {timing.ratio:.3g} ({timing.ratio_low:.3g}–{timing.ratio_high:.3g}, "
            f"{timing.runs} runs)"
        )
        print(line, file=sys.stderr, flush=True)
        results.append(timing.as_dict())
    print(
        json.dumps(
            {"python": platform.python_version(), "cores": os.cpu_count(), "benchmarks": results}
        )
    )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
