"""The figures: what is measured beside what, and what their ratio shall be."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from pyspark.sql import SparkSession

from lb_stream.contracts.settings import OtelSettings
from tests.bench.stream import traced
from tests.bench.stream.columnar import Columnar
from tests.bench.stream.driver import Batch, Driver
from tests.bench.stream.feed import Feed, Offsets
from tests.bench.stream.fleet import Fleet, Shape
from tests.bench.stream.spark import (
    explode_json,
    hand_to_python,
    read_kafka,
    seconds_to_noop,
    session,
)
from tests.bench.stream.stepped import Place, Stepped, progress
from tests.support.otlp_receiver import otlp_receiver

WARM_UP = 3
"""Generations that every side sees before the first one that counts, the very first one
included."""

WARM_UP_TICKS = 200
"""Batches of a small cluster are short: the JVM needs many of them before it has compiled what they
need."""

SMALL = Shape(1, 10, 100)
GIB = 2**30


@dataclass(frozen=True)
class Size:
    """How much is measured."""

    bundles: int = 1_000_000
    runs: int = 7
    latencies: int = 25
    batches: int = 1_000

    @property
    def whole(self) -> Shape:
        """One cluster; a thousand bundles on each broker, as long as that leaves four brokers."""
        return _one_cluster(self.bundles)

    @property
    def tenth(self) -> Shape:
        """One cluster with a tenth of the bundles."""
        return _one_cluster(self.bundles // 10)

    @property
    def clusters(self) -> Shape:
        """As many bundles in clusters of ten brokers with a hundred bundles each."""
        return Shape(max(2, self.bundles // 1_000), 10, 100)


def _one_cluster(bundles: int) -> Shape:
    brokers = max(4, bundles // 1_000)
    return Shape(1, brokers, max(1, bundles // brokers))


@dataclass(frozen=True)
class Figure:
    """One key of the result: two sides in seconds where there are two, and their ratio."""

    key: str
    what: str
    reach: str


@dataclass(frozen=True)
class Measured:
    """A figure's value; `ours` and `other` are medians in seconds (the value is the median of the
    ratios of neighbouring runs)."""

    value: float
    ours_s: float | None = None
    other_s: float | None = None


FIGURES = {
    figure.key: figure
    for figure in (
        Figure(
            "view_vs_from_json",
            "Kafka → decode → fold → averaged view, to a noop sink ÷ Spark's Kafka → from_json → "
            "explode → noop of the same reports",
            "≤ 0.7, aim 0.4",
        ),
        Figure(
            "round_vs_from_json",
            "a whole batch of the job (decided, logged, published, projected; some brokers hot) ÷ "
            "the same from_json",
            "≤ 1.0, aim 0.6",
        ),
        Figure(
            "columns_view_vs_from_json",
            "the view of columnar reports ÷ from_json of the same figures as JSON reports",
            "aim ≤ 0.15",
        ),
        Figure(
            "columns_floor_vs_from_json",
            "columnar reports read from Kafka and handed to Python, which does not look at them ÷ "
            "from_json of the same figures as JSON reports: about the least that a view can take",
            "",
        ),
        Figure(
            "columns_round_vs_from_json",
            "a whole batch of columnar reports ÷ from_json of the same figures as JSON reports",
            "aim ≤ 0.35",
        ),
        Figure(
            "delta_round_vs_from_json",
            "a whole batch of reports as deltas, in which a tenth of the bundles have other figures "
            "than before ÷ from_json of the same figures as JSON reports",
            "aim ≤ 0.2",
        ),
        Figure(
            "view_vs_raw_kafka",
            "the view ÷ a bare Kafka read of the same reports to noop: the physical floor",
            "aim ≤ 3",
        ),
        Figure("growth_100k_1m", "a whole batch at all bundles ÷ one at a tenth of them", "≤ 11"),
        Figure(
            "publish_latency_vs_empty_batch",
            "10 brokers, 1 000 bundles: hot broker's report appended → decision readable ÷ a batch "
            "of one tick to a noop sink",
            "≤ 1.5",
        ),
        Figure(
            "batch_cost_growth_1000",
            "10 brokers, 1 000 bundles, whole job, a report in each batch: median time of batches "
            "900–1000 ÷ of batches 50–150",
            "≤ 1.2",
        ),
        Figure(
            "tracing_on_vs_off",
            "10 brokers, 1 000 bundles, whole job, a report in each batch: a batch with tracing on "
            "÷ off, in turns within one job",
            "≤ 1.02",
        ),
        Figure(
            "signed_vs_open",
            "a whole batch of signed reports, whose signatures are checked ÷ one of reports "
            "without signatures",
            "≤ 1.05",
        ),
        Figure(
            "clusters_1000",
            "a whole batch of many clusters of 10 brokers × 100 bundles ÷ one of a single cluster "
            "with as many bundles",
            "≤ 1.3",
        ),
        Figure(
            "peak_rss_gib_1m",
            "resident memory of the job's driver, JVM and workers together, GiB, at its highest",
            "≤ 8",
        ),
    )
}


class Generation(Protocol):
    """The last generation of reports in a topic: JSON of a job, or beside it."""

    feed: Feed
    begin: Offsets
    end: Offsets


@dataclass(slots=True)
class Bench:
    """What all measurements share.

    The session that Spark's own side runs in starts when it is needed.
    """

    place: Place
    size: Size
    wanted: frozenset[str]
    _spark: SparkSession | None = None

    @property
    def spark(self) -> SparkSession:
        if self._spark is None:
            self._spark = session()
        return self._spark

    def from_json_s(self, job: Generation) -> float:
        """Spark's own way through the last generation of JSON reports."""
        return seconds_to_noop(explode_json(read_kafka(self.spark, job.feed, job.begin, job.end)))

    def raw_s(self, job: Stepped) -> float:
        """Nothing but reading it."""
        return seconds_to_noop(read_kafka(self.spark, job.feed, job.begin, job.end))

    def handed_s(self, job: Stepped) -> float:
        """Nothing but reading it and handing it to Python."""
        return seconds_to_noop(hand_to_python(read_kafka(self.spark, job.feed, job.begin, job.end)))

    def close(self) -> None:
        """End the session."""
        if self._spark is not None:
            self._spark.stop()


