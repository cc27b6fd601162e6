"""Deltas in the decoder: with their bases they lead to what full reports lead to."""

import os
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lb_stream.contracts.columnar import (
    FIGURES,
    digest_of,
    write_columns,
    write_delta,
    write_roster,
)
from lb_stream.contracts.settings import AdmissionSettings
from lb_stream.store import Store
from lb_stream.stream.cluster_input import ClusterInput, ReadProgress
from lb_stream.stream.columns import reading, record_files
from lb_stream.stream.columns.bases import BASES, FOLDER, SUPERSEDED_MS, delete_old_bases
from lb_stream.stream.columns.reading import ColumnarReader
from lb_stream.stream.columns.rosters import ROSTERS
from lb_stream.stream.report_names import NamesCache
from tests.support.columnar import as_columns, bundle, modular, stats
from tests.support.decoding import KNOWN, decoded, record, rejections

KEY = b"eu/b1"
NAMES = [bundle(at) for at in range(4)]
OWN = {"loadReportType": "LocalBrokerData", "lastUpdate": 5}
ROSTER = as_columns(modular({name: stats(at) for at, name in enumerate(NAMES)}))[0]
ROSTER_DIGEST = digest_of(ROSTER)


def columns(rates: list[float]) -> dict[str, Any]:
    return {name: [1] * len(rates) for name in FIGURES} | {"msgRateIn": rates}


def full(rates: list[float], is_base: bool = True, update: int = 5) -> bytes:
    own = OWN | {"lastUpdate": update}
    return write_columns(own, ROSTER_DIGEST, columns(rates), is_base=is_base)


BASE = full([1.0, 2.0, 3.0, 4.0])


def delta(
    rows: list[int],
    rates: list[float],
    update: int = 6,
    base: str = digest_of(BASE),
    roster: str = ROSTER_DIGEST,
) -> bytes:
    own = OWN | {"lastUpdate": update}
    return write_delta(own, roster, base, rows, columns(rates))


def whole(*deltas: bytes) -> list[dict[str, Any]]:
    """Return the records of a roster, a base, and deltas, at offsets from 0."""
    return [
        record(KEY, ROSTER, 0, "roster"),
        record(KEY, BASE, 1, "columns"),
        *[record(KEY, value, at + 2, "delta") for at, value in enumerate(deltas)],
    ]


def rates_of(block: dict[str, Any]) -> list[list[float]]:
    """Return the rates of each report."""
    return [
        [
            sample["latest_rate_in_msgs_per_s"]
            for sample in block["samples"]
            if sample["report"] == at
        ]
        for at in range(len(block["reports"]))
    ]


def test_each_delta_is_of_its_base_and_not_of_the_delta_before() -> None:
    given = whole(delta([0, 3], [7.0, 8.0]), delta([], []), delta([1], [9.0], 7))
    block = decoded(given, KNOWN)["eu", 0]
    assert not rejections(block)
    assert rates_of(block) == [
        [1.0, 2.0, 3.0, 4.0],
        [7.0, 2.0, 3.0, 8.0],
        [1.0, 2.0, 3.0, 4.0],
        [1.0, 9.0, 3.0, 4.0],
    ]
    assert [row["offset"] for row in block["reports"]] == [1, 2, 3, 4]


def test_a_report_has_the_same_digest_in_whatever_form_it_was_sent() -> None:
    rates = [1.0, 7.5, 3.0, 4.0]
    other_base = full([0.0, 7.5, 3.0, 4.0])
    given = [
        *whole(delta([1], [7.5])),
        record(KEY, full(rates, False, 6), 3, "columns"),
        record(KEY, full(rates, True, 6), 4, "columns"),
        record(KEY, other_base, 5, "columns"),
        record(KEY, delta([0], [1.0], base=digest_of(other_base)), 6, "delta"),
        record(KEY, delta([0, 1], [1.0, 7.5]), 7, "delta"),
    ]
    found = {row["offset"]: row["digest"] for row in decoded(given, KNOWN)["eu", 0]["reports"]}
    assert len({found[at] for at in (2, 3, 4, 6, 7)}) == 1
    assert len({found[at] for at in (1, 2, 5)}) == 3


