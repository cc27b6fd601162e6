"""What moves cost and save clients."""

from __future__ import annotations

import numpy as np
import pytest

from lb_stream.core.least_moves.payback import Payback

BUNDLES = np.arange(3)
PAYBACK = Payback(
    clients=np.array([1_000.0, 10.0]),
    even=np.array([0.5, 0.5]),
    client_seconds=np.array([500.0, 500.0, 0.0]),
    disruption_weight=np.array([1.0, 3.0, 1.0]),
    within_s=10.0,
)


def test_clients_lose_what_their_broker_has_above_even_and_a_move_saves_its_part_of_that() -> None:
    share, weight = np.array([1.2]), np.array([[0.1], [0.1], [0.1]])
    saved = 1_000 * 0.1 * 0.5
    assert PAYBACK.after_s(0, share, weight, BUNDLES) == pytest.approx(
        [500 / saved, 1_500 / saved, 0.0]
    )
    assert [PAYBACK.pays(0, share, weight[bundle], bundle) for bundle in BUNDLES] == [
        True,
        False,
        True,
    ], "what operators have said counts"
    assert PAYBACK.pay_each(0, share, weight, BUNDLES).tolist() == [True, False, True]
    assert PAYBACK.pay_each(0, np.array([0.9]), weight, BUNDLES).tolist() == [False, False, True], (
        "what costs nothing need save nothing"
    )
    assert [PAYBACK.pays(1, share, weight[bundle], bundle) for bundle in BUNDLES] == [
        False,
        False,
        True,
    ], "ten clients save less"


def test_what_lies_below_even_saves_nothing() -> None:
    assert PAYBACK.after_s(
        0, np.array([1.1]), np.array([[0.1], [0.5], [0.0]]), BUNDLES
    ) == pytest.approx([10.0, 30.0, np.inf])


def test_what_a_broker_cannot_carry_counts_ten_times() -> None:
    full = Payback(np.array([100.0]), np.array([0.9]), np.full(3, 100.0), np.ones(3), 1.0)
    assert full.after_s(
        0, np.array([1.3 / 0.9]), np.array([[0.3 / 0.9]]), BUNDLES[:1]
    ) == pytest.approx([1 / (10 * 0.3)])


def test_each_resource_counts_so_that_two_that_are_short_are_relieved_one_after_the_other() -> None:
    share, weight = np.array([1.2, 1.2]), np.array([[0.2, 0.0], [0.0, 0.2]])
    assert PAYBACK.after_s(0, share, weight, BUNDLES[:2]) == pytest.approx([5.0, 15.0])


def test_moves_that_belong_together_pay_back_together() -> None:
    before, after = np.array([1.2]), np.array([1.0])
    assert PAYBACK.pay_together(0, before, after, np.array([0, 2])) and not PAYBACK.pay_together(
        0, before, after, np.array([0, 1])
    )
