"""The end of a rollout: the last brokers are back without a bundle, and get their share.

Heavy bundles move, as few as will do: each broker that carries more than its even load gives its
heaviest ones, and then the one that brings it nearest to that load.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from lb_stream.core.model.view import Bools, Floats, Ints, Rows
from lb_stream.core.rollout.loads import Loads

NEAR = 1.04
"""A broker within this ratio of its even load is level: more moves for less are not worth it."""
PREFERRED = 1.03
"""Up to this ratio a bundle that has moved twice is moved rather than a slightly heavier one."""
AGAIN = 1.06
"""A broker above this ratio is relieved once more, after the first moves are done."""
LEAST_GAIN = 0.01
"""A move takes at least this part of its even load from a broker."""


class LevellingMove(NamedTuple):
    """One move, with what was compared."""

    bundle: int
    source: int
    destination: int
    considered: Rows  # the brokers with a score
    scores: Floats  # usage with the bundle ÷ even usage
    saw: float  # usage of the source before it
    even: float  # even usage of the source


def level_out(
    loads: Loads,
    active: Bools,
    movable: Bools,
    again: Bools,
    intake_left: Ints,
    trigger: float = NEAR,
) -> list[LevellingMove]:
    """Return the moves after which each broker is level, or as near to it as moves can bring it.

    `active`: brokers that give and take. `movable`: bundles that may leave their brokers. `again`:
    bundles that have moved twice already; where it makes no difference, one of them moves and no
    other. `intake_left`: bundles that each broker may still take. `trigger`: brokers above this
    ratio of their even load give. Changes `loads` and `intake_left`.
    """
    even = loads.levels(active)
    share = np.where(active, loads.usage / even, 0.0)
    sources = np.flatnonzero(share > trigger)
    moves = list[LevellingMove]()
    for source in sources[np.argsort(-share[sources], kind="stable")].tolist():
        mine = np.flatnonzero(movable & (loads.view.bundles.owner == source))
        moves += _relieve(loads, source, mine, again[mine], even, active, intake_left)
    return moves


def _relieve(
    loads: Loads,
    source: int,
    bundles: Rows,
    again: Bools,
    even: Floats,
    active: Bools,
    intake_left: Ints,
) -> list[LevellingMove]:
    """Return moves that bring a source to its even load, if bundles and destinations allow it."""
    weights = loads.weights(bundles, source) / even[source]
    left = weights >= LEAST_GAIN
    moves = list[LevellingMove]()
    while left.any() and (share := float(loads.usage[source] / even[source])) > NEAR:
        for at in _choose(weights, left, share, again):
            left[at] = False
            move = _find_move(loads, int(bundles[at]), source, even, active, intake_left)
            if move is not None:
                loads.move(move.bundle, source, move.destination)
                intake_left[move.destination] -= 1
                moves.append(move)
    return moves


def _choose(weights: Floats, left: Bools, share: float, again: Bools) -> list[int]:
    """Return the fewest bundles that bring a broker's share down to NEAR; all, if too few are left.

    They are its heaviest ones, and a last one that brings it nearest to 1.
    """
    heaviest = np.flatnonzero(left)
    heaviest = heaviest[np.argsort(-weights[heaviest], kind="stable")]
    after = share - np.cumsum(weights[heaviest])
    if after[-1] > NEAR:
        return [int(at) for at in heaviest]
    count = int(np.argmax(after <= NEAR))  # without the last one
    before = share if not count else float(after[count - 1])
    others = heaviest[count:]
    others = others[before - weights[others] <= NEAR]
    last = int(others[np.abs(before - weights[others] - 1.0).argmin()])
    chosen = [*(int(at) for at in heaviest[:count]), last]
    spare = PREFERRED - (before - float(weights[last]))
    return _prefer(weights, chosen, [int(at) for at in heaviest if again[at]], again, spare)


def _prefer(
    weights: Floats, chosen: list[int], again: list[int], is_again: Bools, spare: float
) -> list[int]:
    """Put bundles that have moved twice in place of others, as long as the share stays near.

    `spare`: what the chosen ones may weigh less together.
    """
    found = list(chosen)
    for at in again:
        heavier = [one for one in found if not is_again[one] and weights[one] >= weights[at]]
        if at in found or not heavier:
            continue
        least = min(heavier, key=lambda one: (weights[one], one))
        lost = float(weights[least] - weights[at])
        if lost <= spare:
            found[found.index(least)] = at
            spare -= lost
    return found


def _find_move(
    loads: Loads, bundle: int, source: int, even: Floats, active: Bools, intake_left: Ints
) -> LevellingMove | None:
    """Return the move of a bundle to the broker with most room; None: none has room for it."""
    rows = loads.takers(bundle)
    rows = rows[active[rows] & (intake_left[rows] > 0) & (rows != source)]
    if not len(rows):
        return None
    scores = loads.with_bundle(bundle, rows) / even[rows]
    best = int(scores.argmin())
    if scores[best] > NEAR:
        return None
    saw = float(loads.usage[source])
    return LevellingMove(bundle, source, int(rows[best]), rows, scores, saw, float(even[source]))
