"""DrainShedder: empties the brokers whose names begin with a prefix, a few bundles in each pass."""

from __future__ import annotations

import numpy as np

from lb_stream.plugins import (
    KeyModel,
    ShedContext,
    Unload,
    Unloads,
    decides,
    key,
    rows_by_broker,
    shedder,
)

UNWANTED = decides(
    "name_unwanted", "the name of {source} says that it is to be emptied; it was at {saw} usage"
)


class DrainShedderConfig(KeyModel):
    """Settings of DrainShedder."""

    drain_prefix: str = key("", "brokers whose names begin so are emptied")
    drain_most_bundles: int = key(5, "most bundles of one broker in one pass", unit="bundles", ge=1)


@shedder("DrainShedder", config=DrainShedderConfig)
def drain(context: ShedContext[DrainShedderConfig, None]) -> tuple[Unloads, None]:
    """Unload from each broker to be drained, in the order of the bundles' names."""
    view, config = context.view, context.config
    prefix = config.drain_prefix
    named = [
        row for row, name in enumerate(view.brokers.names) if prefix and name.startswith(prefix)
    ]
    unwanted = np.array(named, np.intp)
    proposals = [
        Unload(
            int(row), broker, "Admin", UNWANTED, float(view.brokers.usage[broker]), 0.0, None, None
        )
        for broker, rows in rows_by_broker(view, unwanted, context.eligible).items()
        for row in rows[: config.drain_most_bundles]
    ]
    return Unloads(tuple(proposals)), None
