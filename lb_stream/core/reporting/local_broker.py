"""What a broker says of itself: the next local data from its bundles' statistics."""

from __future__ import annotations

from collections.abc import Mapping

from lb_stream.contracts.reports import BundleStats, ModularLoadReport


def with_stats(report: ModularLoadReport, stats: Mapping[str, BundleStats]) -> ModularLoadReport:
    """The report with its bundles' newest statistics, the sums over them, and what was gained and lost since it was last written.

    Gains and losses pile up over several calls, each sorted by name; `written` starts them anew.
    """
    before, now = set(report.bundles), set(stats)
    values = stats.values()
    return report.model_copy(
        update={
            "last_stats": dict(stats),
            "bundles": sorted(now),
            "num_bundles": len(now),
            "num_topics": sum(one.topics for one in values),
            "num_consumers": sum(one.consumer_count for one in values),
            "num_producers": sum(one.producer_count for one in values),
            "msg_throughput_in": sum((one.msg_throughput_in for one in values), 0.0),
            "msg_throughput_out": sum((one.msg_throughput_out for one in values), 0.0),
            "msg_rate_in": sum((one.msg_rate_in for one in values), 0.0),
            "msg_rate_out": sum((one.msg_rate_out for one in values), 0.0),
            "last_bundle_gains": sorted({*report.last_bundle_gains, *(now - before)}),
            "last_bundle_losses": sorted({*report.last_bundle_losses, *(before - now)}),
        }
    )


def written(report: ModularLoadReport) -> ModularLoadReport:
    """The report after it was sent: nothing gained or lost yet."""
    return report.model_copy(update={"last_bundle_gains": [], "last_bundle_losses": []})