def test_any_difference_gives_another_digest() -> None:
    """The sign of a zero, figures that change places, and a bundle that isn't measured."""
    swapped = columns([2.0, 1.0, 3.0, 4.0])
    unmeasured = [True, True, True, False]
    given = [
        full([1.0, 2.0, 3.0, 0.0]),
        full([1.0, 2.0, 3.0, -0.0]),
        full([2.0, 1.0, 3.0, 0.0]),
        full([1.0, 2.0, 3.0, 0.0], update=6),
        write_columns(OWN, ROSTER_DIGEST, columns([1.0, 2.0, 3.0, 0.0]), unmeasured),
        write_columns(OWN, ROSTER_DIGEST, swapped | {"topics": [1, 1, 1, 2]}),
    ]
    records = [record(KEY, value, at + 1, "columns") for at, value in enumerate(given)]
    reports = decoded([record(KEY, ROSTER, 0, "roster"), *records], KNOWN)["eu", 0]["reports"]
    assert len({row["digest"] for row in reports}) == len(given) == len(reports)


MOVED = write_roster([NAMES[0], NAMES[2], bundle(7)])


def moved(rows: list[int], rates: list[float], offset: int, update: int = 6) -> Any:
    value = delta(rows, rates, update, roster=digest_of(MOVED))
    return record(KEY, value, offset, "delta")


def test_a_delta_behind_a_few_moves_has_a_roster_of_its_own_and_the_same_base() -> None:
    given = [
        *whole(),
        record(KEY, MOVED, 2, "roster"),
        moved([2], [9.0], 3),
        moved([0, 2], [8.0, 9.0], 4),
        moved([2], [9.0], 5),
        record(KEY, delta([3], [7.0]), 6, "delta"),
        record(
            KEY,
            write_columns(OWN | {"lastUpdate": 6}, digest_of(MOVED), columns([1.0, 3.0, 9.0])),
            7,
            "columns",
        ),
        moved([1, 2], [4.0, 9.0], 8),
    ]
    block = decoded(given, KNOWN)["eu", 0]
    assert not rejections(block)
    assert rates_of(block) == [
        [1.0, 2.0, 3.0, 4.0],
        [1.0, 3.0, 9.0],
        [8.0, 3.0, 9.0],
        [1.0, 3.0, 9.0],
        [1.0, 2.0, 3.0, 7.0],
        [1.0, 3.0, 9.0],
        [1.0, 4.0, 9.0],
    ]
    names = [sample["name"] for sample in block["samples"] if sample["report"] == 1]
    assert names == [NAMES[0], NAMES[2], bundle(7)]
    digests = {row["offset"]: row["digest"] for row in block["reports"]}
    assert len({digests[at] for at in (3, 5, 7)}) == 1
    assert len({digests[at] for at in (1, 3, 4, 6)}) == 4


def test_a_delta_with_a_roster_that_is_too_long_is_rejected_before_it_is_composed() -> None:
    many = write_roster([bundle(at) for at in range(20)])
    given = [
        *whole(),
        record(KEY, many, 2, "roster"),
        record(KEY, delta([], [], roster=digest_of(many)), 3, "delta"),
    ]
    config = replace(KNOWN, admission=AdmissionSettings(report_bundles=10))
    assert [row[1] for row in rejections(decoded(given, config)["eu", 0])] == ["bundles"]


def test_a_delta_that_lacks_a_bundle_of_its_roster_is_rejected_and_a_full_report_asked_for() -> (
    None
):
    given = [*whole(), record(KEY, MOVED, 2, "roster"), moved([0], [9.0], 3)]
    block = decoded(given, KNOWN)["eu", 0]
    ((offset, field, _, expected),) = rejections(block)
    assert (offset, field) == (3, "row") and expected.startswith(bundle(7))
    asked = ClusterInput("eu", ReadProgress([], 0, {}), block["events"], (), [], False)
    assert asked.missing_rosters() == ("b1",)


