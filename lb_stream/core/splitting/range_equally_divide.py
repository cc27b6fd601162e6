"""range_equally_divide: cut the range in two halves. See docs/splitting.md "Split algorithms"."""

from __future__ import annotations

from lb_stream.core.splitting.base import Boundaries, SplitContext, split_algorithm
from lb_stream.core.splitting.config import SplittingConfig


@split_algorithm("range_equally_divide", config=SplittingConfig)
def range_equally_divide(context: SplitContext[SplittingConfig]) -> Boundaries:
    """Cut at the middle of the range, whatever its topics are.

    The end of a namespace's last bundle is 0xffffffff, so the full ring is cut at 0x7fffffff.
    Source: docs/splitting.md "Split algorithms".
    """
    bundle = context.bundle
    return Boundaries((bundle.lower + (bundle.upper - bundle.lower) // 2,))
