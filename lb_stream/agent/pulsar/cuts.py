"""Where a Pulsar broker cuts a bundle that holds segments of scalable topics (Pulsar 5.0).

Pulsar's algorithms that need topics take those that it lists, and segments are not listed. They
then cut as if the segments weren't there, and not at all, with a success for an answer, when fewer
than two topics are listed; so does a split at given positions. Only the middle is always possible.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from urllib.parse import quote

from lb_stream.agent.adapter import BrokerError, Refused
from lb_stream.agent.pulsar.admin import AdminClient
from lb_stream.agent.pulsar.stats import read_bundles
from lb_stream.core.model.names import BundleRange, bundle_name
from lb_stream.core.model.topics import SEGMENT
from lb_stream.core.splitting import Algorithms, Topics
from lb_stream.core.splitting.base import FALLBACK as RANGE
from lb_stream.core.splitting.base import Range
from lb_stream.core.splitting.manual import FLOW
from lb_stream.core.splitting.perform import SPECIFIED as POSITIONS

FEWEST_LISTED = 2
"""Listed topics without which Pulsar cuts a bundle only in its middle."""


def middle_of(bundle: BundleRange) -> int:
    """Return where range_equally_divide cuts a bundle."""
    return bundle.lower + (bundle.upper - bundle.lower) // 2


class BundleCuts:
    """Finds the positions at which a broker's bundles can be cut.

    `algorithms` None: Pulsar's own algorithms find them, which don't count segments.
    """

    def __init__(self, admin: AdminClient, algorithms: Algorithms | None) -> None:
        self._admin, self._algorithms = admin, algorithms

    def is_possible(self, bundle: BundleRange, positions: list[int]) -> bool:
        """Return whether Pulsar would cut a bundle at these positions. Raises BrokerError."""
        if positions == [middle_of(bundle)]:
            return True
        listed = self._listed(bundle)
        return listed is None or len(listed) >= FEWEST_LISTED

    def find(self, bundle: BundleRange, algorithm: str) -> list[int] | None:
        """Return where an algorithm cuts a bundle with segments; the middle, if only that can be.

        None: the bundle has no segment, so Pulsar's own algorithm knows all of its topics.
        Raises Refused when the algorithm finds no position, and BrokerError.
        """
        if self._algorithms is None:
            return None
        name = bundle_name(*bundle)
        traffic = read_bundles(self._admin).get(name)
        if traffic is None or not any(topic.startswith(SEGMENT) for topic in traffic.rates):
            return None
        listed = self._listed(bundle) or []
        if len(listed) < FEWEST_LISTED:
            return [middle_of(bundle)]

        # Also topics that are listed without statistics, because no client uses them.
        names = [*traffic.rates, *(topic for topic in listed if topic not in traffic.rates)]
        found = self._algorithms.boundaries(
            self._algorithms.named(algorithm),
            Range(bundle.lower, bundle.upper, Topics.from_names(names, traffic.rates)),
        )
        if found.positions is None:
            why = (found.why or "nothing_to_separate").replace("_", " ")
            raise Refused(f"{algorithm} finds no position in {name}: {why}")
        return list(found.positions)

    def explain_no_position(self, bundle: BundleRange, query: Mapping[str, str]) -> str | None:
        """Explain why Pulsar found no position to cut at; None: that isn't known.

        `query` is that of the split. Pulsar itself gives no reason.
        """
        algorithm = query["splitAlgorithmName"]
        listed = None
        with suppress(BrokerError):
            listed = self._listed(bundle)
        if listed is None or algorithm == RANGE:
            return None
        if len(listed) < FEWEST_LISTED:
            return (
                f"Pulsar lists only {len(listed)} of its topics, and {algorithm} cuts between topics; "
                f"{RANGE} cuts it all the same"
            )
        if algorithm == POSITIONS:
            return "no position is inside of it"
        if algorithm == FLOW:
            return (
                f"{algorithm} cuts between its {len(listed)} topics only where their traffic is "
                "above Pulsar's own limits of a bundle (loadBalancerNamespaceBundleMaxMsgRate, "
                "…MaxBandwidthMbytes)"
            )
        return f"{algorithm} finds no position between its {len(listed)} topics"

    def _listed(self, bundle: BundleRange) -> list[str] | None:
        """Return the topics of a bundle that Pulsar lists; None: the broker doesn't know."""
        bounds = f"0x{bundle.lower:08x}_0x{bundle.upper:08x}"
        path = f"/admin/v2/namespaces/{quote(bundle.namespace)}/{bounds}/topicHashPositions"
        answer = self._admin.get(path)
        if answer.status != 200:
            return None
        found = self._admin.parse(path, answer)
        topics = found.get("topicHashPositions") if isinstance(found, dict) else None
        return list(topics) if isinstance(topics, dict) else None
