"""A broker of a rollout stops once, when it is its turn and few enough are down."""

from __future__ import annotations

import numpy as np

from lb_stream.sim.scenario.rollout_state import RolloutState
from lb_stream.sim.scenario.scenario import Event, ScenarioRollout

ALL_UP = np.ones(4, np.bool_)


def down(*rows: int) -> np.ndarray:
    up = ALL_UP.copy()
    up[list(rows)] = False
    return up


def test_a_broker_stops_once_within_the_rollout() -> None:
    state = RolloutState(ScenarioRollout(100.0, 60.0, 1, (1, 0)))
    assert state.refusal(1, 99.0, ALL_UP) == "no rollout wants it restarted now"
    assert state.refusal(2, 100.0, ALL_UP) == "no rollout wants it restarted now"
    assert state.refusal(1, 100.0, ALL_UP) is None
    assert state.stop(1, 100.0) == Event(160.0, 1, "up")
    assert state.events == [Event(100.0, 1, "leave"), Event(160.0, 1, "up")]
    assert state.refusal(1, 200.0, ALL_UP) == "no rollout wants it restarted now"
    assert RolloutState(None).refusal(1, 100.0, ALL_UP) == "no rollout wants it restarted now"


def test_whoever_is_down_counts_if_it_is_of_the_rollout() -> None:
    state = RolloutState(ScenarioRollout(0.0, 60.0, 2, (0, 1, 2)))
    assert state.refusal(0, 5.0, down(1, 3)) is None
    assert state.refusal(0, 5.0, down(1, 2)) == (
        "2 of the rollout's brokers are down, at most 2 may be"
    )


def test_in_a_given_order_all_before_it_have_stopped_or_are_down() -> None:
    state = RolloutState(ScenarioRollout(0.0, 60.0, 2, (2, 0, 1), in_order=True))
    assert state.refusal(0, 5.0, ALL_UP) == "it isn't the next in order"
    assert state.refusal(0, 5.0, down(2)) is None
    state.stop(2, 5.0)
    assert state.refusal(0, 70.0, ALL_UP) is None
    assert state.refusal(1, 70.0, ALL_UP) == "it isn't the next in order"


def test_a_release_counts_as_the_rollouts_until_its_broker_stops() -> None:
    state = RolloutState(ScenarioRollout(100.0, 60.0, 1, (1, 0)))
    assert not state.has_yet_to_stop(1, 99.0)
    assert state.has_yet_to_stop(1, 100.0) and not state.has_yet_to_stop(2, 100.0)
    state.stop(1, 100.0)
    assert not state.has_yet_to_stop(1, 200.0)
