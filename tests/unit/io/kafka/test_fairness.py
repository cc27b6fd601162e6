"""A flood in one partition doesn't hold the others back for long. No JVM, no Kafka needed."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lb_stream.contracts.settings import Settings
from lb_stream.io.kafka import fairness as module
from lb_stream.io.kafka.fairness import LONGEST_WAIT_S, Fairness, fair_ends, held_back
from tests.support.wordings import check_wording

FLOODED, QUIET, COMMANDS = ("reports", 0), ("reports", 1), ("commands", 0)
NEWEST = {FLOODED: 400_000, QUIET: 60, COMMANDS: 5}
AS_SPARK_DIVIDES = {FLOODED: (0, 999), QUIET: (50, 51), COMMANDS: (4, 5)}


def test_few_records_are_read_whole_beside_a_flood() -> None:
    assert fair_ends(AS_SPARK_DIVIDES, NEWEST, 1_000) == {FLOODED: 989, QUIET: 60, COMMANDS: 5}
    assert held_back(AS_SPARK_DIVIDES, NEWEST, 1_000) == [QUIET]


def test_what_some_do_not_need_is_the_others() -> None:
    newest = {FLOODED: 400_000, QUIET: 100_050, COMMANDS: 14}
    assert fair_ends(AS_SPARK_DIVIDES, newest, 1_000) == {FLOODED: 495, QUIET: 545, COMMANDS: 14}


places = st.dictionaries(
    st.integers(0, 9).map(lambda number: ("reports", number)),
    st.tuples(st.integers(0, 99), st.integers(0, 999)),
    min_size=1,
)


@given(places, st.integers(1, 3_000))
def test_a_batch_has_its_size_and_nobody_has_more_than_one_who_waits(
    waiting: dict[tuple[str, int], tuple[int, int]], limit: int
) -> None:
    planned = {place: (begin, begin) for place, (begin, _) in waiting.items()}
    newest = {place: begin + count for place, (begin, count) in waiting.items()}
    taken = {
        place: end - planned[place][0] for place, end in fair_ends(planned, newest, limit).items()
    }
    assert sum(taken.values()) == min(limit, sum(count for _, count in waiting.values()))
    for place, (_, count) in waiting.items():
        assert 0 <= taken[place] <= count
        assert taken[place] == count or taken[place] >= max(taken.values()) - 1


@given(st.integers(10, 10_000), st.integers(2, 9))
def test_where_all_have_the_same_backlog_nobody_is_held_back(waiting: int, partitions: int) -> None:
    limit = partitions * 10
    planned = {("reports", number): (0, min(10, waiting)) for number in range(partitions)}
    assert held_back(planned, dict.fromkeys(planned, waiting), limit) == []


class Reader:
    """A job that reads batch after batch, one a second."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, caught_up: bool = True) -> None:
        self.now, self.newest, self.asked = 100.0, NEWEST, 0
        monkeypatch.setattr(module, "read_offset_bounds", self._bounds)
        monkeypatch.setattr(module.time, "monotonic", lambda: self.now)
        self.fairness = Fairness(1_000)
        if not caught_up:
            self.fairness.backlog.behind[FLOODED] = 400_000

    def _bounds(self, _: Settings) -> tuple[object, dict[tuple[str, int], int]]:
        self.asked += 1
        return {}, self.newest

    def read(self, planned: module.Ranges = AS_SPARK_DIVIDES) -> str | None:
        self.now += 1
        return self.fairness.describe_violation(Settings(), planned)


def test_who_has_waited_too_long_in_a_row_is_told_with_the_flood(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reader = Reader(monkeypatch)
    found = [reader.read() for _ in range(int(LONGEST_WAIT_S) + 1)]
    assert found[:-1] == [None] * int(LONGEST_WAIT_S)
    check_wording(found[-1])


def test_a_wait_that_was_over_begins_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    reader = Reader(monkeypatch)
    for _ in range(3):
        assert [reader.read() for _ in range(int(LONGEST_WAIT_S))] == [None] * int(LONGEST_WAIT_S)
        assert reader.read({FLOODED: (0, 990), QUIET: (50, 60), COMMANDS: (4, 5)}) is None


def test_kafka_is_not_asked_while_batches_are_not_full_nor_before_the_job_has_caught_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reader = Reader(monkeypatch)
    assert [reader.read({FLOODED: (0, 900), QUIET: (50, 51)}) for _ in range(30)] == [None] * 30
    late = Reader(monkeypatch, caught_up=False)
    assert [late.read() for _ in range(30)] == [None] * 30
    assert (reader.asked, late.asked) == (0, 0)