@pytest.mark.parametrize("lost", ["own roster", "base", "roster of the base"])
def test_files_of_both_rosters_and_the_base_are_needed(tmp_path: Path, lost: str) -> None:
    store = Store.at(tmp_path)
    given = [*whole(), record(KEY, MOVED, 2, "roster")]
    decoded(given, replace(KNOWN, columnar=ColumnarReader(store, 5)))

    def read(batch_id: int) -> list[Any]:
        BASES.cache.clear()
        ROSTERS.cache.clear()
        later = replace(KNOWN, columnar=ColumnarReader(store, batch_id))
        return rejections(decoded([moved([2], [9.0], 7)], later)["eu", 0])

    assert not read(6)
    digest = digest_of(MOVED if lost == "own roster" else BASE if lost == "base" else ROSTER)
    (file,) = tmp_path.glob(f"lb-*/*-{digest}")
    file.unlink()
    ((_, field, value, _),) = read(7)
    assert (field, value) == ("base" if lost == "base" else "roster", digest)


@pytest.mark.parametrize(
    ("value", "field", "shown"),
    [
        (delta([1], [9.0], base="f" * 32), "base", "f" * 32),
        (delta([1], [9.0], base="no digest"), "base", "no digest"),
        (delta([2, 1], [9.0, 9.0]), "row", "1"),
        (delta([1, 1], [9.0, 9.0]), "row", "1"),
        (delta([-1], [9.0]), "row", "-1"),
        (delta([4], [9.0]), "row", "4"),
        (delta([1], [9.0], roster="e" * 32), "roster", "e" * 32),
    ],
    ids=["unknown base", "no digest", "unsorted", "twice", "negative", "too large", "roster"],
)
def test_a_delta_that_cannot_be_of_its_base_is_rejected_and_a_full_report_asked_for(
    value: bytes, field: str, shown: str
) -> None:
    block = decoded(whole(value), KNOWN)["eu", 0]
    ((offset, name, found, expected),) = rejections(block)
    assert (offset, name, found) == (2, field, shown) and expected
    assert [row["offset"] for row in block["reports"]] == [1]
    asked = ClusterInput("eu", ReadProgress([], 0, {}), block["events"], (), [], False)
    assert asked.missing_rosters() == ("b1",)


@pytest.mark.parametrize("value", [delta([1], [-1.0]), delta([1], [9.0])[:-40], b"", BASE])
def test_other_wrong_deltas_are_rejected_and_nothing_is_asked_for(value: bytes) -> None:
    block = decoded(whole(value), KNOWN)["eu", 0]
    assert len(rejections(block)) == 1 and len(block["reports"]) == 1
    asked = ClusterInput("eu", ReadProgress([], 0, {}), block["events"], (), [], False)
    assert asked.missing_rosters() == ()


@pytest.mark.parametrize(
    "order", ["none", "later", "of another broker", "in another partition", "no base", "rejected"]
)
def test_a_delta_without_a_base_before_it_is_rejected(order: str) -> None:
    base, place = BASE, record(KEY, BASE, 1, "columns")
    if order == "no base":
        base = full([1.0, 2.0, 3.0, 4.0], is_base=False)
        place = record(KEY, base, 1, "columns")
    if order == "rejected":
        base = write_columns({"cpu": 1}, ROSTER_DIGEST, columns([1.0] * 4), is_base=True)
        place = record(KEY, base, 1, "columns")
    given = [
        record(KEY, ROSTER, 0, "roster"),
        record(KEY, delta([1], [9.0], base=digest_of(base)), 5, "delta"),
    ]
    if order == "later":
        place = record(KEY, BASE, 6, "columns")
    if order == "of another broker":
        given.append(record(b"eu/b2", ROSTER, 0, "roster"))
        place = record(b"eu/b2", BASE, 1, "columns")
    if order == "in another partition":
        given.append(record(KEY, ROSTER, 0, "roster", partition=1))
        place = record(KEY, BASE, 1, "columns", partition=1)
    if order != "none":
        given.append(place)
    block = decoded(given, KNOWN)["eu", 0]
    rejected = {offset: field for offset, field, _, _ in rejections(block)}
    assert rejected.pop(5) == "base"
    assert set(rejected) == ({1} if order == "rejected" else set())


def test_of_a_storm_of_bases_the_newest_is_kept_for_the_deltas_behind_it() -> None:
    config = replace(KNOWN, admission=AdmissionSettings(records_per_second=3))
    last = full([1.0] * 4, update=19)
    given = [record(KEY, ROSTER, 0, "roster")]
    given += [record(KEY, full([1.0] * 4, update=at), at, "columns") for at in range(10, 20)]
    given += [record(KEY, delta([2], [9.0], 20, digest_of(last)), 20, "delta")]
    block = decoded(given, config)["eu", 0]
    assert [row["offset"] for row in block["reports"]] == [19, 20]
    assert rates_of(block)[1] == [1.0, 1.0, 9.0, 1.0]


