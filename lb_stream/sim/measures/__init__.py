"""What a trace is worth: imbalance, balance, moves, cost, rules, thrash.

Definitions: docs/simulation.md.
"""

from lb_stream.sim.measures.measured import Measured, measure, measured
from lb_stream.sim.measures.series import Series
from lb_stream.sim.measures.trace import TraceError, read_trace
from lb_stream.sim.measures.verdict import Verdict, verdict

__all__ = [
    "Measured",
    "Series",
    "TraceError",
    "Verdict",
    "measure",
    "measured",
    "read_trace",
    "verdict",
]
