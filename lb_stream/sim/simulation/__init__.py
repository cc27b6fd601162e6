"""Runs a scenario: brokers report, the balancer decides, brokers act, loads follow.

docs/simulation.md describes the simulation.
"""

from lb_stream.sim.simulation.policy import Policy, PolicyError, read_policy
from lb_stream.sim.simulation.runner import SimulationResult, run_simulation

__all__ = ["Policy", "PolicyError", "SimulationResult", "read_policy", "run_simulation"]
