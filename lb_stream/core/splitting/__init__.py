"""Splitting: when a bundle is too large, where it is cut, and what its children are.

One split algorithm, one file; one trigger, one file. See docs/splitting.md "Splitting".
"""

from lb_stream.core.splitting.base import (
    Algorithms,
    Boundaries,
    Range,
    SplitAlgorithm,
    Topics,
    split_algorithm,
)
from lb_stream.core.splitting.config import SplittingConfig
from lb_stream.core.splitting.extensible import OwnBundles, SplitMemory, split_strategy

# Importing an algorithm registers it.
from lb_stream.core.splitting.flow_or_qps_equally_divide import flow_or_qps_equally_divide
from lb_stream.core.splitting.manual import NamespaceBundles, SplitRequest, manual_split
from lb_stream.core.splitting.modular import TooLarge, split_task
from lb_stream.core.splitting.perform import Cut, SplitRejected, cut, plan
from lb_stream.core.splitting.range_equally_divide import range_equally_divide
from lb_stream.core.splitting.simple import split_simple
from lb_stream.core.splitting.specified_positions_divide import specified_positions_divide
from lb_stream.core.splitting.topic_count_equally_divide import topic_count_equally_divide
from lb_stream.core.splitting.trigger import SplitLoads

__all__ = [
    "Algorithms",
    "Boundaries",
    "Cut",
    "NamespaceBundles",
    "OwnBundles",
    "Range",
    "SplitAlgorithm",
    "SplitLoads",
    "SplitMemory",
    "SplitRejected",
    "SplitRequest",
    "SplittingConfig",
    "TooLarge",
    "Topics",
    "cut",
    "flow_or_qps_equally_divide",
    "manual_split",
    "plan",
    "range_equally_divide",
    "specified_positions_divide",
    "split_algorithm",
    "split_simple",
    "split_strategy",
    "split_task",
    "topic_count_equally_divide",
]
