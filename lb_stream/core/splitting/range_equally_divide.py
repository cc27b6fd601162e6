"""range_equally_divide: cut the range in two halves. See docs/splitting.md "Split algorithms"."""

from __future__ import annotations

from lb_stream.core.splitting.base import Boundaries, SplitContext, split_algorithm
from lb_stream.core.splitting.config import SplittingConfig


@split_algorithm("range_equally_divide", config=SplittingConfig)
def range_equally_divide(context: SplitContext[SplittingConfig]) -> Boundaries:
    """The middle of the range, whatever is in it.

    The last bundle's end 0xffffffff counts as it is: the full ring is cut at 0x7fffffff.
    """
    bundle = context.bundle
    return Boundaries((bundle.lower + (bundle.upper - bundle.lower) // 2,))
