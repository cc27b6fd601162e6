"""A modular or simple broker's report names what its statistics know: for up to a minute what has
gone, and not what has come.

Sent as it is, it would take bundles back from their new owners. So it is compared with what the
broker owns before it is sent.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Set
from typing import Any

from lb_stream.core.model.names import is_system_bundle

NAMING = ("lastStats", "bundleStats", "bundles")
"""Fields that name bundles: two with their statistics, a list of names."""


class ReportCheck:
    """Checks one broker's reports. `clock` gives seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._held_since: float | None = None
        self._taken: set[str] = (
            set()
        )  # bundles that came by a decision, and that no report has named yet

    def taken(self, bundle: str) -> None:
        """Note that a bundle has come by a decision: the next report must name it.

        Statistics leave out a bundle without topics.
        """
        self._taken.add(bundle)

    def checked(self, report: bytes, owned: Set[str], hold_s: float) -> bytes | None:
        """The report, if it is true; None while new statistics may make it so; after `hold_s` what
        is true of it.

        Its load is that of its statistics in any case: a report that is held back comes with
        figures that know of the change, too.
        """
        fields = json.loads(report)
        named = {
            name
            for field in NAMING
            for name in (fields.get(field) or ())
            if not is_system_bundle(name)
        }
        self._taken = (self._taken & owned) - named
        if named <= owned and not self._taken:
            self._held_since = None
            return report
        now = self._clock()
        if self._held_since is None:
            self._held_since = now
        if now - self._held_since < hold_s:
            return None
        self._held_since = None
        return json.dumps(_corrected(fields, named - owned, self._taken)).encode()


def _corrected(fields: dict[str, Any], gone: Set[str], taken: Set[str]) -> dict[str, Any]:
    kept = dict(fields)
    for field in ("lastStats", "bundleStats"):
        if fields.get(field):
            kept[field] = {name: stats for name, stats in fields[field].items() if name not in gone}
    if "bundleStats" not in fields:
        kept["bundles"] = sorted({*(fields.get("bundles") or ()), *taken} - gone)
    return kept
