"""Records that can't be read are stepped over by another plan of the batch.

No JVM, no Kafka needed.
"""

import gzip
import json
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pytest
from kafka.record.default_records import DefaultRecordBatch

from lb_stream.contracts.settings import Settings, StreamSettings
from lb_stream.io.kafka import poison_records as module
from lb_stream.io.kafka.measuring import RecordSize, measure_batch
from lb_stream.io.kafka.poison_file import RecoveryState
from lb_stream.io.kafka.poison_records import (
    GUARDED_BATCHES,
    MAX_CRASHES,
    BatchGuard,
    ReadPlan,
    Replan,
    forgive_last_start,
    plan_recovery,
)
from lb_stream.store import Store
from lb_stream.stream.records import MAX_RECORD_BYTES
from tests.e2e import bombs
from tests.support.wordings import check_wording

REPORTS = "lb-load-reports"
ZSTD = DefaultRecordBatch.CODEC_ZSTD


def batch_of(payload: bytes, codec: int, records: int) -> DefaultRecordBatch:
    """A batch as Kafka keeps it, at offset 100."""
    size = len(payload) + DefaultRecordBatch.HEADER_STRUCT.size - 12
    header = DefaultRecordBatch.HEADER_STRUCT.pack(
        100, size, 0, 2, 0, codec, records - 1, 5, 7, -1, -1, -1, records
    )
    return DefaultRecordBatch(header + payload)


def packed(codec: str, plain: bytes) -> bytes:
    if codec == "none":
        return plain
    if codec == "gzip":
        return gzip.compress(plain)
    if codec == "snappy":
        return bytes(pa.Codec("snappy").compress(plain, asbytes=True))
    if codec == "xerial":
        half = [
            pa.Codec("snappy").compress(part, asbytes=True) for part in (plain[:20], plain[20:])
        ]
        return (
            b"\x82SNAPPY\x00"
            + bytes(8)
            + b"".join(len(part).to_bytes(4, "big") + part for part in half)
        )
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, codec) as out:
        out.write(plain)
    return bytes(sink.getvalue().to_pybytes())


CODECS = {"none": 0, "gzip": 1, "snappy": 2, "xerial": 2, "lz4": 3, "zstd": 4}


@pytest.mark.parametrize("codec", CODECS)
def test_records_are_measured_in_every_compression(codec: str) -> None:
    plain = b"".join(
        max_records
        for at in range(3)
        for max_records in bombs.record(at, b"eu/b%d" % at, [b"x" * 40], 40)
    )
    found = list(measure_batch(batch_of(packed(codec, plain), CODECS[codec], 3)))
    assert [(one.offset, one.append_ms, one.key, one.last, one.trouble) for one in found] == [
        (100 + at, 7, b"eu/b%d" % at, 100 + at, None) for at in range(3)
    ]


@pytest.mark.parametrize("codec", [codec for codec in CODECS if codec != "none"])
def test_what_is_broken_is_told_of_and_never_raised(codec: str) -> None:
    plain = b"".join(bombs.record(0, b"k", [b"x" * 4_000], 4_000))
    whole = packed(codec, plain)
    for payload in (whole[:-9], b"garbage" * 9, b""):
        (found,) = measure_batch(batch_of(payload, CODECS[codec], 1))
        assert found.trouble is not None and (found.offset, found.last) == (100, 100)


