"""Plans of small clusters beside the fewest moves there are.

`make bench-plan` compares more of them.
"""

from __future__ import annotations

from functools import cache
from itertools import product

import numpy as np
import pytest

from tests.support.exact_plan import Compared, compare, fewest_moves, random_case

CASES = 40


@cache
def compared() -> list[Compared]:
    """All cases with a hot broker."""
    found = [compare(random_case(seed, brokers=3 + seed % 2)) for seed in range(CASES)]
    return [one for one in found if one.bound]


def test_the_solver_finds_what_trying_everything_finds() -> None:
    possible = 0
    for seed in range(12):
        case = random_case(seed, brokers=3, bundles=6)
        ceiling = np.full_like(case.share, 0.9 * case.share.max())
        tried = list[tuple[int, float]]()
        for owners in product(range(3), repeat=6):
            moved, after = np.array(owners) != case.owner, np.zeros_like(case.share)
            np.add.at(after, np.array(owners), case.demand)
            if (after * case.per_unit <= ceiling).all() and case.allowed[
                np.arange(6), owners
            ].all():
                tried.append((int(moved.sum()), float(case.cost[moved].sum())))
        assert fewest_moves(case, ceiling) == (pytest.approx(min(tried)) if tried else None), seed
        possible += bool(tried)
    assert 0 < possible < 12


def test_the_lower_bound_of_a_plan_is_never_above_the_fewest_moves() -> None:
    assert all(one.bound <= one.needed for one in compared() if one.needed is not None)


def test_no_plan_is_shorter_or_with_as_few_moves_cheaper_than_the_solver_finds() -> None:
    for one in compared():
        assert one.moves >= one.fewest
        assert one.moves > one.fewest or one.cost >= one.least_cost - 1e-4


def test_four_plans_in_five_have_the_fewest_moves_and_none_has_more_than_four_too_many() -> None:
    too_many = [one.moves - one.fewest for one in compared()]
    assert len(too_many) > 20
    assert sum(not one for one in too_many) >= 0.8 * len(too_many)
    assert max(too_many) <= 4


def test_where_all_hot_brokers_can_be_relieved_most_plans_do_it() -> None:
    possible = [one for one in compared() if one.needed is not None]
    assert sum(one.relieved for one in possible) > len(possible) / 2
