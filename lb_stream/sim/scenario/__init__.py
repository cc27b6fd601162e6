"""What a scenario is, how it is read, checked, made and written. Format: docs/simulation.md."""

from lb_stream.sim.scenario.errors import ScenarioError
from lb_stream.sim.scenario.reading import read_scenario
from lb_stream.sim.scenario.scenario import Scenario
from lb_stream.sim.scenario.writing import write_scenario

__all__ = ["Scenario", "ScenarioError", "read_scenario", "write_scenario"]
