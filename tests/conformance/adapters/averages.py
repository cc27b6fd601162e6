"""message_average, bundle_average, broker_average: the fold and the sums over a broker's
bundles."""

from typing import Any

import numpy as np

from lb_stream.core.averages import DEFAULT_RATES, FoldConfig, fold, fold_samples
from lb_stream.core.model.blocks import Shard
from lb_stream.core.model.rates import RATE_COLUMNS
from tests.conformance.forms import FOUR_NAMES, bundle_rates, stats
from tests.conformance.registry import Case, kind
from tests.support.build import Report, batch_of


@kind("message_average")
def message_average(case: Case) -> Any:
    """TimeAverageMessageData: the state at the start and after every sample."""
    most = int(case["maxSamples"])
    state = np.array(case.get("defaultStats", [0.0] * 4)[:4], float)
    count = np.zeros(1, np.int32)
    states = [_average_state(count, most, state)]
    for sample in case["samples"]:
        count = np.minimum(count + 1, most).astype(np.int32)
        state = fold_samples(
            count.astype(float), count - 1.0, state, np.array(sample[:4], float), np.empty(4)
        )
        states.append(_average_state(count, most, state))
    return states


def _average_state(count: np.ndarray, most: int, state: np.ndarray) -> dict[str, Any]:
    return {"numSamples": int(count[0]), "maxSamples": most} | dict(
        zip(FOUR_NAMES, state.tolist(), strict=True)
    )


@kind("bundle_average")
def bundle_average(case: Case) -> Any:
    """BundleData.update: the state after every sample.

    All states come from one fold: report i names the bundles i, i+1, … of which bundle k so gets
    the samples up to the k-th.
    """
    samples = [stats(sample) for sample in case["samples"]]
    names = [f"t/n/0x{k:08x}_0x{k + 1:08x}" for k in range(len(samples))]
    reports = [Report("b", k, {name: one for name in names[k:]}) for k, one in enumerate(samples)]
    config = FoldConfig(int(case.get("numShortSamples", 10)), int(case.get("numLongSamples", 1000)))
    shard, _ = fold(Shard.empty(), batch_of(reports), len(samples), config)
    return [
        {
            "short": [row[f"short_{value}"] for value in RATE_COLUMNS],
            "shortSamples": row["short_samples"],
            "long": [row[f"long_{value}"] for value in RATE_COLUMNS],
            "longSamples": row["long_samples"],
            "topics": row["topics"],
        }
        for row in shard.bundles.to_pylist()
    ]


@kind("broker_average")
def broker_average(case: Case) -> Any:
    """TimeAverageBrokerData.reset: sums over the named bundles; those without data count with the
    default."""
    default = {"short": case.get("defaultStats", DEFAULT_RATES)[:4]}
    data = {name: case["bundleData"].get(name, default) for name in case["bundles"]}
    mine = np.zeros(len(data), np.int32)
    sums = [rates.sums_by(mine, 1).row(0) for rates in bundle_rates(data, data)]
    return {
        f"{span}Term{name[0].upper()}{name[1:]}": value
        for span, four in zip(("short", "long"), sums, strict=True)
        for name, value in zip(FOUR_NAMES, four, strict=True)
    }
