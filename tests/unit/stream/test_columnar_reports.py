"""Columnar reports in the decoder: what they lead to is what their JSON leads to."""

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lb_stream.contracts.columnar import FIGURES, digest_of, write_columns, write_roster
from lb_stream.contracts.settings import AdmissionSettings, Settings
from lb_stream.core.averages import FoldConfig, fold
from lb_stream.core.model.blocks import Batch, Shard, from_bytes
from lb_stream.store import Store
from lb_stream.stream.cluster_input import ClusterInput, ReadProgress
from lb_stream.stream.columns import record_files
from lb_stream.stream.columns.reading import ColumnarReader
from lb_stream.stream.columns.rosters import FOLDER, ROSTERS, delete_old_rosters
from lb_stream.stream.context import BatchContext
from lb_stream.stream.shards.directory import ShardMap
from tests.support.columnar import as_columns, batches, bundle, modular, sent, stats
from tests.support.decoding import KNOWN, decoded, record, rejections, rows_of


def as_json(report: Mapping[str, Any]) -> bytes:
    """Return a report as an agent sends it, with its keys sorted."""
    return json.dumps(report, sort_keys=True).encode()


REPORTS = {
    "b1": modular({bundle(at): stats(at) for at in range(7)}, numBundles=7),
    "b2": modular(
        {bundle(at): stats(at) for at in (9, 11)},
        bundles=[bundle(at) for at in (8, 9, 10, 11)],
        lastBundleGains=[bundle(8)],
        topicShares={bundle(9): [[5, 0.25], [7, 0.75]], bundle(10): [[9, 1.0]]},
    ),
    "b3": modular({}),
}


@pytest.mark.parametrize("shards", [1, 4])
def test_columns_become_the_same_tables_as_json(shards: int) -> None:
    config = replace(KNOWN, known={"eu": ShardMap(shards=shards)})
    rows = [
        [record(f"eu/{name}".encode(), as_json(REPORTS[name]), 2 * at + 1)]
        for at, name in enumerate(REPORTS)
    ]
    plain = batches([entry for some in rows for entry in some], config)
    columns = [sent(name, REPORTS[name], 2 * at + 1) for at, name in enumerate(REPORTS)]
    columnar = batches([entry for some in columns for entry in some], config)
    mixed = batches([*rows[0], *columns[1], *rows[2]], config)
    assert sum(len(batch.samples) for batch in plain) == 11
    for one, two, three in zip(plain, columnar, mixed, strict=True):
        assert one.reports.equals(two.reports) and one.reports.equals(three.reports)
        assert one.samples.equals(two.samples) and one.samples.equals(three.samples)
        for name in one.samples.column_names:
            assert one.samples[name].to_pylist() == two.samples[name].to_pylist(), name


def test_columns_lead_to_the_same_shard_as_json_over_several_batches() -> None:
    shards = []
    for make in (
        lambda name, report, at: [record(f"eu/{name}".encode(), as_json(report), at)],
        sent,
    ):
        shard = Shard.empty()
        for turn in range(3):
            reports = {name: report | {"lastUpdate": 10 * turn} for name, report in REPORTS.items()}
            if turn == 2:  # a bundle goes from one broker to the other
                reports["b1"] = modular(
                    {bundle(at): stats(at + 1) for at in range(6)}, lastUpdate=21
                )
                reports["b3"] = modular({bundle(6): stats(6)}, lastUpdate=21)
            given = [
                entry
                for at, (name, report) in enumerate(reports.items())
                for entry in make(name, report, 100 * turn + 2 * at + 1)
            ]
            (row,) = [row for row in rows_of(given, KNOWN) if row["cluster"] == "eu"]
            batch = Batch(
                from_bytes(row["reports"]), from_bytes(row["samples"]), Shard.empty().brokers
            )
            batch = replace(
                batch, events=from_bytes(row["events"]) if row["events"] else no_events()
            )
            shard, refused = fold(shard, batch, 1_000 * turn, FoldConfig())
            assert not len(refused)
        shards.append(shard)
    plain, columnar = shards
    assert plain.bundles.equals(columnar.bundles)
    assert len(plain.bundles) == 11
    digests = ["digest"]
    assert plain.brokers.drop_columns(digests).equals(columnar.brokers.drop_columns(digests))


def no_events() -> pa.Table:
    return Batch.empty().events


def test_a_report_may_use_a_roster_again_and_the_roster_alone_is_no_report() -> None:
    roster, columns = as_columns(REPORTS["b1"])
    later = as_columns(REPORTS["b1"] | {"lastUpdate": 6})[1]
    given = [
        record(b"eu/b1", roster, 0, "roster"),
        record(b"eu/b1", columns, 1, "columns"),
        record(b"eu/b1", later, 2, "columns"),
    ]
    block = decoded(given, KNOWN)["eu", 0]
    assert [row["offset"] for row in block["reports"]] == [1, 2]
    assert len(block["samples"]) == 14 and not block["events"]
    assert not decoded(given[:1], KNOWN)["eu", 0]["reports"]


