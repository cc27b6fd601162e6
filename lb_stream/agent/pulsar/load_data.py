"""An extensible Pulsar broker's load data, completed with what its own records lack.

They have no version and no start of its process. They name ten bundles at most, none of namespaces
with policies, and for a while bundles that it has given up.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Set

from lb_stream.contracts.base import canonical_json
from lb_stream.contracts.reports import find_report_kind
from lb_stream.core.model.names import SYSTEM_NAMESPACE

LEFT_OUT = f"{SYSTEM_NAMESPACE}/"
"""The namespace of the load manager's own topics: nothing of it is reported, so that it stays."""


class LoadDataCompleter:
    """Adds the names of all bundles, version and start to one broker's load data."""

    def __init__(self) -> None:
        self._load: dict[str, object] | None = None  # the last load data
        self._bundles: list[str] = []  # the bundles that were sent with it
        self._process: dict[str, object] = {}  # its version and start, where they are known

    def complete(
        self,
        written: Iterable[bytes],
        owned: Set[str],
        version: str | None = None,
        start_ms: int | None = None,
    ) -> list[bytes]:
        """Return what to send for the records that the broker has written.

        If it owns other bundles than were sent last, or has started since, its last load data is
        sent again first: a broker that has started may write none for a minute.
        `version`: the broker's, `start_ms`: when its process was first seen; None: not known.
        """
        is_started_anew = start_ms != self._process.get("startTimestamp")
        process = {"brokerVersionString": version, "startTimestamp": start_ms}
        self._process = {key: value for key, value in process.items() if value is not None}
        bundles = sorted(bundle for bundle in owned if not bundle.startswith(LEFT_OUT))
        completed: list[bytes] = []
        if self._load is not None and (bundles != self._bundles or is_started_anew):
            completed.append(self._with_bundles(self._load, bundles))
        for record in written:
            fields = _parse_fields(record)
            match find_report_kind(fields):
                case "broker_load":
                    self._load = fields
                    completed.append(self._with_bundles(fields, bundles))
                case "top_bundles":
                    completed.append(_keep_owned(record, fields, owned))
                case _:  # the job rejects it, with the reason
                    completed.append(record)
        return completed

    def _with_bundles(self, load: dict[str, object], bundles: list[str]) -> bytes:
        self._bundles = bundles
        return canonical_json({**load, **self._process, "bundles": bundles}).encode()


def _keep_owned(record: bytes, fields: dict[str, object], owned: Set[str]) -> bytes:
    """Return a record of top bundles without bundles that the broker doesn't own.

    A broker names a bundle for some time after it has left; its new owner must keep it.
    """
    given = fields["topBundlesLoadData"]
    named = given if isinstance(given, list) else []
    kept = [
        bundle for bundle in named if isinstance(bundle, dict) and bundle.get("bundleName") in owned
    ]
    if len(kept) == len(named):
        return record
    return canonical_json({**fields, "topBundlesLoadData": kept}).encode()


def _parse_fields(record: bytes) -> dict[str, object]:
    try:
        fields = json.loads(record)
    except (ValueError, RecursionError):
        fields = None
    return fields if isinstance(fields, dict) else {}
