"""LeastMoves: bring brokers to an even load with as few moves as possible.

It registers itself when it is imported, as a plug-in does. `memory` learns from reports what load
costs. `fleet` computes demands and capacities, `targets` the even loads, `plan` the moves;
`strategy` decides when moves are made.
"""

from lb_stream.core.least_moves.strategy import place_evenly, shed_least

__all__ = ["place_evenly", "shed_least"]
