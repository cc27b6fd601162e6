"""The brokers of the last shard stand for the next one's only if it has the same records."""

from dataclasses import replace

import pyarrow as pa

from lb_stream.core.averages.brokers import LastBrokers, fold_brokers
from lb_stream.core.model.blocks import EVENT_SCHEMA
from tests.bench.core import reports_of, shard_of_size

SHARD = shard_of_size(brokers=3, bundles=12, hot=1)
BATCH = reports_of(SHARD, b"sample 1")


def test_a_shard_with_the_same_records_has_the_same_brokers() -> None:
    last = LastBrokers()
    first, again = (last.fold(SHARD.brokers, reports_of(SHARD, b"sample 1"))[0] for _ in range(2))
    assert again is first
    assert first.equals(fold_brokers(SHARD.brokers, BATCH)[0])


def test_other_brokers_reports_or_events_are_folded_anew() -> None:
    life = {"kind": "heartbeat", "broker": "broker-00001:8080", "topic": "t", "partition": 0}
    life |= {"offset": 9, "append_ms": 5_000, "payload": "{}"}
    heard = replace(BATCH, events=pa.Table.from_pylist([life], EVENT_SCHEMA))
    last = LastBrokers()
    for brokers, batch in (
        (SHARD.brokers, BATCH),
        (SHARD.brokers, reports_of(SHARD, b"sample 2")),
        (SHARD.brokers.slice(0, 2), reports_of(SHARD, b"sample 2")),
        (SHARD.brokers.slice(0, 2), heard),
    ):
        found, row_of, taken = last.fold(brokers, batch)
        expected, expected_rows, expected_taken = fold_brokers(brokers, batch)
        assert found.equals(expected)
        assert row_of.tolist() == expected_rows.tolist()
        assert taken.fresh.tolist() == expected_taken.fresh.tolist()