@pytest.mark.parametrize("order", ["none", "later", "of another broker", "in another partition"])
def test_a_report_without_a_roster_before_it_is_rejected(order: str) -> None:
    roster, columns = as_columns(REPORTS["b1"])
    given = [record(b"eu/b1", columns, 5, "columns")]
    if order == "later":
        given.append(record(b"eu/b1", roster, 6, "roster"))
    if order == "of another broker":
        given.insert(0, record(b"eu/b2", roster, 4, "roster"))
    if order == "in another partition":
        given.insert(0, record(b"eu/b1", roster, 4, "roster", partition=1))
    block = decoded(given, KNOWN)["eu", 0]
    ((offset, field, value, _),) = rejections(block)
    assert (offset, field, value) == (5, "roster", digest_of(roster))
    assert not block["reports"] and not block["samples"]


def test_brokers_whose_rosters_are_missing_are_named_once_and_others_are_not() -> None:
    columns = {name: as_columns(REPORTS["b1"])[1] for name in ("b1", "b2")}
    wrong = write_columns({}, "no digest", {name: [] for name in FIGURES})
    given = [
        record(b"eu/b2", columns["b2"], 1, "columns"),
        record(b"eu/b1", columns["b1"], 2, "columns"),
        record(b"eu/b2", columns["b2"], 3, "columns"),
        record(b"eu/b3", wrong, 4, "columns"),
        *sent("b4", REPORTS["b1"], 6),
    ]
    events = decoded(given, KNOWN)["eu", 0]["events"]
    assert len([event for event in events if event["kind"] == "rejected"]) == 4
    clock = ReadProgress([], 0, {})
    found = ClusterInput("eu", clock, events, (), [], False)
    assert found.missing_rosters() == ("b1", "b2")
    context = BatchContext(Settings(), "", 0, 1, True, {}, awaited={"eu": ("b0", "b1")})
    assert found.awaited(context) == ("b0", "b1", "b2")
    assert found.awaited(replace(context, awaited={})) == ("b1", "b2")
    assert found.awaited(replace(context, awaited={"eu": None})) == (), "its wait is over"


def test_rows_that_are_not_as_many_as_names_are_rejected() -> None:
    roster = write_roster([bundle(1), bundle(2)])
    columns = write_columns({}, digest_of(roster), {name: [1] for name in FIGURES})
    given = [
        record(b"eu/b", roster, 0, "roster"),
        record(b"eu/b", columns, 1, "columns"),
    ]
    ((offset, field, value, _),) = rejections(decoded(given, KNOWN)["eu", 0])
    assert (offset, field, value) == (1, "columns", "1 rows")


@pytest.mark.parametrize(
    "name",
    ["acme/orders", "acme/orders/0x80000000_0x00000000", "a" * 1_000 + "/n/0x00000000_0x80000000"],
)
def test_a_roster_with_a_malformed_name_is_rejected(name: str) -> None:
    given = [record(b"eu/b", write_roster([bundle(1), name]), 0, "roster")]
    ((_, field, value, _),) = rejections(decoded(given, KNOWN)["eu", 0])
    assert (field, value) == ("name", name[:200])


@pytest.mark.parametrize(
    ("own", "field"),
    [
        ({"lastStats": {bundle(1): {}}}, "lastStats"),
        ({"bundles": [bundle(1)]}, "bundles"),
        ({"cpu": {"usage": "much"}}, "cpu.usage"),
        ({"loadReportType": "LoadReport"}, "loadReportType"),
        ({"weightedMaxEMA": 0.5}, "loadReportType"),
    ],
)
def test_wrong_fields_of_the_broker_are_rejected_as_those_of_json(
    own: dict[str, Any], field: str
) -> None:
    roster = write_roster([bundle(1)])
    own = {"loadReportType": "LocalBrokerData"} | own
    columns = write_columns(own, digest_of(roster), {name: [1] for name in FIGURES})
    given = [record(b"eu/b", roster, 0, "roster"), record(b"eu/b", columns, 1, "columns")]
    block = decoded(given, KNOWN)["eu", 0]
    assert [(offset, name) for offset, name, _, _ in rejections(block)] == [(1, field)]
    assert not block["reports"]


def test_shares_of_topics_of_a_bundle_that_the_roster_lacks_are_rejected_alone() -> None:
    report = modular({bundle(1): stats(1)}, topicShares={bundle(2): [[5, 1.0]]})
    block = decoded(sent("b", report, 1), KNOWN)["eu", 0]
    assert len(block["reports"]) == 1 and len(rejections(block)) == 1


