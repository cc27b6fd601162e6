"""Plays an operator who restarts a rollout's brokers: drains each, restarts it, and undrains it.

It stands in for a balancer that plans rollouts.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

import numpy as np

from lb_stream.sim.model import ClusterModel
from lb_stream.sim.scenario.rollout_state import RolloutState
from lb_stream.sim.scenario.scenario import ScenarioRollout

PATIENCE_S = 300.0
"""A broker that isn't empty this long after its drain is restarted with what it has."""
RETRY_S = 30.0
"""A broker that has not stopped this long after its restart was decided is asked again."""


class RolloutStep(NamedTuple):
    """What the operator does about a broker."""

    kind: Literal["drain", "restart", "undrain"]
    broker: int


@dataclass(slots=True)
class _Work:
    """The state of a broker that the operator is busy with."""

    drained_s: float
    asked_s: float | None = None  # when its restart was decided last


@dataclass(slots=True)
class RolloutOperator:
    """An operator who restarts as many brokers at once as may be down.

    `state`: the rollout's progress, which the simulation notes.
    """

    model: ClusterModel
    rollout: ScenarioRollout
    state: RolloutState
    _work: dict[int, _Work] = field(default_factory=dict)

    def act(self, now_s: float) -> Iterator[RolloutStep]:
        """Yield the next steps, at a round."""
        if now_s < self.rollout.t_s:
            return
        up, back_s = self.model.up, self.model.up_since_s
        # brokers that are back
        for broker in list(self._work):
            stopped_s = self.state.stopped.get(broker)
            if stopped_s is not None and up[broker] and back_s[broker] > stopped_s:
                del self._work[broker]
                yield RolloutStep("undrain", broker)
        # brokers that are empty, or should have been for long
        for broker, work in self._work.items():
            if broker in self.state.stopped or not up[broker]:
                continue
            waits_s = now_s - (work.drained_s if work.asked_s is None else work.asked_s)
            is_empty = not np.any(self.model.owner == broker)
            if waits_s >= RETRY_S if work.asked_s is not None else is_empty or waits_s > PATIENCE_S:
                work.asked_s = now_s
                yield RolloutStep("restart", broker)
        # the next ones
        for broker in self.rollout.brokers:
            down = sum(not up[other] for other in self.rollout.brokers if other not in self._work)
            if len(self._work) + down >= self.rollout.at_most:
                return
            if up[broker] and broker not in self.state.stopped and broker not in self._work:
                self._work[broker] = _Work(now_s)
                yield RolloutStep("drain", broker)
