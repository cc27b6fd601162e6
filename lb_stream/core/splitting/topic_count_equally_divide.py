"""topic_count_equally_divide: as many topics on one side as on the other.

See docs/splitting.md "Split algorithms".
"""

from __future__ import annotations

import numpy as np

from lb_stream.core.splitting.base import Boundaries, SplitContext, middle, split_algorithm
from lb_stream.core.splitting.config import SplittingConfig


@split_algorithm("topic_count_equally_divide", config=SplittingConfig)
def topic_count_equally_divide(context: SplitContext[SplittingConfig]) -> Boundaries:
    """Between the two middle topics by hash; topics with one hash count each.

    O(n log n) for n topics.

    The result may lie on the bundle's own bound, when the middle topics share a hash: such a split
    is refused afterwards.
    """
    bundle, config = context.bundle, context.config
    count = len(bundle.topics)
    if count <= 1:
        return Boundaries(None, "too_few_topics")
    hashes = np.sort(bundle.topics.hashes)
    return Boundaries(
        (
            middle(
                int(hashes[count // 2 - 1]),
                int(hashes[count // 2]),
                config.hex_midpoint,
                one_higher=False,
            ),
        )
    )