def test_no_more_of_a_bomb_is_decompressed_than_its_beginning(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    payload = bombs.compressed(
        [
            bombs.record(0, b"a", [b"x"], 1),
            bombs.record(1, b"eu/b1", bombs.spaces(64), 64 * bombs.MB),
        ]
    )
    read = 0
    open_stream = pa.CompressedInputStream

    class Counted:
        def __init__(self, *arguments: object) -> None:
            self.stream = open_stream(*arguments)

        def read(self, size: int) -> bytes:
            nonlocal read
            max_records: bytes = self.stream.read(size)
            read += len(max_records)
            return max_records

    monkeypatch.setattr(pa, "CompressedInputStream", Counted)
    good, bomb = measure_batch(batch_of(payload, ZSTD, 2))
    assert (good.offset, good.trouble, bomb.offset, bomb.key, bomb.size > MAX_RECORD_BYTES) == (
        100,
        None,
        101,
        b"eu/b1",
        True,
    )
    assert read <= 1 << 17


class World:
    """A checkpoint of a job that reads two partitions, and what can't be read in Kafka."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self.settings = Settings(
            stream=StreamSettings(checkpoint=str(folder), default_cluster="eu")
        )
        self.unreadable: dict[tuple[str, int], list[RecordSize]] = {}
        monkeypatch.setattr(module, "_find_unreadable", self._look)
        monkeypatch.setattr(
            module, "build_measuring_consumer", lambda _: SimpleNamespace(close=lambda: None)
        )
        monkeypatch.setattr(module, "measure", self._measure)
        self.write("sources/0/0", "\0v1", 10, 0)
        self.write("offsets/0", "v1\n{}", 20, 5)
        (folder / "commits").mkdir()

    def _look(
        self, _: Settings, ranges: Mapping[tuple[str, int], tuple[int, int]]
    ) -> dict[tuple[str, int], list[RecordSize]]:
        found = {
            place: [
                one
                for one in self.unreadable.get(place, ())
                if begin <= one.offset < end + module.AHEAD
            ]
            for place, (begin, end) in ranges.items()
        }
        return {place: some for place, some in found.items() if some}

    def _measure(
        self, _: object, ranges: Mapping[tuple[str, int], tuple[int, int]], __: float
    ) -> list[tuple[tuple[str, int], RecordSize]]:
        return [
            (place, RecordSize(at, 6, 77, at, b"eu/b2"))
            for place, (begin, end) in ranges.items()
            for at in range(begin, end)
        ]

    def write(self, name: str, head: str, *ends: int) -> None:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(
            f"{head}\n"
            + json.dumps({REPORTS: {str(number): end for number, end in enumerate(ends)}})
        )

    def bad(self, partition: int, offset: int, last: int | None = None) -> None:
        one = RecordSize(offset, 5, 10**9, last or offset, b"eu/b1", "at most so many bytes")
        self.unreadable.setdefault((REPORTS, partition), []).append(one)

    def start(self, logged: bool = False) -> ReadPlan:
        return plan_recovery(self.settings, logged)

    def plan(self, batch: int = 0) -> list[tuple[int, int]]:
        """First offset and the one behind the last, of each partition."""
        return [
            bounds
            for _, bounds in sorted(module._planned_ranges(Store.at(self.folder), batch).items())
        ]

    def guard(self, way: ReadPlan = ReadPlan()) -> BatchGuard:  # noqa: B008 (it is frozen)
        return BatchGuard(self.settings, way, RecoveryState.read(Store.at(self.folder)))


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    return World(tmp_path, monkeypatch)


def test_a_batch_ends_before_a_record_that_cannot_be_read_and_the_next_one_begins_behind_it(
    world: World,
) -> None:
    world.bad(0, 14, last=16)
    assert (world.start(), world.plan()) == (ReadPlan(one_at_a_time=True), [(10, 14), (0, 5)])
    (world.folder / "commits/0").write_text("v1\n{}")
    world.write("offsets/1", "v1\n{}", 25, 9)
    with pytest.raises(Replan):
        world.guard().require_readable(1)
    assert (world.start(), world.plan(1)) == (ReadPlan(), [(17, 25), (5, 9)])
    events = world.guard().rejected_events(1, {"eu", "us"})
    ((one,),) = events.values()
    assert (one["kind"], one["partition"], one["offset"], one["append_ms"], one["broker"]) == (
        "rejected",
        0,
        14,
        5,
        "b1",
    )
    check_wording(json.loads(one["payload"])["expected"])
    assert world.guard().rejected_events(1, {"eu", "us"}) == events, "the batch may be run again"
    world.write("offsets/2", "v1\n{}", 26, 9)
    assert world.guard().rejected_events(2, {"eu", "us"}) == {}


def test_where_the_first_batch_begins_is_moved_too_and_a_batch_never_ends_before_it(
    world: World,
) -> None:
    for offset in range(10, 22):
        world.bad(0, offset)
    world.bad(1, 0, last=7)
    (world.folder / "offsets/.0.crc").write_text("of before")
    assert world.start() == ReadPlan(one_at_a_time=True), "one comes soon behind the batch"
    assert world.plan() == [(20, 20), (8, 8)]
    assert not (world.folder / "offsets/.0.crc").exists()


def test_a_batch_that_has_been_logged_stays_as_it_was_planned(world: World) -> None:
    world.bad(0, 14)
    assert (world.start(logged=True), world.plan()) == (
        ReadPlan(one_at_a_time=True),
        [(10, 20), (0, 5)],
    )


def test_a_record_soon_behind_the_batch_is_read_around_with_care(world: World) -> None:
    world.bad(0, 20 + module.AHEAD - 1)
    assert (world.start(), world.plan()) == (ReadPlan(one_at_a_time=True), [(10, 20), (0, 5)])
    guard = world.guard(ReadPlan(one_at_a_time=True))
    guard.require_readable(0)
    with pytest.raises(Replan):
        guard.require_readable(1)


def test_after_one_was_found_batches_are_looked_at_for_a_while(world: World) -> None:
    world.bad(0, 10)
    assert world.start() == ReadPlan()
    world.bad(1, 3)
    with pytest.raises(Replan):
        world.guard().require_readable(0)
    world.write(f"offsets/{GUARDED_BATCHES}", "v1\n{}", 20, 5)
    world.write(f"offsets/{GUARDED_BATCHES + 1}", "v1\n{}", 20, 5)
    world.guard().require_readable(GUARDED_BATCHES + 1)


def test_what_no_known_cluster_can_be_told_of_waits_for_one(world: World) -> None:
    world.bad(0, 10)
    world.start()
    assert world.guard().rejected_events(0, ()) == {}
    world.write("offsets/3", "v1\n{}", 20, 5)
    world.write("offsets/4", "v1\n{}", 20, 5)
    assert world.guard().rejected_events(4, {"us"}) == {}, (
        "that batch has nothing to read, so no round"
    )
    world.write("offsets/5", "v1\n{}", 21, 5)
    assert list(world.guard().rejected_events(5, {"us"})) == ["us"]


@pytest.mark.parametrize("culprit", [10, 13, 19])
def test_a_batch_that_ends_the_job_again_is_read_in_pieces_until_one_record_is_left_to_blame(
    world: World, culprit: int
) -> None:
    batch, starts, lost = 0, 0, []
    while True:
        starts += 1
        way = world.start()
        lost = list(RecoveryState.read(Store.at(world.folder)).records)
        if lost:
            break
        (first, last), (_, end) = world.plan(batch)
        while not first <= culprit < last:  # it ends well, and the next ones too, in pieces
            (world.folder / f"commits/{batch}").write_text("v1\n{}")
            batch += 1
            max_records = way.max_records or 99
            world.write(
                f"offsets/{batch}", "v1\n{}", min(last + max_records, 20), min(end + max_records, 5)
            )
            (first, last), (_, end) = world.plan(batch)
    assert [(one["partition"], one["offset"]) for one in lost] == [(0, culprit)]
    assert starts <= 2 * MAX_CRASHES + 5
    assert "it ended 4 times while it read nothing else" in lost[0]["payload"]
    assert (lost[0]["key"], lost[0]["append_ms"], json.loads(lost[0]["payload"])["value"]) == (
        "eu/b2",
        6,
        "77 bytes",
    )
    assert world.plan(batch)[0] == (culprit + 1, culprit + 1)


def test_when_every_batch_ends_the_job_only_one_record_is_blamed(world: World) -> None:
    world.write("offsets/0", "v1\n{}", 11, 0)
    for _ in range(MAX_CRASHES):
        world.start()
    assert len(RecoveryState.read(Store.at(world.folder)).records) == 1
    world.write("offsets/0", "v1\n{}", 12, 0)
    for _ in range(3 * MAX_CRASHES):
        world.start()
    assert len(RecoveryState.read(Store.at(world.folder)).records) == 1
    assert world.plan() == [(11, 12), (0, 0)]


def test_an_end_that_no_record_is_to_blame_for_does_not_count(world: World) -> None:
    world.write("offsets/0", "v1\n{}", 11, 0)
    for _ in range(3 * MAX_CRASHES):
        assert world.start() == ReadPlan()
        forgive_last_start(world.settings)
    assert RecoveryState.read(Store.at(world.folder)).records == ()


def test_an_interrupted_job_loses_no_record_of_its_batch(world: World) -> None:
    planned = (world.folder / "offsets/0").read_bytes()
    for _ in range(MAX_CRASHES - 1):
        assert (world.start(), world.plan()) == (ReadPlan(), [(10, 20), (0, 5)])
    assert (world.folder / "offsets/0").read_bytes() == planned, "Spark's files stay as they are"
    assert world.start().max_records > 0
    assert RecoveryState.read(Store.at(world.folder)).records == ()


def test_when_what_had_to_be_read_in_pieces_is_read_the_stream_goes_on_as_ever(
    world: World,
) -> None:
    for _ in range(MAX_CRASHES):
        way = world.start()
    (world.folder / "commits/0").write_text("v1\n{}")
    world.write("offsets/0", "v1\n{}", 20, 5)
    world.write("offsets/1", "v1\n{}", 25, 9)
    with pytest.raises(Replan) as error:
        world.guard(way).require_readable(1)
    check_wording(error.value)
    assert RecoveryState.read(Store.at(world.folder)).max_records == 0


def test_a_batch_that_held_few_records_back_is_planned_again_with_equal_shares(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        module, "read_offset_bounds", lambda _: ({}, {(REPORTS, 0): 1_000, (REPORTS, 1): 4})
    )
    world.write("offsets/0", "v1\n{}", 20, 1)
    guard = world.guard()
    guard.fairness.limit = 11
    monkeypatch.setattr(module.Fairness, "describe_violation", lambda *_: "few have waited")
    with pytest.raises(Replan) as error:
        guard.require_readable(0)
    check_wording(error.value)
    assert (world.start(), world.plan()) == (ReadPlan(), [(10, 17), (0, 4)])
    (world.folder / "commits/0").write_text("v1\n{}")
    world.write("offsets/1", "v1\n{}", 27, 5)
    assert (world.start(), world.plan(1)) == (ReadPlan(), [(17, 27), (4, 5)]), "only that one"


def test_a_logged_batch_is_not_planned_again(world: World) -> None:
    RecoveryState(share=11).write(Store.at(world.folder))
    assert (world.start(logged=True), world.plan()) == (ReadPlan(), [(10, 20), (0, 5)])