def test_of_a_storm_of_deltas_the_newest_counts_and_its_base_counts_and_is_kept(
    tmp_path: Path,
) -> None:
    store = Store.at(tmp_path)
    admission = AdmissionSettings(records_per_second=3)
    config = replace(KNOWN, admission=admission, columnar=ColumnarReader(store, 5))
    block = decoded(whole(*[delta([1], [float(at)], at) for at in range(8)]), config)["eu", 0]
    assert [row["offset"] for row in block["reports"]] == [1, 9]
    assert rates_of(block)[1] == [1.0, 7.0, 3.0, 4.0]
    later = replace(KNOWN, columnar=ColumnarReader(store, 6))
    block = decoded([record(KEY, delta([], []), 10, "delta")], later)["eu", 0]
    assert rates_of(block) == [[1.0, 2.0, 3.0, 4.0]]


# Bases in files.


def files(folder: Path) -> list[Path]:
    return sorted((folder / FOLDER).glob("*"))


def test_a_later_batch_and_another_process_find_the_base_in_a_file(tmp_path: Path) -> None:
    store = Store.at(tmp_path)
    decoded(whole(), replace(KNOWN, columnar=ColumnarReader(store, 5)))
    assert len(files(tmp_path)) == 1
    BASES.cache.clear()
    later = replace(KNOWN, columnar=ColumnarReader(store, 6))
    block = decoded([record(KEY, delta([1], [9.0]), 7, "delta")], later)["eu", 0]
    assert rates_of(block) == [[1.0, 9.0, 3.0, 4.0]] and not rejections(block)


