"""The fold of a micro-batch's reports into a shard: short- and long-term averages of bundles."""

from lb_stream.core.averages.bundles import fold_samples
from lb_stream.core.averages.fold import fold
from lb_stream.core.averages.together import fold_together
from lb_stream.core.model.rates import DEFAULT_RATES, FoldConfig

__all__ = ["DEFAULT_RATES", "FoldConfig", "fold", "fold_samples", "fold_together"]
