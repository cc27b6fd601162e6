"""The fleet's benchmark: its clusters, and the arithmetic of its formula. No JVM needed."""

import json
from argparse import Namespace
from collections.abc import Iterator
from contextlib import nullcontext
from itertools import product
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.bench.fleet import __main__ as bench
from tests.bench.fleet.__main__ import Job, Measured, jobs, speed_up, summary
from tests.bench.fleet.mixed import MixedFleet, shapes
from tests.bench.fleet.model import Model, Run, clusters_within, fitted, needed, tick_limit

TRUE = Model(fixed=0.3, each_cluster=0.0004, each_cluster_in_tasks=0.003, each_bundle=2e-6)


def measured(model: Model) -> list[Run]:
    """What the formula says of the usual runs."""
    sizes = [(1_000, 31_000, 1), (1_000, 248_000, 8), (10_000, 310_000, 1), (30_000, 930_000, 1)]
    return [
        Run(
            clusters,
            bundles,
            weight,
            cores,
            model.seconds(clusters, bundles, cores),
            0.1,
            0.1 + clusters / 5_000,
        )
        for cores, (clusters, bundles, weight) in product((1, 2), sizes)
    ]


def test_there_are_as_many_clusters_as_asked_for_and_most_are_small() -> None:
    assert {size: shape.clusters for size, shape in shapes(1_000, 1).items()} == {
        "small": 800,
        "medium": 180,
        "large": 20,
    }
    assert [
        sum(shape.clusters for shape in shapes(count, 1).values()) for count in (3, 4, 50, 30_000)
    ] == [3, 4, 50, 30_000]
    light, heavy = MixedFleet(50), MixedFleet(50, weight=8)
    assert heavy.bundles == 8 * light.bundles and heavy.cluster_names == light.cluster_names


def test_every_broker_of_every_cluster_reports_under_its_clusters_name() -> None:
    fleet = MixedFleet(10)
    named = {key.decode().partition("/")[0] for key, _ in fleet.generation()}
    assert named == set(fleet.cluster_names) and len(named) == 10


def test_the_formula_is_found_again_from_what_it_says() -> None:
    found = fitted(measured(TRUE))
    assert found.as_dict() == pytest.approx(TRUE.as_dict(), rel=1e-3)
    assert found.error(measured(TRUE)) < 1e-6


def test_no_part_of_the_formula_is_negative() -> None:
    falling = [
        Run(n, 31 * n, 1, cores, 5.0 - n / 10_000, 0.1, 0.1)
        for n, cores in product((1_000, 10_000, 30_000), (1, 2))
    ]
    assert min(fitted(falling).as_dict().values()) >= 0.0


def test_what_is_needed_is_as_quick_as_was_asked_and_one_pipeline_less_is_not() -> None:
    need = needed(TRUE, 100_000, 100_000_000, seconds=60.0, most_cores=8)
    assert need is not None and need.cores <= 8
    each = 100_000 / need.pipelines, 100_000_000 / need.pipelines
    assert TRUE.seconds(*each, need.cores) <= 60.0
    fewer = need.pipelines - 1
    assert TRUE.seconds(100_000 / fewer, 100_000_000 / fewer, 8) > 60.0
    assert needed(TRUE, 100_000, 100_000_000, seconds=0.2, most_cores=8) is None, (
        "the fixed part alone takes longer"
    )


def test_ticks_reach_as_many_clusters_as_their_line_says() -> None:
    assert tick_limit(measured(TRUE)) == pytest.approx(4_500, abs=1)


def test_so_many_clusters_have_a_batch_of_that_length() -> None:
    found = clusters_within(TRUE, 31.0, cores=2, seconds=60.0)
    assert found is not None
    assert (
        TRUE.seconds(found, 31.0 * found, 2)
        <= 60.0
        < TRUE.seconds(found + 1, 31.0 * (found + 1), 2)
    )
    assert clusters_within(Model(0.1, 0.0, 0.0, 0.0), 31.0, 1, 60.0) is None


def test_small_fleets_are_first_and_each_is_compared_before_the_next_one() -> None:
    assert jobs([300, 100], 8, [1, 2]) == [
        [Job(100, 8, 2)],
        [Job(100, 1, 2), Job(100, 1, 1)],
        [Job(300, 1, 2), Job(300, 1, 1)],
    ]


def test_the_last_line_is_json_and_compares_the_same_fleet_on_few_and_many_cores() -> None:
    runs = measured(TRUE)
    told = json.loads(json.dumps(summary(Measured(runs))))
    assert (
        len(told["runs"]) == 8
        and told["missing"] == {}
        and told["model"]["fixed"] == pytest.approx(TRUE.fixed, rel=1e-3)
    )
    assert (
        set(told["clusters_within_seconds"]["by_cores"]) == {"1", "2"}
        and told["needed"]["pipelines"] >= 1
    )
    assert speed_up(runs)["10000x310000"] == pytest.approx(
        TRUE.seconds(10_000, 310_000, 1) / TRUE.seconds(10_000, 310_000, 2), abs=1e-3
    )


@pytest.mark.parametrize("count", [0, 1, 3, 5])
def test_what_was_measured_before_it_ended_is_told(count: int) -> None:
    told = json.loads(
        json.dumps(
            summary(Measured(measured(TRUE)[:count], {"fleet-30000-1-2": "not measured yet"}))
        )
    )
    assert len(told["runs"]) == count and told["missing"] == {"fleet-30000-1-2": "not measured yet"}
    assert (told["model"] is None) == (count < 4)


def test_a_job_that_fails_is_named_and_the_others_go_on(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def pretended(_place: object, of_fleet: list[Job], *_: object) -> Iterator[Run]:
        for job in of_fleet:
            if job == Job(100, 1, 1):
                raise RuntimeError("the measured job has ended: no memory\nand a log")
            yield Run(
                job.clusters, 31 * job.clusters * job.weight, job.weight, job.cores, 1.0, 0.1, 0.1
            )

    monkeypatch.setattr(bench, "measure", pretended)
    monkeypatch.setattr(
        bench, "EmbeddedKafka", lambda _: nullcontext(SimpleNamespace(bootstrap=""))
    )
    found = Measured()
    bench.run(
        Namespace(
            folder=None,
            clusters=[100, 300],
            weight=8,
            cores=[1, 2],
            partitions=4,
            runs=1,
            enough=60.0,
        ),
        tmp_path,
        found,
    )
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(line["clusters"], line["weight"], line["cores"]) for line in lines] == [
        (100, 8, 2),
        (100, 1, 2),
        (300, 1, 2),
        (300, 1, 1),
    ]
    assert (
        found.missing == {"fleet-100-1-1": "the measured job has ended: no memory"}
        and len(found.runs) == 4
    )
