"""LeastMoves: even brokers for as few moves as that takes.

Like a plug-in it registers itself when it is imported.

A report teaches `memory` what load costs. `fleet` makes demands and capacities of a view, `targets`
says what an even load is, `plan` finds the moves to it, and `strategy` says when.
"""

from lb_stream.core.least_moves.strategy import place_evenly, shed_least

__all__ = ["place_evenly", "shed_least"]
