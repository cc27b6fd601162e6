"""Where a bundle goes that a shedder wants off its broker: rules first, then wishes, and load only where it is less than it was."""

from __future__ import annotations

import numpy as np

from lb_stream.core.filters import AntiAffinity
from lb_stream.core.model.refusals import Refusal, refusal
from lb_stream.core.model.rules import Refuses, TakesOut
from lb_stream.core.round.state import Choice, RoundState


def place_shed(state: RoundState, bundle: int) -> Choice | Refusal:
    """The destination of a bundle that leaves a hot broker, or why there is none. O(brokers).

    It is placement's own choice where that one has room and isn't being relieved in this round; else one is sought among those. When
    there is none, the wish to spare the relieved ones is given up, and then the rules are: somebody who would end no hotter than the
    source. Where pending moves don't count, placement's own choice stands, as the reference's.

    To have room is to end at or below the overloaded threshold, or no hotter than the source will be without the bundle.
    """
    view, targets = state.view, state.targets
    owner = int(view.bundles.owner[bundle])
    name, source = view.bundles.name(bundle), view.brokers.names[owner]
    choice = state.place(bundle)
    if choice is None:
        return refusal(Refuses.NO_CANDIDATE, source, [name], limit=1)
    if choice.destination == owner:
        return refusal(Refuses.PLACEMENT_KEEPS_OWNER, source, [name])
    if not state.relieved:
        return choice
    rows, steps = state.candidates.by_rules(bundle, targets)
    rows = rows[rows != owner]
    if not len(rows):
        kept_apart = bool(steps) and steps[-1][0] == AntiAffinity.rule.name
        return refusal(Refuses.ANTI_AFFINITY if kept_apart else Refuses.NO_CANDIDATE, source, [name])
    is_relieved = np.zeros(len(view.brokers), np.bool_)
    is_relieved[list(state.relieved)] = True
    relieved, after = is_relieved[rows], targets.with_bundle(bundle, rows)
    left = targets.without_bundle(bundle)
    limit = np.where(relieved, left, max(state.config.balancer.overloaded_threshold_percent / 100.0, left))
    wanted = fitting = rows[after <= limit]
    if (spared := rows[(after <= limit) & ~relieved]).size:
        wanted = spared
    if (wanted == choice.destination).any():
        return choice
    if not len(wanted):
        least = int(np.argmin(after - limit))
        return refusal(Refuses.SHIFTS_OVERLOAD, source, [name], saw=after[[least]], limit=float(limit[least]))
    steps += ((TakesOut.SHIFTS_OVERLOAD.name, rows, fitting), (TakesOut.BEING_RELIEVED.name, fitting, wanted))
    return state.place_among(bundle, wanted, steps, choice) or refusal(Refuses.NO_CANDIDATE, source, [name], limit=1)
