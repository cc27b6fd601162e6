"""Plays a scenario: brokers report, the balancer decides, brokers obey, loads follow.

docs/simulation.md.
"""

from lb_stream.sim.simulation.policy import Policy, PolicyError, read_policy
from lb_stream.sim.simulation.runner import SimulationResult, run_simulation

__all__ = ["Policy", "PolicyError", "SimulationResult", "read_policy", "run_simulation"]