def test_a_roster_is_limited_as_the_bundles_of_a_report() -> None:
    config = replace(KNOWN, admission=AdmissionSettings(report_bundles=6))
    block = decoded(sent("b1", REPORTS["b1"], 1), config)["eu", 0]
    ((_, field, value, _),) = rejections(block)
    assert (field, value) == ("bundles", "7 bundles")


def test_of_a_storm_of_rosters_the_newest_count_and_are_read_before_reports() -> None:
    config = replace(KNOWN, admission=AdmissionSettings(records_per_second=3))
    rows = []
    for at in range(8):
        rows += sent("b", modular({bundle(at): stats(at)}, lastUpdate=at), 2 * at + 1)
    block = decoded(rows, config)["eu", 0]
    assert [row["offset"] for row in block["reports"]] == [15]
    assert [row["name"] for row in block["samples"]] == [bundle(7)]


# Rosters in files.


def files(folder: Path) -> list[str]:
    return sorted(path.name for path in (folder / FOLDER).glob("*"))


def test_a_later_batch_and_another_process_find_the_roster_in_a_file(tmp_path: Path) -> None:
    store = Store.at(tmp_path)
    roster, columns = as_columns(REPORTS["b1"])
    first = replace(KNOWN, columnar=ColumnarReader(store, 5))
    decoded([record(b"eu/b1", roster, 0, "roster")], first)
    assert len(files(tmp_path)) == 1
    forget_cached_rosters()
    later = replace(KNOWN, columnar=ColumnarReader(store, 6))
    block = decoded([record(b"eu/b1", columns, 9, "columns")], later)["eu", 0]
    assert len(block["samples"]) == 7 and not rejections(block)


def test_a_batch_that_runs_again_rejects_what_it_rejected_although_the_file_is_there(
    tmp_path: Path,
) -> None:
    """Another task of the same batch has read the roster, earlier or later than this one."""
    store = Store.at(tmp_path)
    roster, columns = as_columns(REPORTS["b1"])
    report = [record(b"eu/b1", columns, 9, "columns")]
    found = []
    for _ in range(2):
        task = replace(KNOWN, columnar=ColumnarReader(store, 5))
        found.append(rejections(decoded(report, task)["eu", 0]))
        other = replace(KNOWN, columnar=ColumnarReader(store, 5))
        decoded([record(b"eu/b1", roster, 0, "roster")], other)
    assert found[0] == found[1] and len(found[0]) == 1


def test_a_damaged_file_counts_as_none(tmp_path: Path) -> None:
    store = Store.at(tmp_path)
    roster, columns = as_columns(REPORTS["b1"])
    decoded(
        [record(b"eu/b1", roster, 0, "roster")], replace(KNOWN, columnar=ColumnarReader(store, 5))
    )
    (name,) = files(tmp_path)
    whole = (tmp_path / FOLDER / name).read_bytes()
    for damaged in (b"", whole[:-1], bytes(len(whole)), whole[:4]):
        (tmp_path / FOLDER / name).write_bytes(damaged)
        forget_cached_rosters()
        later = replace(KNOWN, columnar=ColumnarReader(store, 6))
        block = decoded([record(b"eu/b1", columns, 9, "columns")], later)["eu", 0]
        assert [field for _, field, _, _ in rejections(block)] == ["roster"]


def test_old_files_go_and_those_that_are_sent_again_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store.at(tmp_path)
    for name in ("b1", "b2"):
        roster, _ = as_columns(REPORTS[name])
        key = f"eu/{name}".encode()
        decoded(
            [record(key, roster, 0, "roster")], replace(KNOWN, columnar=ColumnarReader(store, 5))
        )
    ages = {entry.name: entry.changed_ms for entry in store.list(FOLDER)}
    assert delete_old_rosters(store, min(ages.values()) + record_files.RETENTION_MS) == 0
    monkeypatch.setattr(record_files, "REFRESH_MS", -1)
    decoded([record(key, roster, 9, "roster")], replace(KNOWN, columnar=ColumnarReader(store, 6)))
    (renewed,) = [entry for entry in store.list(FOLDER) if entry.changed_ms > ages[entry.name]] or [
        None
    ]
    assert renewed is not None
    assert delete_old_rosters(store, max(ages.values()) + record_files.RETENTION_MS + 1) >= 1
    assert renewed.name in files(tmp_path)


def test_new_rosters_of_a_batch_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record_files, "MAX_NEW_BYTES", 1_500)
    given = [
        record(f"eu/b{at}".encode(), write_roster([bundle(at)]), at, "roster") for at in range(5)
    ]
    shown = rejections(decoded(given, KNOWN)["eu", 0])
    assert {field for _, field, _, _ in shown} == {"value"}
    assert 0 < len(shown) < 5


def forget_cached_rosters() -> None:
    """Have this process keep no roster, as a new one."""
    ROSTERS.cache.clear()
