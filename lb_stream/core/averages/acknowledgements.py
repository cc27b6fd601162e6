"""Acknowledgements that name bundles: they show that a bundle has changed hands before a report
does."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from lb_stream.contracts.base import canonical_json
from lb_stream.core.model.blocks import Batch, Shard, one_array, with_columns


def strip_unexpected_bundle(payload: str, broker: str, asked: Mapping[str, tuple[str, str]]) -> str:
    """The acknowledgement, without its bundle unless the broker that sent it was asked to act on
    that bundle.

    `asked`: of each decision under way, who was asked and about which bundle. Any sender can claim
    that a bundle has changed hands.
    """
    ack = json.loads(payload)
    if ack["bundle"] is None or asked.get(ack["decision_id"]) == (broker, ack["bundle"]):
        return payload
    return canonical_json(ack | {"bundle": None})


def follow_acks(shard: Shard, batch: Batch) -> Shard:
    """Update who owns the bundles that acknowledgements name, before a report shows it.

    An acknowledgement counts until its broker's next report in the same batch, and only for bundles
    that are known. Those of brokers that were not asked have lost their bundles before
    (`strip_unexpected_bundle`).
    """
    acks = _read_ownership_acks(batch)
    if not acks:
        return shard
    rows = pc.index_in(
        pa.array([ack["bundle"] for ack in acks], pa.string()),
        value_set=one_array(shard.bundles["name"]),
    ).to_pylist()
    number = {name: at for at, name in enumerate(shard.brokers["name"].to_pylist())}
    columns = {
        name: shard.bundles[name].to_numpy(zero_copy_only=False).copy()
        for name in ("owner", "owner_since_ms", "reported_ms", "gained")
    }
    for ack, row in zip(acks, rows, strict=True):
        broker = number.get(ack["broker"])
        if row is None or broker is None:
            continue
        owner, acquired = int(columns["owner"][row]), ack["outcome"] == "acquired"
        if (
            acquired
            and owner not in (-1, broker)
            and columns["reported_ms"][row] > ack["append_ms"]
        ):
            continue  # somebody else has named it since
        if owner != broker if acquired else owner == broker:
            columns["owner"][row] = broker if acquired else -1
            columns["owner_since_ms"][row] = ack["append_ms"]
            columns["gained"][row] = True
        if acquired:
            columns["reported_ms"][row] = max(columns["reported_ms"][row], ack["append_ms"])
    return Shard(shard.brokers, with_columns(shard.bundles, columns))


def _read_ownership_acks(batch: Batch) -> list[dict[str, Any]]:
    """The acknowledgements by which a bundle changes hands, in order; those that a later report of
    their broker follows are left out."""
    found = []
    for event in batch.events.filter(pc.equal(batch.events["kind"], "ack")).to_pylist():
        ack = json.loads(event["payload"])
        if ack.get("bundle") and ack.get("outcome") in ("released", "acquired"):
            found.append(event | {"bundle": ack["bundle"], "outcome": ack["outcome"]})
    if not found:
        return []
    whole = batch.reports.filter(pc.invert(batch.reports["some_bundles"].fill_null(False)))
    last: dict[tuple[str, int], int] = {}
    for report in whole.select(["name", "partition", "offset"]).to_pylist():
        place = report["name"], report["partition"]
        last[place] = max(last.get(place, -1), report["offset"])
    found.sort(key=lambda ack: (ack["append_ms"], ack["partition"], ack["offset"]))
    return [ack for ack in found if ack["offset"] > last.get((ack["broker"], ack["partition"]), -1)]
