"""Targets: what each broker carries when load is spread as evenly as rules allow."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from lb_stream.core.averages import FoldConfig, fold
from lb_stream.core.averages.cluster_view import view_of
from lb_stream.core.least_moves.fleet import Fleet
from lb_stream.core.least_moves.targets import compute_even_loads
from lb_stream.core.model.blocks import Shard
from lb_stream.core.model.policies import IsolationPolicy, Policies
from lb_stream.core.model.view import Floats, Rows
from tests.support.build import Report, batch_of

BROKERS = ("a", "b", "c", "d")
OPEN = np.ones(len(BROKERS), np.bool_)
NONE = Policies()
APART = Policies(isolation=(IsolationPolicy(("t/few",), ("a",)),))


def found(
    cpu: dict[str, list[float]],
    policies: Policies = NONE,
    few: tuple[int, ...] = (0,),
    others: tuple[int, ...] = (1, 2, 3),
    capacity: Floats | None = None,
    fixed: float | Floats = 0.0,
    lasting: float = 1.0,
    stays: str = "-",
    least: float = 0.0,
) -> list[float]:
    """Targets of four brokers, from the cpu that the bundles of each namespace need, and the rows
    of who may have them.

    `fixed`: of each broker, by no bundle. `lasting`: how many times that the bundles mostly need.
    `stays`: the namespace whose bundles may not leave the first broker, which has all.
    """
    names = [
        f"{namespace}/0x{at:08x}_0x{at + 1:08x}"
        for namespace in sorted(cpu)
        for at in range(len(cpu[namespace]))
    ]
    reports = [
        Report(broker, 1_000, dict.fromkeys(names if broker == "a" else ())) for broker in BROKERS
    ]
    view = view_of(
        "c", [fold(Shard.empty(), batch_of(reports), 1_000, FoldConfig())[0]], 1_000, {"cpu": 1.0}
    )
    view = replace(view, policies=policies)
    demand = np.zeros((len(names), 4))
    demand[:, 0] = [one for namespace in sorted(cpu) for one in cpu[namespace]]
    room = np.ones((4, 4)) if capacity is None else np.repeat(capacity[:, None], 4, axis=1)

    def takers(bundle: int) -> Rows:
        return np.array(few if view.bundles.name(bundle).startswith("t/few") else others, np.intp)

    told: list[float] = compute_even_loads(
        view,
        Fleet(
            demand,
            demand * lasting,
            room,
            np.broadcast_to(np.asarray(fixed)[..., None], (4, 4)),
            np.zeros(4),
            ~OPEN,
            np.zeros(4),
            ~OPEN,
        ),
        takers,
        OPEN,
        np.array([name.startswith(stays) for name in names]),
        least,
    ).usage.tolist()
    return told


def test_all_load_over_all_capacity_and_what_no_bundle_explains_stays() -> None:
    assert found({"t/n": [0.4] * 4}) == pytest.approx([0.4] * 4)
    assert found({"t/n": [0.4] * 4}, capacity=np.array([2.0, 2.0, 1.0, 1.0])) == pytest.approx(
        [1.6 / 6] * 4
    )
    assert found({"t/n": [0.4] * 4}, fixed=0.1) == pytest.approx([0.5] * 4)


def test_what_can_move_fills_brokers_to_one_level_above_what_no_bundle_uses() -> None:
    assert found({"t/n": [0.4] * 4}, fixed=np.array([0.9, 0.1, 0.0, 0.0])) == pytest.approx(
        [1.7 / 3] * 4
    ), "the first broker takes no part"
    for seed in range(50):
        chance = np.random.default_rng(seed)
        capacity, fixed = chance.uniform(0.5, 4, 4), chance.uniform(0, 0.9, 4)
        loads = chance.uniform(0.02, 0.1, int(chance.integers(1, 12))).tolist()
        low, high = 0.0, 10.0
        for _ in range(60):
            level = (low + high) / 2
            filled = np.maximum(level - fixed, 0.0) @ capacity
            low, high = (level, high) if filled < sum(loads) else (low, level)
        alone = (max(loads) / capacity + fixed).min()
        assert found({"t/n": loads}, capacity=capacity, fixed=fixed * capacity) == pytest.approx(
            [max(high, min(alone, 0.85))] * 4
        )


def test_load_that_stays_is_no_load_of_the_other_brokers() -> None:
    assert found({"t/stays": [0.9], "t/n": [0.1] * 9}, stays="t/stays") == pytest.approx(
        [0.3] * 4
    ), "though it is the largest bundle"
    assert found({"t/stays": [0.1], "t/n": [0.1] * 9}, stays="t/stays") == pytest.approx([0.25] * 4)
    assert found({"t/stays": [0.4] * 3}, stays="t/stays") == pytest.approx([1e-9] * 4)


def test_no_target_is_below_the_least() -> None:
    assert found({"t/n": [0.001] * 4}, least=0.01) == [0.01] * 4
    assert found({"t/n": [0.1] * 4}, least=0.01) == pytest.approx([0.1] * 4)


def test_nobody_can_be_asked_for_less_than_the_largest_bundle() -> None:
    assert found({"t/n": [0.7, 0.1]}) == pytest.approx([0.7] * 4)
    assert found({"t/n": [0.99, 0.1]}) == pytest.approx([0.85] * 4), (
        "but others aren't filled as much as that"
    )


def test_a_largest_bundle_that_is_smaller_for_a_while_makes_nobody_else_hot() -> None:
    assert found({"t/n": [0.5, 0.1]}, lasting=1.2) == pytest.approx([0.6] * 4)
    assert found({"t/n": [0.4] * 4}, lasting=1.2) == pytest.approx([0.48] * 4), (
        "but no sum counts as more than it is"
    )
    assert found({"t/n": [0.1] * 16}, lasting=1.2) == pytest.approx([0.4] * 4)


def test_an_isolated_group_has_a_target_of_its_own_and_so_have_the_others() -> None:
    assert found({"t/few": [0.2] * 4, "t/n": [0.1] * 3}, APART) == pytest.approx(
        [0.8, 0.1, 0.1, 0.1]
    )
    assert found({"t/few": [0.1], "t/n": [0.2] * 9}, APART) == pytest.approx([0.1, 0.6, 0.6, 0.6])


def test_a_namespace_of_few_brokers_that_others_may_use_too_is_dense_only_if_it_must_be() -> None:
    everybody = (0, 1, 2, 3)
    assert found({"t/few": [0.2] * 4, "t/n": [0.1] * 3}, APART, others=everybody) == pytest.approx(
        [0.8, 0.1, 0.1, 0.1]
    )
    assert found({"t/few": [0.1], "t/n": [0.1] * 15}, APART, others=everybody) == pytest.approx(
        [0.4] * 4
    )


def test_a_namespace_that_nobody_may_have_counts_with_all() -> None:
    assert found(
        {"t/few": [0.4], "t/n": [0.4] * 3}, APART, few=(), others=(0, 1, 2, 3)
    ) == pytest.approx([0.4] * 4)
