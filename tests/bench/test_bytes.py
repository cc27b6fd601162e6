"""The benchmark of bytes in its smallest run, without a JVM."""

from tests.bench.bytes import measure


def test_spread_reports_write_little_more_than_whole_generations_and_the_table_waits() -> None:
    found = measure(brokers=6, generations=1, interval_ms=3_000)
    assert (found["whole"]["batches"], found["spread"]["batches"]) == (1, 6)
    assert 0 < found["spread"]["kafka_columns"] < found["spread"]["kafka_json"]
    # A value's row has 164 bytes.
    assert 60 < found["whole"]["blocks"] < 200
    assert found["whole"]["blocks"] < found["spread"]["blocks"] < 6 * found["whole"]["blocks"]
    deltas = found["deltas"]
    assert 0 < 2 * deltas["kafka_deltas"] < deltas["kafka_columns"] < deltas["kafka_json"]
    every = measure(brokers=6, generations=1, interval_ms=0)["spread"]["bundle_averages"]
    assert 0 < 2.5 * found["spread"]["bundle_averages"] < every
