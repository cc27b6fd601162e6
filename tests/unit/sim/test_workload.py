"""How load is spread, and how it moves, in the small clusters."""

import numpy as np
import pytest

from lb_stream.sim.workload import WORKLOADS, load_factors, small_scenario


def test_steady_load_stays() -> None:
    before, after = load_factors("steady", 3, 9, seed=1)
    assert set(before) == set(after) == {1.0}


def test_skewed_load_follows_zipf_with_mean_one_and_its_greatest_share_can_be_balanced() -> None:
    greatest = np.sort(load_factors("skewed", 6, 96, seed=1)[0])[::-1]
    assert greatest.sum() == pytest.approx(96)
    assert greatest[0] / greatest[9] == pytest.approx(10**0.6)
    assert greatest[0] / 96 < 1 / 12


def test_a_seed_deals_the_skew_and_another_deals_it_otherwise() -> None:
    first, again, other = (load_factors("skewed", 6, 96, seed)[0].tolist() for seed in (1, 1, 2))
    assert first == again != other


def test_a_hot_spot_is_the_first_broker_and_begins_at_its_time() -> None:
    scenario = small_scenario(3, 9, "hot_spot", seed=1, at_s=2.5)
    before, after = (scenario.loads_at(scenario.tick_of(t_s)) for t_s in (2.499, 2.5))
    assert np.flatnonzero(after[0] > before[0]).tolist() == [0, 3, 6]
    assert (after / before)[:, 0] == pytest.approx(3.0) and scenario.tick_of(
        1e6
    ) == scenario.tick_of(2.5)


def test_without_a_time_a_hot_spot_is_there_from_the_beginning() -> None:
    assert np.array_equal(
        small_scenario(3, 9).loads_at(0), small_scenario(3, 9, at_s=1.0).loads_at(1)
    )


@pytest.mark.parametrize("name", WORKLOADS)
def test_every_workload_that_has_a_name_can_be_made(name: str) -> None:
    assert (small_scenario(3, 9, name).loads > 0).all()


def test_an_unknown_workload_is_an_error() -> None:
    with pytest.raises(KeyError):
        small_scenario(3, 9, "calm")
