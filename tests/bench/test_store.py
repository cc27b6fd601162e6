"""What `tests.bench.store` makes of the requests that a server has noted."""

from __future__ import annotations

from tests.bench.store import FIRST, by_batch, counted, figures, of_tables
from tests.support.s3_server import Request

SPARK, OWN = "Hadoop 3.5.0, aws-sdk-java/2.35.4", "object_store/0.13.2"


def batch(number: int, *own: tuple[str, str]) -> list[Request]:
    """Spark's plan and two looks, and what the job asks itself."""
    plan = [
        Request("PUT", f"lb/checkpoint/offsets/{number}", 200, SPARK),
        Request("HEAD", "lb/checkpoint/commits", 404, SPARK),
    ]
    return [*plan, *(Request(kind, f"lb/{key}", 200, OWN) for kind, key in own)]


def test_a_batch_begins_with_its_plan_and_the_last_one_is_left_out() -> None:
    before, refused = (
        Request("LIST", "lb", 200, OWN),
        Request("PUT", "lb/checkpoint/offsets/1", 412, SPARK),
    )
    first, second = batch(0, ("PUT", "tables/rounds/a.parquet")), batch(1)
    assert by_batch([before, *first, refused, *second]) == [[*first, refused]]
    assert by_batch([before]) == []


def test_requests_are_counted_by_who_asks_and_by_kind() -> None:
    commit = ("PUT", "tables/decisions/_delta_log/00000000000000000003.json")
    batches = [
        batch(0, commit),
        batch(1, commit, ("GET", "a")),
        batch(2, commit, ("GET", "a"), ("GET", "b")),
    ]
    before = [one for number in range(FIRST) for one in batch(number, commit)]
    after = [one for some in (*batches, batch(3, ("GET", commit[1])), batch(4)) for one in some]
    assert counted([*before, *after]) == batches, (
        "neither the first ones, nor those that decide nothing"
    )
    assert figures(batches) == {
        "all": {"median": 4, "mean": 4, "median_by_kind": {"GET": 1, "HEAD": 1, "PUT": 2}},
        "job": {"median": 2, "mean": 2, "median_by_kind": {"GET": 1, "PUT": 1}},
        "spark_checkpoint": {"median": 2, "mean": 2, "median_by_kind": {"HEAD": 1, "PUT": 1}},
    }


def test_the_log_and_the_tables_of_a_batch_take_forty_requests_at_most() -> None:
    found = of_tables(2)
    assert 0 < found["median"] <= 40 and found["median_by_kind"]["PUT"] >= 10
