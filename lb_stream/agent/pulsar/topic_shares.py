"""How the load of a broker's heaviest bundles is divided among their topics.

The balancer knows bundles only; with these shares it knows where to split one that is too heavy.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping

import numpy as np

from lb_stream.agent.adapter import BrokerError
from lb_stream.agent.pulsar.admin import AdminClient
from lb_stream.agent.pulsar.stats import BundleTraffic, read_bundles
from lb_stream.core.model.names import FULL_RANGE_END, parse_bundle
from lb_stream.core.model.topic_shares import condense
from lb_stream.core.model.view import Floats

log = logging.getLogger(__name__)

HEAVIEST = 10
"""Bundles whose topics are reported: as many as an extensible broker names in its load data."""
DIGITS = 7
"""Decimal places of a share."""

Shares = dict[str, list[tuple[int, float]]]
"""Bundle → hash and share of the bundle's load, by hash."""


def heaviest_shares(bundles: Mapping[str, BundleTraffic]) -> Shares:
    """Return the shares of topics in the heaviest bundles, without those of fewer than two topics.

    A load is the mean of its parts of messages/s and of bytes/s.
    """
    sums = np.array([[_rate(bundle), _throughput(bundle)] for bundle in bundles.values()])
    weights = _mean_part(sums.reshape(-1, 2))
    ranked = sorted(zip(weights.tolist(), bundles, strict=True), key=lambda row: (-row[0], row[1]))
    found = {
        name: _shares(name, bundles[name])
        for weight, name in ranked[:HEAVIEST]
        if weight > 0 and len(bundles[name].rates) > 1
    }
    return {name: shares for name, shares in found.items() if shares}


def _shares(bundle: str, traffic: BundleTraffic) -> list[tuple[int, float]]:
    """Return the shares of one bundle's topics; none if a hash is not in the bundle's range."""
    topics = traffic.topics
    _, lower, upper = parse_bundle(bundle)
    last = upper if upper == FULL_RANGE_END else upper - 1
    if not ((topics.hashes >= lower) & (topics.hashes <= last)).all():
        return []
    parts = _mean_part(np.column_stack([topics.rate, topics.throughput]))
    hashes, share = condense(topics.hashes, parts)
    return list(zip(hashes.tolist(), np.round(share, DIGITS).tolist(), strict=True))


def _mean_part(loads: Floats) -> Floats:
    """Return each row's mean part of the columns' sums; a column without load does not count."""
    totals = loads.sum(axis=0)
    used = totals > 0
    if not used.any():
        return np.zeros(len(loads))
    parts: Floats = (loads[:, used] / totals[used]).mean(axis=1)
    return parts


def _rate(bundle: BundleTraffic) -> float:
    return bundle.stats.msg_rate_in + bundle.stats.msg_rate_out


def _throughput(bundle: BundleTraffic) -> float:
    return bundle.stats.msg_throughput_in + bundle.stats.msg_throughput_out


class TopicShareReader:
    """Adds the shares of topics to one broker's reports; it reads them every `interval_s`.

    0: it adds none. `clock` gives seconds.
    """

    def __init__(self, admin: AdminClient, interval_s: float, clock: Callable[[], float]) -> None:
        self._admin, self._interval_s, self._clock = admin, interval_s, clock
        self._read_at: float | None = None
        self._shares: Shares = {}
        self._has_failed = False

    def add_to(self, report: bytes) -> bytes:
        """Return a report, a JSON object, with the shares of bundles that it names.

        All else stays byte for byte. Without shares, or if they can't be read, it is the report.
        """
        now = self._clock()
        if self._interval_s and (self._read_at is None or now - self._read_at >= self._interval_s):
            self._read_at, self._shares = now, self._read()
        named = {
            bundle: shares
            for bundle, shares in self._shares.items()
            if json.dumps(bundle, ensure_ascii=False).encode() in report
        }
        if not named:
            return report
        return b"%b,%b" % (
            report.rstrip().removesuffix(b"}"),
            json.dumps({"topicShares": named}, ensure_ascii=False, separators=(",", ":"))
            .removeprefix("{")
            .encode(),
        )

    def _read(self) -> Shares:
        """Return the shares now; none, with a line in the log, if they can't be read."""
        try:
            found = heaviest_shares(read_bundles(self._admin))
        except (BrokerError, ValueError) as error:
            if not self._has_failed:
                log.warning("reports have no shares of topics: %s", error)
            self._has_failed = True
            return {}
        self._has_failed = False
        return found
