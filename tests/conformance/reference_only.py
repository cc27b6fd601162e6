"""What the reference does for itself and this balancer has no use for.

Its recorded cases are compared all the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lb_stream.contracts.reports import BundleStats, ModularLoadReport
from lb_stream.core.averages.bundles import NEWS, Columns
from lb_stream.core.model.blocks import Shard
from lb_stream.core.model.releases import Release
from lb_stream.core.model.view import Floats, Rates, Rows
from lb_stream.core.shedding.top_bundles import RATE_STEP, THROUGHPUT_STEP, highest, limited


def with_stats(report: ModularLoadReport, stats: Mapping[str, BundleStats]) -> ModularLoadReport:
    """The report with its bundles' newest statistics, the sums over them, and what was gained and
    lost since it was last written.

    Gains and losses pile up over several calls, each sorted by name; `written` starts them anew.
    """
    before, now = set(report.bundles), set(stats)
    values = stats.values()
    return report.model_copy(
        update={
            "last_stats": dict(stats),
            "bundles": sorted(now),
            "num_bundles": len(now),
            "num_topics": sum(value.topics for value in values),
            "num_consumers": sum(value.consumer_count for value in values),
            "num_producers": sum(value.producer_count for value in values),
            "msg_throughput_in": sum((value.msg_throughput_in for value in values), 0.0),
            "msg_throughput_out": sum((value.msg_throughput_out for value in values), 0.0),
            "msg_rate_in": sum((value.msg_rate_in for value in values), 0.0),
            "msg_rate_out": sum((value.msg_rate_out for value in values), 0.0),
            "last_bundle_gains": sorted({*report.last_bundle_gains, *(now - before)}),
            "last_bundle_losses": sorted({*report.last_bundle_losses, *(before - now)}),
        }
    )


def written(report: ModularLoadReport) -> ModularLoadReport:
    """The report after it was sent: nothing gained or lost yet."""
    return report.model_copy(update={"last_bundle_gains": [], "last_bundle_losses": []})


def order_of_averages(short: Rates, long: Rates) -> tuple[Floats, ...]:
    """The order of bundles by their averages: short-term first, then long-term."""
    return tuple(
        limited(np.trunc(column / step))
        for span in (short, long)
        for column, step in (
            (span.throughput_in, THROUGHPUT_STEP),
            (span.throughput_out, THROUGHPUT_STEP),
            (span.rate, RATE_STEP),
        )
    )


def stored_top(short: Rates, long: Rates, most: int) -> Rows:
    """Positions of the bundles whose averages the leader stores, the highest first; all of them as
    they lie when `most` is 0 or less."""
    if most <= 0:
        return np.arange(len(short.rate_in))
    return highest(order_of_averages(short, long), most)


def add_bundles(shard: Shard, names: Iterable[str], now_ms: int, release: Release = "any") -> Shard:
    """The shard with bundles that no report has named yet: unowned, with default averages.

    Those it knows stay as they are.

    Like every unowned bundle, they are forgotten when no report names them for the retention time.
    """
    known = shard.bundles["name"].combine_chunks()
    wanted = pc.unique(pa.array(list(names), pa.string()))
    new = wanted.filter(pc.invert(pc.is_in(wanted, value_set=known)))
    columns = Columns.build(shard.bundles, shard.bundles["owner"].to_numpy(), new, release)
    columns.writable("owner_since_ms")[len(known) :] = now_ms
    columns.values |= dict.fromkeys(NEWS, np.zeros(len(columns.name), np.bool_))
    table = columns.table()
    return Shard(shard.brokers, table.take(pc.sort_indices(table["name"])))
