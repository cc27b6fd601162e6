"""The fleet's benchmark: its clusters, and the arithmetic of its formula. No JVM needed."""

import json
from itertools import product

import pytest

from tests.bench.fleet.__main__ import speed_up, summary
from tests.bench.fleet.mixed import MixedFleet, shapes
from tests.bench.fleet.model import Model, Run, fitted, needed, tick_limit

TRUE = Model(fixed=0.3, each_cluster=0.0004, each_cluster_in_tasks=0.003, each_bundle=2e-6)


def measured(model: Model) -> list[Run]:
    """What the formula says of the usual runs."""
    sizes = [(1_000, 31_000, 1), (1_000, 248_000, 8), (10_000, 310_000, 1), (30_000, 930_000, 1)]
    return [
        Run(clusters, bundles, weight, cores, model.seconds(clusters, bundles, cores), 0.1, 0.1 + clusters / 5_000)
        for cores, (clusters, bundles, weight) in product((1, 2), sizes)
    ]


def test_there_are_as_many_clusters_as_asked_for_and_most_are_small() -> None:
    assert {size: shape.clusters for size, shape in shapes(1_000, 1).items()} == {"small": 800, "medium": 180, "large": 20}
    assert [sum(shape.clusters for shape in shapes(count, 1).values()) for count in (3, 4, 50, 30_000)] == [3, 4, 50, 30_000]
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
    falling = [Run(n, 31 * n, 1, cores, 5.0 - n / 10_000, 0.1, 0.1) for n, cores in product((1_000, 10_000, 30_000), (1, 2))]
    assert min(fitted(falling).as_dict().values()) >= 0.0


def test_what_is_needed_is_as_quick_as_was_asked_and_one_pipeline_less_is_not() -> None:
    need = needed(TRUE, 100_000, 100_000_000, seconds=60.0, most_cores=8)
    assert need is not None and need.cores <= 8
    each = 100_000 / need.pipelines, 100_000_000 / need.pipelines
    assert TRUE.seconds(*each, need.cores) <= 60.0
    fewer = need.pipelines - 1
    assert TRUE.seconds(100_000 / fewer, 100_000_000 / fewer, 8) > 60.0
    assert needed(TRUE, 100_000, 100_000_000, seconds=0.2, most_cores=8) is None, "the fixed part alone takes longer"


def test_ticks_reach_as_many_clusters_as_their_line_says() -> None:
    assert tick_limit(measured(TRUE)) == pytest.approx(4_500, abs=1)


def test_the_last_line_is_json_and_compares_the_same_fleet_on_few_and_many_cores() -> None:
    runs = measured(TRUE)
    told = json.loads(json.dumps(summary(runs, fitted(runs))))
    assert len(told["runs"]) == 8 and set(told) == {"runs", "speed_up", "model", "clusters_of_one_second_ticks", "needed"}
    assert speed_up(runs)["10000x310000"] == pytest.approx(TRUE.seconds(10_000, 310_000, 1) / TRUE.seconds(10_000, 310_000, 2), abs=1e-3)
