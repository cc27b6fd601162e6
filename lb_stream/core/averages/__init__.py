"""The short- and long-term averages of bundles, and the fold of a micro-batch's reports into a shard."""

from lb_stream.core.averages.fold import add_bundles, fold
from lb_stream.core.averages.samples import DEFAULT_FOUR, FoldConfig, fold_samples

__all__ = ["DEFAULT_FOUR", "FoldConfig", "add_bundles", "fold", "fold_samples"]
