"""How load moves over time in the model."""

import pytest

from lb_stream.sim.workload import WORKLOADS, hot_spot, skewed, steady, workload


def test_steady_load_stays() -> None:
    assert {steady()(bundle, elapsed_s) for bundle in range(5) for elapsed_s in (0.0, 1e6)} == {1.0}


def test_skewed_load_follows_zipf_with_mean_one_and_its_greatest_share_can_be_balanced() -> None:
    load = skewed(96, seed=1)
    factors = sorted((load(bundle, 0.0) for bundle in range(96)), reverse=True)
    assert sum(factors) == pytest.approx(96)
    assert factors[0] / factors[9] == pytest.approx(10**0.6)
    assert factors[0] / 96 < 1 / 12


def test_a_seed_deals_the_skew_and_another_deals_it_otherwise() -> None:
    def factors(seed: int) -> list[float]:
        return [skewed(96, seed)(bundle, 0.0) for bundle in range(96)]

    assert factors(1) == factors(1) != factors(2)


def test_a_hot_spot_begins_at_its_time_and_rises_evenly() -> None:
    load = hot_spot({3}, factor=5.0, at_s=10.0, rise_s=4.0)
    assert [load(3, at) for at in (0.0, 9.9, 10.0, 11.0, 14.0, 100.0)] == [1.0, 1.0, 1.0, 2.0, 5.0, 5.0]
    assert load(4, 100.0) == 1.0


def test_a_hot_spot_without_a_rise_is_a_step() -> None:
    load = hot_spot({0}, factor=3.0, at_s=2.0)
    assert [load(0, at) for at in (1.999, 2.0)] == [1.0, 3.0]


@pytest.mark.parametrize("name", WORKLOADS)
def test_every_workload_that_has_a_name_can_be_made(name: str) -> None:
    load = workload(name, brokers=3, bundles=9, seed=1)
    assert all(load(bundle, 60.0) > 0 for bundle in range(9))


@pytest.mark.parametrize("name", WORKLOADS)
def test_a_bundle_that_came_later_has_its_base_load(name: str) -> None:
    load = workload(name, brokers=3, bundles=9, seed=1)
    assert [load(bundle, 60.0) for bundle in (9, 1_000)] == [1.0, 1.0]


def test_the_named_hot_spot_is_the_first_broker() -> None:
    load = workload("hot_spot", brokers=3, bundles=9, seed=1)
    assert [bundle for bundle in range(9) if load(bundle, 0.0) > 1] == [0, 3, 6]


def test_an_unknown_workload_is_an_error() -> None:
    with pytest.raises(KeyError):
        workload("calm", 3, 9, 1)