def in_turns(bench: Bench, sides: dict[str, Callable[[], float]]) -> dict[str, list[float]]:
    """Seconds of every side, run after run, the sides in turns: what else the machine does falls on
    all of them."""
    seconds: dict[str, list[float]] = {name: [] for name in sides}
    for run in range(1 - WARM_UP, bench.size.runs):
        for name, side in sides.items():
            took_s = side()
            if run >= 0:
                seconds[name].append(took_s)
        if run >= 0:
            progress(
                f"run {run + 1} of {bench.size.runs}: "
                + ", ".join(f"{name} {took[-1]:.2f} s" for name, took in seconds.items())
            )
    return seconds


def ratio(ours: list[float], other: list[float]) -> Measured:
    """The median of the ratios of neighbouring runs."""
    value = statistics.median(one / two for one, two in zip(ours, other, strict=True))
    return Measured(value, statistics.median(ours), statistics.median(other))


def view(bench: Bench) -> dict[str, Measured]:
    """The averaged view beside from_json and beside a bare read."""
    job = Stepped(bench.place, "view", Fleet(bench.size.whole), view_only=True)
    with closing(job):
        took = in_turns(
            bench,
            {
                "view": job.step,
                "from_json": lambda: bench.from_json_s(job),
                "raw Kafka": lambda: bench.raw_s(job),
            },
        )
    return {
        "view_vs_from_json": ratio(took["view"], took["from_json"]),
        "view_vs_raw_kafka": ratio(took["view"], took["raw Kafka"]),
    }


def columns(bench: Bench, view_only: bool) -> dict[str, Measured]:
    """Columnar reports beside from_json of the same figures as JSON reports in another topic."""
    side = "view" if view_only else "round"
    with closing(Feed(bench.place.bootstrap, f"json-{side}", bench.place.partitions)) as feed:
        fleet = Columnar(Fleet(bench.size.whole), feed)
        job = Stepped(bench.place, f"columns-{side}", fleet, view_only)
        with closing(job):
            sides: dict[str, Callable[[], float]] = {
                side: job.step if view_only else partial(_deciding, job),
                "from_json": lambda: bench.from_json_s(fleet),
            }
            if view_only and "columns_floor_vs_from_json" in bench.wanted:
                sides["floor"] = lambda: bench.handed_s(job)
            took = in_turns(bench, sides)
    names = {side, "floor"} & took.keys()
    return {f"columns_{name}_vs_from_json": ratio(took[name], took["from_json"]) for name in names}


def deltas(bench: Bench) -> dict[str, Measured]:
    """Deltas beside from_json, where nine tenths of the bundles have the figures of before."""
    with closing(Feed(bench.place.bootstrap, "json-deltas", bench.place.partitions)) as feed:
        fleet = Columnar(Fleet(bench.size.whole, steady=0.9), feed, deltas=True)
        job = Stepped(bench.place, "deltas", fleet, view_only=False)
        with closing(job):
            took = in_turns(
                bench,
                {
                    "round": partial(_deciding, job),
                    "from_json": lambda: bench.from_json_s(fleet),
                },
            )
    kinds = fleet.kinds
    progress(f"{kinds['delta']} deltas, {kinds['columns']} full reports, {kinds['roster']} rosters")
    return {"delta_round_vs_from_json": ratio(took["round"], took["from_json"])}


