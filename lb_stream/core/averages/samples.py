"""One step of the averages, and the sizes by which they are kept. See docs/strategies.md "Figures"."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

DEFAULT_FOUR = (50_000.0, 50_000.0, 50.0, 50.0)
"""What a bundle's averages are before its first sample, in the order of FOUR: 50 000 bytes/s and 50 msg/s each way."""

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class FoldConfig:
    """Sizes of the two averages (samples), how long an unnamed bundle and a silent broker are remembered (ms), what is sampled.

    `per_report`: a new report is one sample of each bundle that it names. `reference`: a batch with any new report is one sample of
    each bundle in every broker's last report, as each update of the reference's leader is.
    """

    short_samples: int = 10
    long_samples: int = 1000
    bundle_retention_ms: int = 300_000
    broker_retention_ms: int = 86_400_000
    sample_mode: Literal["per_report", "reference"] = "per_report"


def fold_samples(
    n: Floats | np.float64,
    before: Floats | np.float64,
    average: Floats,
    sample: Floats,
    into: Floats,
) -> Floats:
    """One step of the average: ((n-1)·v + s) / n, in that order of operations. `n`: samples, this one included, capped; `before`: n-1.

    The result is written `into` an array of its size, which is returned.
    """
    np.multiply(before, average, out=into)
    into += sample
    into /= n
    return into