def test_no_file_waits_for_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a power cut takes away is asked for."""
    synced: list[int] = []
    monkeypatch.setattr(os, "fsync", synced.append)
    decoded(whole(), replace(KNOWN, columnar=ColumnarReader(Store.at(tmp_path), 5)))
    assert len(files(tmp_path)) == 1 and not synced


def test_a_batch_that_runs_again_rejects_what_it_rejected_although_the_base_is_there(
    tmp_path: Path,
) -> None:
    """Another task of the same batch has read the base."""
    store = Store.at(tmp_path)
    roster = [record(KEY, ROSTER, 0, "roster")]
    decoded(roster, replace(KNOWN, columnar=ColumnarReader(store, 4)))
    found = []
    for _ in range(2):
        task = replace(KNOWN, columnar=ColumnarReader(store, 5))
        block = decoded([record(KEY, delta([1], [9.0]), 7, "delta")], task)["eu", 0]
        found.append(rejections(block))
        other = replace(KNOWN, columnar=ColumnarReader(store, 5))
        decoded([record(KEY, BASE, 1, "columns")], other)
    assert found[0] == found[1] and [field for _, field, _, _ in found[0]] == ["base"]


def test_a_batch_that_runs_again_takes_deltas_of_the_base_that_its_first_run_replaced(
    tmp_path: Path,
) -> None:
    store = Store.at(tmp_path)
    decoded(whole(), replace(KNOWN, columnar=ColumnarReader(store, 5)))
    given = [
        record(KEY, delta([1], [9.0]), 7, "delta"),
        record(KEY, full([5.0] * 4), 8, "columns"),
    ]
    for _ in range(2):
        BASES.cache.clear()
        task = replace(KNOWN, columnar=ColumnarReader(store, 6))
        assert not rejections(decoded(given, task)["eu", 0])
        delete_old_bases(store, max(entry.changed_ms for entry in store.list(FOLDER)))


def test_a_damaged_file_of_a_base_counts_as_none(tmp_path: Path) -> None:
    store = Store.at(tmp_path)
    decoded(whole(), replace(KNOWN, columnar=ColumnarReader(store, 5)))
    (file,) = files(tmp_path)
    content = file.read_bytes()
    for damaged in (b"", content[:-1], bytes(len(content)), content[:4]):
        file.write_bytes(damaged)
        BASES.cache.clear()
        later = replace(KNOWN, columnar=ColumnarReader(store, 6))
        block = decoded([record(KEY, delta([1], [9.0]), 7, "delta")], later)["eu", 0]
        assert [field for _, field, _, _ in rejections(block)] == ["base"]


def test_a_base_goes_some_time_after_the_next_one_and_the_last_one_after_a_day(
    tmp_path: Path,
) -> None:
    store = Store.at(tmp_path)
    for batch_id, value in enumerate([BASE, full([5.0] * 4), full([6.0] * 4)]):
        task = replace(KNOWN, columnar=ColumnarReader(store, batch_id))
        others = [record(b"eu/b2", ROSTER, 1, "roster"), record(b"eu/b2", BASE, 2, "columns")]
        decoded([*whole(), record(KEY, value, 9, "columns"), *others], task)
    assert len(files(tmp_path)) == 4
    written_ms = [entry.changed_ms for entry in store.list(FOLDER)]
    assert delete_old_bases(store, min(written_ms) + SUPERSEDED_MS) == 0
    assert delete_old_bases(store, max(written_ms) + SUPERSEDED_MS + 1) == 2
    assert len(files(tmp_path)) == 2
    assert delete_old_bases(store, min(written_ms) + record_files.RETENTION_MS) == 0
    assert delete_old_bases(store, max(written_ms) + record_files.RETENTION_MS + 1) == 2


def test_a_base_that_is_old_stays_for_a_while_once_the_next_one_has_come(tmp_path: Path) -> None:
    store = Store.at(tmp_path)
    roster = record(KEY, ROSTER, 0, "roster")
    task = replace(KNOWN, columnar=ColumnarReader(store, 5))
    decoded([roster, record(KEY, BASE, 1, "columns")], task)
    (old,) = files(tmp_path)
    hour_ago_s = time.time() - 3_600
    os.utime(old, (hour_ago_s, hour_ago_s))
    task = replace(KNOWN, columnar=ColumnarReader(store, 6))
    decoded([roster, record(KEY, full([5.0] * 4), 2, "columns")], task)
    next_ms = max(entry.changed_ms for entry in store.list(FOLDER))
    assert delete_old_bases(store, next_ms + SUPERSEDED_MS) == 0
    assert delete_old_bases(store, next_ms + SUPERSEDED_MS + 1) == 1
    assert not old.exists() and len(files(tmp_path)) == 1


def test_more_bases_than_a_batch_may_have_are_reports_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    second = full([5.0] * 4)
    monkeypatch.setattr(record_files, "MAX_NEW_BYTES", len(BASE) + len(second) - 1)
    given = [
        *whole(),
        record(KEY, second, 3, "columns"),
        record(KEY, delta([1], [9.0]), 4, "delta"),
        record(KEY, delta([1], [9.0], base=digest_of(second)), 5, "delta"),
    ]
    block = decoded(given, KNOWN)["eu", 0]
    assert [row["offset"] for row in block["reports"]] == [1, 3, 4]
    assert [(offset, field) for offset, field, _, _ in rejections(block)] == [(5, "base")]


def test_a_process_forgets_the_bases_that_it_used_longest_ago_and_reads_them_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store.at(tmp_path)
    monkeypatch.setattr(reading, "BASES", replace(BASES, cache=NamesCache(5)))
    brokers = [f"eu/b{at}".encode() for at in range(3)]
    given = [
        entry
        for at, key in enumerate(brokers)
        for entry in (
            record(key, ROSTER, 2 * at, "roster"),
            record(key, BASE, 2 * at + 1, "columns"),
        )
    ]
    decoded(given, replace(KNOWN, columnar=ColumnarReader(store, 5)))
    assert reading.BASES.cache._names == 4
    later = replace(KNOWN, columnar=ColumnarReader(store, 6))
    deltas = [record(key, delta([1], [9.0]), at + 9, "delta") for at, key in enumerate(brokers)]
    block = decoded(deltas, later)["eu", 0]
    assert rates_of(block) == [[1.0, 9.0, 3.0, 4.0]] * 3


def test_a_report_with_too_many_bundles_is_no_base(tmp_path: Path) -> None:
    reader = ColumnarReader(Store.at(tmp_path))
    config = replace(KNOWN, columnar=reader, admission=AdmissionSettings(report_bundles=3))
    assert [row[1] for row in rejections(decoded(whole(), config)["eu", 0])] == ["bundles"]
    assert not (tmp_path / FOLDER).exists()
