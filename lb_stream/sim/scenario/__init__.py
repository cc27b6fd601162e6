"""Scenarios: their model, and how they are read, checked, built and written.

docs/simulation.md describes the format.
"""

from lb_stream.sim.scenario.errors import ScenarioError
from lb_stream.sim.scenario.reading import read_scenario
from lb_stream.sim.scenario.scenario import Scenario
from lb_stream.sim.scenario.writing import write_scenario

__all__ = ["Scenario", "ScenarioError", "read_scenario", "write_scenario"]
