"""What `tests.bench.store` counts."""

from __future__ import annotations

from tests.bench.store import figures, of_tables
from tests.support.s3_server import Request


def test_requests_are_counted_by_kind() -> None:
    put, get = Request("PUT", "lb/a", 200, ""), Request("GET", "lb/a", 200, "")
    assert figures([[put], [put, get], [put, get, get]]) == {
        "median": 2,
        "mean": 2,
        "most": 3,
        "mean_by_kind": {"GET": 1, "PUT": 1},
    }


def test_the_log_and_the_tables_of_a_batch_take_forty_requests_at_most() -> None:
    batches = of_tables(2)
    assert all(any(one.kind == "PUT" and "/rounds/_delta_log/" in one.key for one in batch) for batch in batches)
    assert 0 < max(map(len, batches)) <= 40
