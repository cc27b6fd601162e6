"""Acknowledgements that name bundles, which show a change of owner before a report does."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from lb_stream.contracts.base import canonical_json
from lb_stream.core.model.blocks import Batch, Shard, one_array, with_columns


def strip_unexpected_bundle(payload: str, broker: str, asked: Mapping[str, tuple[str, str]]) -> str:
    """Return an acknowledgement, without its bundle if its broker was not asked to act on that.

    An acknowledgement is no proof of a change of owner, as any sender can write one. `asked`:
    pending decision → its broker and its bundle.
    """
    ack = json.loads(payload)
    if ack["bundle"] is None or asked.get(ack["decision_id"]) == (broker, ack["bundle"]):
        return payload
    return canonical_json(ack | {"bundle": None})


def follow_acks(shard: Shard, batch: Batch) -> Shard:
    """Return the shard with the owners of bundles that acknowledgements name.

    An acknowledgement counts until its broker's next report in the same batch, and only for known
    bundles. Brokers that were not asked name none (`strip_unexpected_bundle`).
    """
    # The acknowledgements, and the rows of their bundles and brokers.
    acks = _read_ownership_acks(batch)
    if not acks:
        return shard
    rows = pc.index_in(
        pa.array([ack.bundle for ack in acks], pa.string()),
        value_set=one_array(shard.bundles["name"]),
    ).to_pylist()
    row_of_broker = {name: row for row, name in enumerate(shard.brokers["name"].to_pylist())}
    columns = {
        name: shard.bundles[name].to_numpy(zero_copy_only=False).copy()
        for name in ("owner", "owner_since_ms", "reported_ms", "gained")
    }
    # Their owners, one after another.
    owners, reported_ms = columns["owner"], columns["reported_ms"]
    for ack, row in zip(acks, rows, strict=True):
        broker = row_of_broker.get(ack.broker)
        if row is None or broker is None:
            continue
        owner = int(owners[row])
        if ack.acquired and owner not in (-1, broker) and reported_ms[row] > ack.append_ms:
            continue  # a later report of another broker names it
        if (owner == broker) != ack.acquired:
            owners[row] = broker if ack.acquired else -1
            columns["owner_since_ms"][row] = ack.append_ms
            columns["gained"][row] = True
        if ack.acquired:
            reported_ms[row] = max(reported_ms[row], ack.append_ms)
    return Shard(shard.brokers, with_columns(shard.bundles, columns))


class _OwnershipAck(NamedTuple):
    """An acknowledgement that a broker has acquired or released a bundle."""

    broker: str
    partition: int
    offset: int
    append_ms: int
    bundle: str
    acquired: bool  # else released


def _read_ownership_acks(batch: Batch) -> list[_OwnershipAck]:
    """Return the acknowledgements that change owners, in the order in which they count.

    Those before the last whole report of their broker are left out.
    """
    found: list[_OwnershipAck] = []
    for event in batch.events.filter(pc.equal(batch.events["kind"], "ack")).to_pylist():
        ack = json.loads(event["payload"])
        if ack.get("bundle") and ack.get("outcome") in ("released", "acquired"):
            head = event["broker"], event["partition"], event["offset"], event["append_ms"]
            found.append(_OwnershipAck(*head, ack["bundle"], ack["outcome"] == "acquired"))
    if not found:
        return []
    # The last report of each broker that names all of its bundles.
    whole = batch.reports.filter(pc.invert(batch.reports["some_bundles"].fill_null(False)))
    last: dict[tuple[str, int], int] = {}
    for report in whole.select(["name", "partition", "offset"]).to_pylist():
        reporter = report["name"], report["partition"]
        last[reporter] = max(last.get(reporter, -1), report["offset"])
    found.sort(key=lambda ack: (ack.append_ms, ack.partition, ack.offset))
    return [ack for ack in found if ack.offset > last.get((ack.broker, ack.partition), -1)]
