"""What a Pulsar broker says of each of its topics, also under the extensible manager, whose load
data names ten bundles only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from lb_stream.agent.adapter import BrokerError
from lb_stream.agent.pulsar.admin import AdminClient
from lb_stream.contracts.reports import BundleStats
from lb_stream.core.model.names import is_system_bundle
from lb_stream.core.splitting import Topics

TOPIC_STATS = "/admin/v2/broker-stats/topics"


@dataclass(frozen=True, slots=True)
class BundleTraffic:
    """One bundle: its sums, and of each topic (its full name) messages/s and bytes/s, in and out
    together."""

    stats: BundleStats
    rates: Mapping[str, tuple[float, float]]

    @property
    def topics(self) -> Topics:
        """As the split algorithms take them."""
        return Topics.from_names(list(self.rates), self.rates)


def read_bundles(admin: AdminClient) -> dict[str, BundleTraffic]:
    """Every bundle of which the broker's statistics know a topic, its own heartbeat's left out.

    They are as old as `statsUpdateFrequencyInSecs` allows, and may name bundles that have gone
    meanwhile. Raises BrokerError.
    """
    found = admin.get_json(TOPIC_STATS)
    try:
        named = {
            f"{namespace}/{bounds}": kinds
            for namespace, bundles in found.items()
            for bounds, kinds in bundles.items()
        }
        return {
            name: _measured(kinds) for name, kinds in named.items() if not is_system_bundle(name)
        }
    except (AttributeError, TypeError, ValueError) as error:
        text = (
            f"GET {admin.settings.url}{TOPIC_STATS}: expected namespaces, in them bundles, in "
            f"them topics: {type(error).__name__}"
        )
        raise BrokerError(text) from error


def _measured(kinds: Mapping[str, Mapping[str, Any]]) -> BundleTraffic:
    """`kinds`: persistent and non-persistent topics, where there are any."""
    topics = {name: figures for topics in kinds.values() for name, figures in topics.items()}
    every = list(topics.values())
    stats = BundleStats(
        msg_rate_in=_sum(every, "msgRateIn"),
        msg_rate_out=_sum(every, "msgRateOut"),
        msg_throughput_in=_sum(every, "msgThroughputIn"),
        msg_throughput_out=_sum(every, "msgThroughputOut"),
        producer_count=int(_sum(every, "producerCount")),
        consumer_count=sum(
            len(one.get("consumers") or ())
            for figures in every
            for one in (figures.get("subscriptions") or {}).values()
        ),
        topics=len(every),
    )
    rates = {
        name: (
            _sum([figures], "msgRateIn", "msgRateOut"),
            _sum([figures], "msgThroughputIn", "msgThroughputOut"),
        )
        for name, figures in topics.items()
    }
    return BundleTraffic(stats, rates)


def _sum(topics: list[Mapping[str, Any]], *fields: str) -> float:
    return sum(float(figures.get(field) or 0) for figures in topics for field in fields)