def rounds(bench: Bench) -> dict[str, Measured]:
    """The whole job at three shapes, and beside from_json.

    No more than two jobs are there at one time.
    """
    measured: dict[str, Measured] = {}
    with closing(Stepped(bench.place, "whole", Fleet(bench.size.whole), view_only=False)) as whole:
        sides: dict[str, Callable[[], float]] = {"round": lambda: _deciding(whole)}
        with ExitStack() as stack:
            if "round_vs_from_json" in bench.wanted:
                sides["from_json"] = lambda: bench.from_json_s(whole)
            if "growth_100k_1m" in bench.wanted:
                tenth = stack.enter_context(
                    closing(Stepped(bench.place, "tenth", Fleet(bench.size.tenth), view_only=False))
                )
                sides["tenth"] = lambda: _deciding(tenth)
            if len(sides) > 1 or "clusters_1000" not in bench.wanted:
                took = in_turns(bench, sides)
                measured |= (
                    {"round_vs_from_json": ratio(took["round"], took["from_json"])}
                    if "from_json" in took
                    else {}
                )
                measured |= (
                    {"growth_100k_1m": ratio(took["round"], took["tenth"])}
                    if "tenth" in took
                    else {}
                )
        if "clusters_1000" in bench.wanted:
            with closing(
                Stepped(bench.place, "clusters", Fleet(bench.size.clusters), view_only=False)
            ) as clusters:
                took = in_turns(
                    bench,
                    {"clusters": lambda: _deciding(clusters), "round": lambda: _deciding(whole)},
                )
                measured["clusters_1000"] = ratio(took["clusters"], took["round"])
        measured["peak_rss_gib_1m"] = Measured(whole.driver.peak_bytes / GIB)
    return measured


def signed(bench: Bench) -> dict[str, Measured]:
    """The whole job with signed reports beside the one without signatures."""
    with ExitStack() as stack:
        sides: dict[str, Callable[[], float]] = {}
        for name in ("signed", "open"):
            job = Stepped(
                bench.place, name, Fleet(bench.size.whole), view_only=False, signed=name == "signed"
            )
            stack.enter_context(closing(job))
            sides[name] = partial(_deciding, job)
        took = in_turns(bench, sides)
    return {"signed_vs_open": ratio(took["signed"], took["open"])}


def _deciding(job: Stepped) -> float:
    took_s = job.step()
    if not job.decided:
        raise RuntimeError(
            f"{job.name}: this round decided nothing, though brokers were hot: look into the "
            "tables rounds and refusals"
        )
    return took_s


ALWAYS_A_DESTINATION = {"distribute_bundles_evenly": False, "usage_difference_percent": 0.0}
"""So that a hot broker's report always leads to a decision: among ten brokers, each of these may
leave only the owner itself."""


@contextmanager
def small_job(
    bench: Bench, name: str, view_only: bool = False, otel: OtelSettings | None = None
) -> Iterator[tuple[Feed, Driver]]:
    """A job on a small cluster that reads what there is as soon as it is there."""
    feed = Feed(bench.place.bootstrap, name, bench.place.partitions)
    clusters = [Fleet(SMALL).cluster_name(0)]
    settings = bench.place.settings(feed)
    settings = settings.model_copy(
        update={
            "balancer": settings.balancer | ALWAYS_A_DESTINATION,
            "otel": otel or OtelSettings(),
        }
    )
    driver = Driver(bench.place.folder / name, settings, clusters if view_only else None)
    try:
        yield feed, driver
    finally:
        driver.stop()
        feed.close()
        bench.place.end(name)


