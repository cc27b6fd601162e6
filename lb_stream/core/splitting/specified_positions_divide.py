"""specified_positions_divide: cut at the positions that the operator gives.

See docs/splitting.md "Split algorithms".
"""

from __future__ import annotations

from lb_stream.core.splitting.base import Boundaries, SplitContext, split_algorithm
from lb_stream.core.splitting.config import SplittingConfig


@split_algorithm("specified_positions_divide", config=SplittingConfig)
def specified_positions_divide(context: SplitContext[SplittingConfig]) -> Boundaries:
    """Cut at the given positions that are strictly inside the range.

    They are returned sorted. A position that is given twice is kept, and refused afterwards.
    Source: docs/splitting.md "Split algorithms".
    """
    bundle = context.bundle
    if not bundle.positions:
        return Boundaries(None, "no_position_given", wrong=True)
    if len(bundle.topics) <= 1 and not bundle.force:
        return Boundaries(None, "too_few_topics")
    inside = tuple(
        sorted(position for position in bundle.positions if bundle.lower < position < bundle.upper)
    )
    return Boundaries(inside) if inside else Boundaries(None, "no_position_inside")
