"""What the stream's benchmark makes of the times that it takes: the real measurements on pretended
jobs, without a JVM."""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest

from lb_stream.contracts.decisions import Decision
from lb_stream.contracts.settings import OtelSettings
from tests.bench.stream import figures
from tests.bench.stream.driver import Batch
from tests.bench.stream.example import decision
from tests.bench.stream.figures import FIGURES, Bench, Size
from tests.bench.stream.fleet import Fleet
from tests.bench.stream.stepped import Place
from tests.bench.stream.traced import BLOCK, SETTLING, counts, is_traced, pair_up

PLACE = Place("127.0.0.1:1", Path("unused"), 4)


class PretendedSteps:
    """A job whose batches take a second for each thousand bundles, and as long again in the first
    three generations."""

    open_jobs: ClassVar[list[str]] = []

    def __init__(self, place: Place, name: str, fleet: Fleet, view_only: bool) -> None:
        self.name, self.decided, self._generation = name, 0 if view_only else 2, 1
        self._seconds = fleet.shape.all_bundles / 1_000 * (1 if fleet.shape.clusters == 1 else 1.5)
        self.driver = SimpleNamespace(peak_bytes=3 * 2**30)
        self.open_jobs.append(name)
        assert len(self.open_jobs) <= 2

    def step(self) -> float:
        self._generation += 1
        return self._seconds * (2 if self._generation <= 3 else 1)

    def close(self) -> None:
        self.open_jobs.remove(self.name)


class PretendedJob:
    """Feed and driver of a small job in one.

    Every record is read in a batch of its own; the n-th takes n seconds.
    """

    def __init__(self) -> None:
        self.appended, self.batches, self.unread, self.ticks = 0, 0, 0, 0
        self._answer: Decision | None = None

    def send(self, records: list[Any]) -> float:
        self.appended += len(records)
        self.unread += len(records)
        return 0.0

    def append(self, record: tuple[bytes, bytes]) -> int:
        self.send([record])
        self._answer = decision(
            "unload", "acme/n00000/0x00000000_0x04000000", None, None
        ).model_copy(update={"cluster": "bench-0000"})
        return 1_000 * self.appended

    def tick(self) -> None:
        self.ticks += 1
        self.unread += 1

    def first_decisions(self) -> tuple[list[Decision], int]:
        assert self._answer is not None
        return [self._answer], 1_000 * self.appended + 500

    def decisions(self, patience_ms: int = 300) -> list[Decision]:
        """What was released is assigned at the next look."""
        answer, self._answer = self._answer, None
        kind = "assign" if answer else None
        return (
            [answer.model_copy(update={"kind": kind, "destination": "broker-0003:8080"})]
            if answer
            else []
        )

    def read(self, rows: int) -> list[Batch]:
        assert self.unread == rows  # nothing is left behind, nothing is waited for that nobody sent
        self.unread = 0
        self.batches += 1
        return [Batch(self.batches, rows, float(self.batches), {})]


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    """Measures pretended jobs; Spark's own side takes 4 s, a bare read 1 s."""
    monkeypatch.setattr(figures, "Stepped", PretendedSteps)
    monkeypatch.setattr(Bench, "from_json_s", lambda self, job: 4.0)
    monkeypatch.setattr(Bench, "raw_s", lambda self, job: 1.0)
    yield Bench(PLACE, Size(bundles=20_000, runs=3, latencies=4, batches=1_000), frozenset(FIGURES))
    assert PretendedSteps.open_jobs == []


@pytest.fixture
def small_jobs(monkeypatch: pytest.MonkeyPatch) -> dict[str, PretendedJob]:
    """The pretended small jobs by name."""
    jobs: dict[str, PretendedJob] = {}

    @contextmanager
    def small_job(
        bench: Bench, name: str, view_only: bool = False, otel: OtelSettings | None = None
    ) -> Iterator[tuple[PretendedJob, PretendedJob]]:
        jobs[name] = PretendedJob()
        yield jobs[name], jobs[name]

    monkeypatch.setattr(figures, "small_job", small_job)
    return jobs


