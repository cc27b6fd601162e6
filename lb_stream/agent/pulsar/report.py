"""Checks the report of a modular or simple broker against the bundles that the broker owns.

A report is made from statistics that are up to a minute old: it names bundles that have left, and
lacks bundles that have come. Sent unchanged, it would take bundles from their new owners.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Set
from typing import Any

import msgspec

from lb_stream.agent.adapter import BrokerError, JsonReport
from lb_stream.agent.pulsar.admin import AdminClient, AdminError
from lb_stream.core.model.names import is_system_bundle

_NAMING: dict[str, Any] = {
    "lastStats": dict[str, Any] | None,
    "bundleStats": dict[str, Any] | None,
    "bundles": list[str] | None,
}
"""Fields that name bundles: two with their statistics, one with a list of names."""

FindOwned = Callable[[Set[str]], Set[str]]
LOAD_REPORT = "/admin/v2/broker-stats/load-report"
BROKER_ID = "brokerId"
"""The field with the broker's id. Reports of Pulsar before 5.0 lack it."""


def find_broker_id(admin: AdminClient) -> str | None:
    """Return the id in the report of the broker at an address; None: no report gives it.

    Before 5.0 and under the extensible manager none does, nor while the broker doesn't answer.
    """
    try:
        fields = admin.get_json(LOAD_REPORT)
    except AdminError:
        return None
    found = fields.get(BROKER_ID) if isinstance(fields, dict) else None
    return found if isinstance(found, str) and found else None


class ReportCheck:
    """Checks the reports of one broker, which has the id `broker`. `clock` gives seconds."""

    def __init__(self, broker: str, clock: Callable[[], float]) -> None:
        self._broker, self._clock = broker, clock
        self._held_since: float | None = None
        self._has_reported = False
        # Bundles that came by a decision, and that no report has named yet.
        self._taken: set[str] = set()

    def note_taken(self, bundle: str) -> None:
        """Note that a bundle has come by a decision: the next report must name it.

        Statistics leave out a bundle without topics.
        """
        self._taken.add(bundle)

    def check(self, report: bytes, find_owned: FindOwned, hold_s: float) -> bytes | None:
        """Return the report if it names the owned bundles, else None, or a corrected report.

        `find_owned` returns those of some bundles that the broker owns. The report is held back
        (None) for `hold_s` seconds at most: new statistics may correct it, and its load then
        includes the change. After that its bundles are corrected here, and at once in the first
        report: without it the balancer may not know the broker. Raises BrokerError for the report
        of another broker.
        """
        fields = self._parse(report)
        broker = fields.get(BROKER_ID, self._broker)
        if broker != self._broker:
            raise BrokerError(
                f"the report of {self._broker} names {broker} as its broker: give --admin-url an "
                f"address of {self._broker} alone, or --broker {broker}"
            )
        named = {
            name
            for field in _NAMING
            for name in (fields.get(field) or ())
            if not is_system_bundle(name)
        }
        try:
            owned = find_owned(named | self._taken)
        except ValueError as error:  # a name that is none of a bundle
            raise BrokerError(f"the report of {self._broker} is none: {error}") from None
        self._taken = (self._taken & owned) - named
        if named <= owned and not self._taken:
            self._held_since, self._has_reported = None, True
            return report
        now = self._clock()
        if self._held_since is None:
            self._held_since = now
        if self._has_reported and now - self._held_since < hold_s:
            return None
        self._held_since, self._has_reported = None, True
        return json.dumps(_correct(fields, named - owned, self._taken)).encode()

    def _parse(self, report: bytes) -> JsonReport:
        """Return the report's fields. Raises BrokerError unless bundles are named as in a report."""
        try:
            fields: dict[str, Any] = msgspec.convert(json.loads(report), dict[str, Any])
            for field, shape in _NAMING.items():
                msgspec.convert(fields.get(field), shape)
        except (ValueError, RecursionError) as error:
            raise BrokerError(f"the report of {self._broker} is none: {error}") from None
        return fields


def _correct(fields: JsonReport, gone: Set[str], taken: Set[str]) -> JsonReport:
    """Return a report without bundles that have gone, and with those that were taken."""
    kept = dict(fields)
    for field in ("lastStats", "bundleStats"):
        if fields.get(field):
            kept[field] = {name: stats for name, stats in fields[field].items() if name not in gone}
    if "bundleStats" not in fields:
        kept["bundles"] = sorted({*(fields.get("bundles") or ()), *taken} - gone)
    return kept
