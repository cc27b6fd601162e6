"""Bundles that may be split, and what the split task makes of them."""

from typing import Any

import numpy as np

from lb_stream.core.splitting import (
    Range,
    SplitLoads,
    Topics,
)
from lb_stream.core.splitting.config import MIB
from lb_stream.core.splitting.modular import split_task
from lb_stream.core.splitting.trigger import REASONS
from lb_stream.settings.resolve import cluster_config
from tests.support.vectors import vector


def number(text: str | None) -> int | None:
    return None if text is None else int(text, 16)


def topics_at(hashes: list[int], rate: Any = 0.0, throughput: Any = 0.0) -> Topics:
    count = len(hashes)
    figures = (np.broadcast_to(np.asarray(one, np.float64), count) for one in (rate, throughput))
    return Topics(np.array(hashes, np.int64), *figures, np.ones(count, np.bool_))


FLOW = vector("split_flow_or_qps")


def flow_bundle() -> Range:
    rows = FLOW["topics"]
    topics = topics_at(
        [int(row["hash"], 16) for row in rows],
        [row["rate"] for row in rows],
        [row["throughputMiB"] * MIB for row in rows],
    )
    return Range(*map(number, FLOW["range"]), topics)


def limits(case: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in case.items() if name.startswith("loadBalancer")} | {
        "flowOrQpsDifferenceThresholdPercentage": 10
    }


def loads(**columns: Any) -> SplitLoads:
    """One bundle, or several where a column is a list."""
    count = max((len(column) for column in columns.values() if isinstance(column, list)), default=1)
    given = {"topics": 2, "sessions": 0, "rate": 0.0, "throughput": 0.0} | columns
    kinds = {"topics": np.int64, "sessions": np.int64, "rate": np.float64, "throughput": np.float64}
    return SplitLoads(
        **{
            name: np.broadcast_to(np.asarray(value, kinds[name]), count)
            for name, value in given.items()
        }
    )


def task(given: SplitLoads, bundles: int = 4, **settings: Any) -> list[str]:
    """The reasons of the bundles that the modular manager splits, all of one namespace."""
    census = lambda rows: (np.zeros(len(rows), np.int64), np.array([bundles]))  # noqa: E731
    found = split_task(
        given, np.ones(len(given), np.bool_), census, cluster_config(settings).splitting
    )
    return [REASONS[reason] for reason in found.reasons]
