"""local_broker: what a broker makes of its own statistics, and its usage."""

from typing import Any

from lb_stream.contracts.reports import ModularLoadReport
from lb_stream.core.model.resources import max_usage, max_weighted_usage, percent
from lb_stream.settings.resolve import cluster_config
from tests.conformance.forms import FOUR_NAMES, RESOURCE_NAMES, resource_columns, stats
from tests.conformance.reference_only import with_stats, written
from tests.conformance.registry import Case, kind

SHOWN = (
    *FOUR_NAMES,
    "numTopics",
    "numBundles",
    "numConsumers",
    "numProducers",
    "bundles",
    "lastBundleGains",
    "lastBundleLosses",
)


@kind("local_broker")
def local_broker(case: Case) -> Any:
    """LocalBrokerData.update: sums, gains and losses, usages after every round."""
    weights = cluster_config(case["config"]).balancer.weights
    report, results = ModularLoadReport(), []
    for given in case["rounds"]:
        if given.get("cleanDeltas"):
            report = written(report)
        report = with_stats(
            report, {name: stats(form) for name, form in given["lastStats"].items()}
        )
        columns = resource_columns([given])
        fields = report.model_dump(by_alias=True)
        results.append(
            {name: fields[name] for name in SHOWN}
            | {
                "percentUsage": {
                    theirs: float(percent(*columns[ours])[0])
                    for theirs, ours in RESOURCE_NAMES.items()
                },
                "maxResourceUsage": float(max_usage(columns)[0]),
                "maxResourceUsageWithWeight": float(max_weighted_usage(columns, weights)[0]),
            }
        )
    return results
