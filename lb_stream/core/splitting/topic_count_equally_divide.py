"""topic_count_equally_divide: cut so that both children have equally many topics.

See docs/splitting.md "Split algorithms".
"""

from __future__ import annotations

import numpy as np

from lb_stream.core.splitting.base import Boundaries, SplitContext, middle, split_algorithm
from lb_stream.core.splitting.config import SplittingConfig


@split_algorithm("topic_count_equally_divide", config=SplittingConfig)
def topic_count_equally_divide(context: SplitContext[SplittingConfig]) -> Boundaries:
    """Cut between the two middle topics by hash. O(n log n) for n topics.

    Topics with one hash count each. If the middle topics share a hash, the position may be the
    bundle's own bound: such a split is refused afterwards.
    Source: docs/splitting.md "Split algorithms".
    """
    bundle, config = context.bundle, context.config
    count = len(bundle.topics)
    if count <= 1:
        return Boundaries(None, "too_few_topics")
    hashes = np.sort(bundle.topics.hashes)
    low, high = int(hashes[count // 2 - 1]), int(hashes[count // 2])
    return Boundaries((middle(low, high, config.hex_midpoint, one_higher=False),))
