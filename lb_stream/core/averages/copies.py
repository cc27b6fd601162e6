"""Drops copies of signed records: those that somebody has read from the topic and sent again.

The signer's times increase. A broker's record whose signature is not later than that of an earlier
record of this broker has been read before.
"""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lb_stream.core.averages.brokers import in_order
from lb_stream.core.model.blocks import EVENT_SCHEMA, NO_EVENTS, Batch, one_array
from lb_stream.core.model.view import Bools


def drop_copies(brokers: pa.Table, batch: Batch) -> tuple[Batch, pa.Table]:
    """Return the batch without copies of signed records, and an event for each copy.

    `brokers`: the shard's broker table before the batch. Records without a verified signature are
    never copies: where signatures are required, the decoder has rejected them.
    """
    tables = (batch.reports, batch.events)
    if all(table["signed_us"].null_count == len(table) for table in tables):
        return batch, NO_EVENTS
    # Every record's broker as a number, and the signature's time that it must exceed.
    names = pa.concat_arrays(
        [one_array(batch.reports["name"]), one_array(batch.events["broker"])]
    ).dictionary_encode()
    broker = names.indices.to_numpy()
    latest = (
        brokers["signed_us"]
        .take(pc.index_in(names.dictionary, value_set=one_array(brokers["name"])))
        .fill_null(0)
        .to_numpy()
        .copy()
    )
    partition, offset, append_ms, signed_us = (
        np.concatenate([table[name].fill_null(0).to_numpy() for table in tables])
        for name in ("partition", "offset", "append_ms", "signed_us")
    )
    # One after another: each record may be a copy of the one before it.
    is_copy = np.zeros(len(broker), np.bool_)
    expected = np.zeros(len(broker), np.int64)
    order = in_order(partition, offset, append_ms)
    for row in order[signed_us[order] > 0].tolist():
        of_broker = broker[row]
        if signed_us[row] <= latest[of_broker]:
            is_copy[row], expected[row] = True, latest[of_broker]
        else:
            latest[of_broker] = signed_us[row]
    if not is_copy.any():
        return batch, NO_EVENTS
    copies = pa.concat_tables(
        [
            batch.reports.rename_columns({"name": "broker"}).select(_COMMON),
            batch.events.select(_COMMON),
        ]
    ).filter(pa.array(is_copy))
    events = [
        _build_rejection(copy, min_us)
        for copy, min_us in zip(copies.to_pylist(), expected[is_copy].tolist(), strict=True)
    ]
    kept = ~is_copy
    return (
        replace(
            _keep_reports(batch, kept[: len(batch.reports)]),
            events=batch.events.filter(pa.array(kept[len(batch.reports) :])),
        ),
        pa.Table.from_pylist(events, EVENT_SCHEMA),
    )


_COMMON = [name for name in EVENT_SCHEMA.names if name not in ("kind", "payload")]


def _keep_reports(batch: Batch, kept: Bools) -> Batch:
    """Return the batch with some of its reports, and with their samples."""
    if kept.all():
        return batch
    row_of = np.cumsum(kept) - 1
    report = batch.samples["report"].to_numpy()
    of_kept = kept[report]
    samples = batch.samples.filter(pa.array(of_kept))
    numbers = pa.array(row_of[report[of_kept]].astype(np.int32))
    place = samples.schema.get_field_index("report")
    return replace(
        batch,
        reports=batch.reports.filter(pa.array(kept)),
        samples=samples.set_column(place, samples.schema.field(place), numbers),
    )


def _build_rejection(copy: dict[str, object], min_us: int) -> dict[str, object]:
    """Return the event of a copy."""
    payload = {
        "field": "lb-signed-us",
        "value": str(copy["signed_us"]),
        "expected": f"> {min_us}, the latest of this broker's records: it has been sent before",
    }
    return copy | {"kind": "rejected", "signed_us": None, "payload": json.dumps(payload)}
