"""What operators let moves cost, as strategies see it."""

import numpy as np

from lb_stream.core.shedding.base import Disruption


def test_of_each_budget_the_first_bundles_are_within_it_and_those_without_one_always() -> None:
    budget = np.array([0, 1, -1, 0, 1, 0, -1], np.int32)
    disruption = Disruption(np.zeros(7, np.bool_), np.ones(7), budget, np.array([2, 0]))
    assert disruption.within(np.array([5, 4, 3, 2, 1, 0, 6])).tolist() == [5, 3, 2, 6]
    assert disruption.within(np.array([], np.intp)).tolist() == []


def test_where_nobody_has_said_anything_nothing_is_held_and_everything_weighs_one() -> None:
    disruption = Disruption.none(3)
    assert (disruption.held.tolist(), disruption.weight.tolist()) == ([False] * 3, [1.0] * 3)
    assert disruption.within(np.array([2, 0, 1])).tolist() == [2, 0, 1]
