"""An extensible Pulsar broker's load data, completed with the names of all bundles that the broker
serves.

Its own records name ten of them at most, none of namespaces with policies, and for a while those
that it has given up.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Set
from typing import Any

from lb_stream.contracts.base import canonical_json
from lb_stream.contracts.reports import report_kind
from lb_stream.core.model.names import SYSTEM_NAMESPACE

LEFT_OUT = f"{SYSTEM_NAMESPACE}/"
"""The namespace in which the load manager keeps its own topics: its brokers report nothing of it,
so nobody else moves it."""


class LoadDataCompleter:
    """One broker's last load data, and which bundles were told with it."""

    def __init__(self) -> None:
        self._load: dict[str, Any] | None = None
        self._told: list[str] = []

    def records(self, written: Iterable[bytes], owned: Set[str]) -> list[bytes]:
        """What to send for what the broker has written: its load again, too, when other bundles are
        owned than were told with it."""
        bundles = sorted(bundle for bundle in owned if not bundle.startswith(LEFT_OUT))
        sent = [] if self._load is None or bundles == self._told else [self._with(bundles)]
        for record in written:
            fields = _fields(record)
            match report_kind(fields):
                case "broker_load":
                    self._load = fields
                    sent.append(self._with(bundles))
                case "top_bundles":
                    sent.append(_owned_only(record, fields, owned))
                case _:  # whoever reads it says what is wrong with it
                    sent.append(record)
        return sent

    def _with(self, bundles: list[str]) -> bytes:
        self._told = bundles
        return canonical_json({**(self._load or {}), "bundles": bundles}).encode()


def _owned_only(record: bytes, fields: dict[str, Any], owned: Set[str]) -> bytes:
    """Statistics of owned bundles only: the broker's name a bundle for some time after it has gone,
    and its new owner must keep it."""
    named = fields["topBundlesLoadData"] or []
    kept = [one for one in named if isinstance(one, dict) and one.get("bundleName") in owned]
    return (
        record
        if len(kept) == len(named)
        else canonical_json({**fields, "topBundlesLoadData": kept}).encode()
    )


def _fields(record: bytes) -> dict[str, Any]:
    try:
        fields = json.loads(record)
    except ValueError:
        fields = None
    return fields if isinstance(fields, dict) else {}
