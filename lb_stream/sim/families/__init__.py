"""Families: recipes with parameters, in short TOML files, from which scenarios are built.

docs/simulation.md, "Make one", describes them.
"""

from lb_stream.sim.families.making import build_from_spec
from lb_stream.sim.families.recipe import TEMPLATE, build_from_file, families, load_scenario, preset
from lb_stream.sim.families.spec import Spec

__all__ = [
    "TEMPLATE",
    "Spec",
    "build_from_file",
    "build_from_spec",
    "families",
    "load_scenario",
    "preset",
]
