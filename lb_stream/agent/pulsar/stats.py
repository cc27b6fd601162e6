"""A Pulsar broker's statistics of its topics.

They exist under the extensible manager too, whose load data names only ten bundles.
"""

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

TopicFigures = Mapping[str, Any]
"""One topic's statistics, a JSON object of Pulsar's."""


@dataclass(frozen=True, slots=True)
class BundleTraffic:
    """One bundle's sums, and topic (full name) → (messages/s, bytes/s), in and out together."""

    stats: BundleStats
    rates: Mapping[str, tuple[float, float]]

    @property
    def topics(self) -> Topics:
        """The topics as split algorithms take them."""
        return Topics.from_names(list(self.rates), self.rates)


def read_bundles(admin: AdminClient) -> dict[str, BundleTraffic]:
    """Return every bundle with a topic in the broker's statistics, without system bundles.

    Statistics are up to `statsUpdateFrequencyInSecs` old, and may name bundles that have left.
    Raises BrokerError.
    """
    found = admin.get_json(TOPIC_STATS)
    try:
        named = {
            f"{namespace}/{bounds}": kinds
            for namespace, bundles in found.items()
            for bounds, kinds in bundles.items()
        }
        return {name: _add_up(kinds) for name, kinds in named.items() if not is_system_bundle(name)}
    except (ArithmeticError, AttributeError, TypeError, ValueError) as error:
        text = (
            f"GET {admin.settings.url}{TOPIC_STATS}: expected namespaces, in them bundles, in "
            f"them topics: {type(error).__name__}"
        )
        raise BrokerError(text) from error


def _add_up(kinds: Mapping[str, Mapping[str, TopicFigures]]) -> BundleTraffic:
    """Return the traffic of a bundle; `kinds` are its persistent and non-persistent topics."""
    topics = {name: figures for topics in kinds.values() for name, figures in topics.items()}
    all_figures = list(topics.values())
    stats = BundleStats(
        msg_rate_in=_sum(all_figures, "msgRateIn"),
        msg_rate_out=_sum(all_figures, "msgRateOut"),
        msg_throughput_in=_sum(all_figures, "msgThroughputIn"),
        msg_throughput_out=_sum(all_figures, "msgThroughputOut"),
        producer_count=int(_sum(all_figures, "producerCount")),
        consumer_count=sum(
            len(subscription.get("consumers") or ())
            for figures in all_figures
            for subscription in (figures.get("subscriptions") or {}).values()
        ),
        topics=len(all_figures),
    )
    rates = {
        name: (
            _sum([figures], "msgRateIn", "msgRateOut"),
            _sum([figures], "msgThroughputIn", "msgThroughputOut"),
        )
        for name, figures in topics.items()
    }
    return BundleTraffic(stats, rates)


def _sum(topics: list[TopicFigures], *fields: str) -> float:
    return sum(float(figures.get(field) or 0) for figures in topics for field in fields)
