"""Plays a scenario: brokers report, the balancer decides, brokers obey, loads follow.

docs/simulation.md.
"""

from lb_stream.sim.play.player import Played, play
from lb_stream.sim.play.policy import Policy, PolicyError, read_policy

__all__ = ["Played", "Policy", "PolicyError", "play", "read_policy"]
