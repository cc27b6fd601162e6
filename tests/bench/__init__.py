"""Side-by-side timings: our way against another way of doing the same, in turns, on the same
machine.

    @side_by_side("decode_reports", ours="msgspec columns", other="pydantic models")
    def decode_reports() -> Iterator[Sides]:
        reports = make_reports(1_000)                       # set up, not timed
        yield Sides(lambda: decode(reports), lambda: decode_slowly(reports))
                                                            # clean up

in a file tests/bench/bench_*.py registers one; `python -m tests.bench [NAME …]` runs them. The
figure is a ratio (ours ÷ other, below 1 is faster), because seconds of one machine say little about
another.
"""

import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass

FEWEST_RUNS = 7


@dataclass(frozen=True)
class Sides:
    """The two calls that are timed; their results are thrown away."""

    ours: Callable[[], object]
    other: Callable[[], object]


@dataclass(frozen=True)
class Benchmark:
    name: str
    ours: str  # what each side is, in a few words
    other: str
    sides: Callable[[], Iterator[Sides]]
    runs: int = FEWEST_RUNS


@dataclass(frozen=True)
class Timing:
    """Medians in seconds; `ratio` is the median of the ratios of neighbouring runs, between their
    quartiles."""

    name: str
    ours: str
    other: str
    runs: int
    ours_s: float
    other_s: float
    ratio: float
    ratio_low: float
    ratio_high: float

    def as_dict(self) -> dict[str, object]:
        return {
            key: round(value, 6) if isinstance(value, float) else value
            for key, value in asdict(self).items()
        }


BENCHMARKS: dict[str, Benchmark] = {}


def side_by_side(
    name: str, *, ours: str, other: str, runs: int = FEWEST_RUNS
) -> Callable[[Callable[[], Iterator[Sides]]], Benchmark]:
    """Registers a generator that yields one Sides.

    ValueError for a name that is taken or for fewer than seven runs.
    """
    if name in BENCHMARKS:
        raise ValueError(f"a benchmark named {name!r} is registered already")
    if runs < FEWEST_RUNS:
        raise ValueError(f"{runs} runs are too few for a median: at least {FEWEST_RUNS}")

    def register(sides: Callable[[], Iterator[Sides]]) -> Benchmark:
        BENCHMARKS[name] = Benchmark(name, ours, other, sides, runs)
        return BENCHMARKS[name]

    return register


def measure(benchmark: Benchmark, clock: Callable[[], float] = time.perf_counter) -> Timing:
    """Warms both sides up once, then times them in turns, so that what else the machine does falls
    on both."""
    with contextmanager(benchmark.sides)() as sides:
        sides.ours(), sides.other()
        pairs = [
            (_seconds(sides.ours, clock), _seconds(sides.other, clock))
            for _ in range(benchmark.runs)
        ]
    low, middle, high = statistics.quantiles(
        [ours / other for ours, other in pairs], n=4, method="inclusive"
    )
    ours_s, other_s = (statistics.median(side) for side in zip(*pairs, strict=True))
    return Timing(
        benchmark.name,
        benchmark.ours,
        benchmark.other,
        benchmark.runs,
        ours_s,
        other_s,
        middle,
        low,
        high,
    )


def _seconds(side: Callable[[], object], clock: Callable[[], float]) -> float:
    begin = clock()
    side()
    return clock() - begin
