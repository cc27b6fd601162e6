"""The progress of a rollout: which brokers have stopped, and whether another one may.

Simulated brokers and measures share this module: it is the format's definition of a rollout.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from lb_stream.sim.scenario.scenario import Bools, Event, ScenarioRollout

TOLERANCE_S = 1e-6


@dataclass(slots=True)
class RolloutState:
    """The progress of a rollout. `stopped`: broker → when (s). `events`: downs and ups so far."""

    rollout: ScenarioRollout | None
    stopped: dict[int, float] = field(default_factory=dict)
    events: list[Event] = field(default_factory=list)

    def has_yet_to_stop(self, broker: int, t_s: float) -> bool:
        """Return whether the rollout has begun and the broker has yet to be restarted in it."""
        rollout = self.rollout
        return (
            rollout is not None
            and t_s >= rollout.t_s - TOLERANCE_S
            and broker in rollout.brokers
            and broker not in self.stopped
        )

    def refusal(self, broker: int, t_s: float, up: Bools) -> str | None:
        """Return why the broker refuses to stop now; None: it stops. `up`: the brokers that are."""
        rollout = self.rollout
        if rollout is None or not self.has_yet_to_stop(broker, t_s):
            return "no rollout wants it restarted now"
        down = sum(not up[row] for row in rollout.brokers)
        if down >= rollout.at_most:
            return f"{down} of the rollout's brokers are down, at most {rollout.at_most} may be"
        if rollout.in_order:
            left = (row for row in rollout.brokers if row not in self.stopped and up[row])
            if next(left, broker) != broker:
                return "it isn't the next in order"
        return None

    def stop(self, broker: int, t_s: float) -> Event:
        """Note that the broker stops. Returns the event of its coming back."""
        assert self.rollout is not None
        back = Event(t_s + self.rollout.restart_s, broker, "up")
        self.stopped[broker] = t_s
        self.events += [Event(t_s, broker, "leave"), back]
        return back
