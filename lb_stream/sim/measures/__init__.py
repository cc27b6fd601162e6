"""Measures of a simulation's trace: imbalance, moves, cost, violations, thrashing.

docs/simulation.md defines them.
"""

from lb_stream.sim.measures.figures import TraceMeasures, measure_figures, measure_trace
from lb_stream.sim.measures.series import Series
from lb_stream.sim.measures.trace import TraceError, read_trace
from lb_stream.sim.measures.verdict import ScenarioVerdict, judge_trace

__all__ = [
    "ScenarioVerdict",
    "Series",
    "TraceError",
    "TraceMeasures",
    "judge_trace",
    "measure_figures",
    "measure_trace",
    "read_trace",
]
