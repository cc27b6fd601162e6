"""Scenarios made from a short TOML file: families with parameters.

See docs/simulation.md "Make one".
"""

from lb_stream.sim.families.making import make_scenario
from lb_stream.sim.families.recipe import TEMPLATE, families, make_from, preset, scenario_at
from lb_stream.sim.families.spec import Spec

__all__ = ["TEMPLATE", "Spec", "families", "make_from", "make_scenario", "preset", "scenario_at"]