def latency(bench: Bench) -> dict[str, Measured]:
    """From a hot broker's report to a decision that can be read, beside a batch in which nothing
    happens. Both read the same reports."""
    fleet = Fleet(SMALL)
    with (
        small_job(bench, "latency") as (feed, job),
        small_job(bench, "empty", view_only=True) as (quiet, empty),
    ):

        def settle() -> None:
            """Every broker reports an even load until the balancer has nothing more to say and
            everything has an owner."""
            for _ in range(20):
                records = fleet.reports(range(fleet.brokers))
                for one, reader in ((feed, job), (quiet, empty)):
                    one.send(records)
                    reader.read(len(records))
                if not fleet.obey(feed.decisions()) and (fleet.owner >= 0).all():
                    return
            raise RuntimeError(
                "the small cluster does not come to rest: look into the tables decisions and "
                "outcomes"
            )

        settle()
        for _ in range(WARM_UP_TICKS):
            for one, reader in ((feed, job), (quiet, empty)):
                one.tick()
                reader.read(1)
        latencies: list[float] = []
        batches: list[float] = []
        for run in range(1 - WARM_UP, bench.size.latencies):
            settle()
            hot = run % fleet.brokers
            (record,) = fleet.reports([hot], {hot})
            appended_ms = feed.append(record)
            decisions, readable_ms = feed.first_decisions()
            job.read(1)
            fleet.obey(decisions + feed.decisions())
            quiet.append(record)
            empty.read(1)
            quiet.tick()
            (batch,) = empty.read(1)
            if run >= 0:
                latencies.append((readable_ms - appended_ms) / 1_000)
                batches.append(batch.seconds)
                progress(
                    f"latency {run + 1} of {bench.size.latencies}: {latencies[-1]:.3f} s, a batch "
                    f"of one tick {batch}"
                )
    return {"publish_latency_vs_empty_batch": ratio(latencies, batches)}


def age(bench: Bench) -> dict[str, Measured]:
    """The same batch when the job is young and when it is old, and with and without tracing.

    All are batches of one job. Tracing is on in every other ten of them, so it meets young and old
    batches alike. The collector takes everything and reads nothing: its own work is not the job's.
    """
    fleet = Fleet(SMALL)
    took: list[Batch] = []
    decided = 0
    with ExitStack() as stack:
        receiver = otel = None
        if "tracing_on_vs_off" in bench.wanted:
            receiver = stack.enter_context(otlp_receiver(reads=False))
            otel = OtelSettings(enabled=True, endpoint=receiver.url)
        feed, job = stack.enter_context(small_job(bench, "age", otel=otel))
        first = fleet.reports(range(fleet.brokers))
        feed.send(first)
        job.read(len(first))
        for run in range(bench.size.batches):
            # Every other report is hot, whether the batch is traced or not.
            broker = run // 2 % fleet.brokers
            hot = {broker} if run % 2 == 0 else ()
            feed.append(fleet.reports([broker], hot)[0])
            took += job.read(1)
            decided += fleet.obey(feed.decisions(patience_ms=20))
            if (run + 1) % max(1, bench.size.batches // 20) == 0:
                progress(
                    f"batch {run + 1} of {bench.size.batches}: {took[-1]}, {decided} decisions so "
                    "far"
                )
    if not decided:
        raise RuntimeError(
            "no batch decided anything, though brokers were hot: look into the tables rounds and "
            "refusals"
        )
    if receiver is not None and not receiver.requests:
        raise RuntimeError("the job sent no trace: look into its log")
    measured = {"batch_cost_growth_1000": _growth([batch.seconds for batch in took])}
    if receiver is not None:
        measured["tracing_on_vs_off"] = _cost_of_tracing(took)
    return measured


def _growth(seconds: list[float]) -> Measured:
    """The last tenth of the batches beside another tenth, from the twentieth part on."""
    tenth = max(1, len(seconds) // 10)
    young = seconds[len(seconds) // 20 :][:tenth]
    old, before = statistics.median(seconds[-tenth:]), statistics.median(young)
    return Measured(old / before, old, before)


def _cost_of_tracing(batches: list[Batch]) -> Measured:
    """Traced batches beside others, after the warm-up."""
    seconds = {
        batch.number: batch.seconds
        for batch in batches[WARM_UP_TICKS:]
        if traced.counts(batch.number)
    }
    pairs = traced.pair_up(seconds)
    if not pairs:
        raise RuntimeError("tracing_on_vs_off needs four blocks of batches: give --batches 280")
    return ratio([on for on, _ in pairs], [off for _, off in pairs])


GROUPS: tuple[tuple[frozenset[str], Callable[[Bench], dict[str, Measured]]], ...] = (
    (frozenset({"view_vs_from_json", "view_vs_raw_kafka"}), view),
    (
        frozenset({"round_vs_from_json", "growth_100k_1m", "clusters_1000", "peak_rss_gib_1m"}),
        rounds,
    ),
    (
        frozenset({"columns_view_vs_from_json", "columns_floor_vs_from_json"}),
        partial(columns, view_only=True),
    ),
    (frozenset({"columns_round_vs_from_json"}), partial(columns, view_only=False)),
    (frozenset({"delta_round_vs_from_json"}), deltas),
    (frozenset({"signed_vs_open"}), signed),
    (frozenset({"publish_latency_vs_empty_batch"}), latency),
    (frozenset({"batch_cost_growth_1000", "tracing_on_vs_off"}), age),
)
"""What is measured together."""