def test_the_view_is_measured_beside_both_other_ways_after_the_warm_up(bench: Bench) -> None:
    measured = figures.view(bench)
    assert {key: one.value for key, one in measured.items()} == {
        "view_vs_from_json": 5.0,
        "view_vs_raw_kafka": 20.0,
    }


def test_rounds_are_measured_beside_from_json_a_tenth_and_many_clusters_with_two_jobs_at_a_time(
    bench: Bench,
) -> None:
    measured = {key: one.value for key, one in figures.rounds(bench).items()}
    assert measured == {
        "round_vs_from_json": 5.0,
        "growth_100k_1m": 10.0,
        "clusters_1000": 1.5,
        "peak_rss_gib_1m": 3.0,
    }


@pytest.mark.parametrize(
    "key", ["round_vs_from_json", "growth_100k_1m", "clusters_1000", "peak_rss_gib_1m"]
)
def test_a_figure_asked_for_alone_is_measured_alone(bench: Bench, key: str) -> None:
    bench.wanted = frozenset({key})
    assert key in figures.rounds(bench)


def test_a_round_that_decides_nothing_is_no_measurement(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(PretendedSteps, "step", lambda job: setattr(job, "decided", 0) or 1.0)
    with pytest.raises(RuntimeError, match="decided nothing"):
        figures.rounds(bench)


def test_latency_ends_with_the_readable_decision_and_the_other_side_is_a_batch_of_one_tick(
    bench: Bench, small_jobs: dict[str, PretendedJob]
) -> None:
    measured = figures.latency(bench)["publish_latency_vs_empty_batch"]
    job, empty = small_jobs["latency"], small_jobs["empty"]
    assert measured.ours_s == 0.5
    assert (
        job.appended == empty.appended and empty.ticks - job.ticks == 4 + figures.WARM_UP - 1
    )  # the same reports, and the ticks that count


@pytest.fixture
def collector(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """A pretended collector that has got a request."""
    receiver = SimpleNamespace(url="http://unused", requests=["one"])
    monkeypatch.setattr(figures, "otlp_receiver", lambda **_: nullcontext(receiver))
    return receiver


@pytest.mark.usefixtures("small_jobs", "collector")
def test_cost_of_age_compares_batches_900_to_1000_with_50_to_150(bench: Bench) -> None:
    measured = figures.age(bench)["batch_cost_growth_1000"]
    first = 2  # the first batch reads every broker's first report
    assert (measured.other_s, measured.ours_s) == (first + (50 + 149) / 2, first + (900 + 999) / 2)


@pytest.mark.usefixtures("small_jobs")
def test_cost_of_age_alone_needs_no_collector(bench: Bench) -> None:
    bench.wanted = frozenset({"batch_cost_growth_1000"})
    assert figures.age(bench).keys() == bench.wanted


@pytest.mark.usefixtures("small_jobs", "collector")
def test_tracing_compares_the_inner_two_of_four_blocks_with_the_outer_two(bench: Bench) -> None:
    """A batch takes as many seconds as its number says: what grows meets both sides alike."""
    bench.size = Size(batches=300)
    measured = figures.age(bench)["tracing_on_vs_off"]
    assert measured.value == pytest.approx(1, abs=0.01)


@pytest.mark.usefixtures("small_jobs")
def test_a_job_that_sends_no_trace_is_no_measurement(
    bench: Bench, collector: SimpleNamespace
) -> None:
    collector.requests.clear()
    with pytest.raises(RuntimeError, match="sent no trace"):
        figures.age(bench)


@pytest.mark.parametrize("period", [2, 4, 5, 10, 20])
def test_work_of_every_nth_batch_does_not_look_like_a_cost_of_tracing(period: int) -> None:
    seconds = {
        number: 1.0 + (number % period == period - 1) for number in range(400) if counts(number)
    }
    assert sum(map(is_traced, seconds)) == len(seconds) / 2
    assert all(on == off for on, off in pair_up(seconds))
    costly = {number: took * (1.5 if is_traced(number) else 1) for number, took in seconds.items()}
    assert [on / off for on, off in pair_up(costly)] == pytest.approx([1.5] * len(pair_up(costly)))
    assert [counts(number) for number in range(BLOCK)] == [False] * SETTLING + [True] * 8
