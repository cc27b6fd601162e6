"""What a trace is worth: imbalance, balance, moves, cost, rules, thrash. Definitions: docs/simulation.md."""

from lb_stream.sim.measures.measured import Measured, measure, measured
from lb_stream.sim.measures.series import Series
from lb_stream.sim.measures.trace import TraceError, read_trace

__all__ = ["Measured", "Series", "TraceError", "measure", "measured", "read_trace"]
