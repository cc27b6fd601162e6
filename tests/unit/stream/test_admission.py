"""What one broker or cluster may cause: storms, large reports, rejected rows, clusters made up."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
from msgspec.structs import replace as replaced

from lb_stream.access.signatures import Signature, SignatureRejected
from lb_stream.contracts.settings import AdmissionSettings
from lb_stream.core.model.memory import Memory
from lb_stream.store import Store
from lb_stream.stream.admission import count_records
from lb_stream.stream.decide import is_confirmed
from lb_stream.stream.decode import RECORD_FIELDS, SIGNATURE_FIELDS, decode
from lb_stream.stream.shards.directory import (
    NEW,
    ListeningTime,
    ShardMap,
    read_directory,
    write_directory,
)
from lb_stream.stream.shards.slicing import (
    ClusterBlocks,
    DueShard,
    due_parts,
    next_shard_map,
    table_part,
)
from lb_stream.stream.signed_records import SignatureCheck
from tests.support.call_counts import calls
from tests.support.command_rounds import view
from tests.support.decoding import KNOWN, RECORDS, decoded, record, rejections, report, rows_of

BEAT = json.dumps({"sent_ms": 1}).encode()
TOP = b'{"topBundlesLoadData": []}'
LOAD = json.dumps({"weightedMaxEMA": 0.5, "bundles": []}).encode()
ACK = json.dumps({"decision_id": "eu:1:0", "outcome": "acquired"}).encode()


def config(**limits: int) -> Any:
    return replace(KNOWN, admission=AdmissionSettings.model_validate(limits))


def records(block: dict[str, Any]) -> dict[str, list[int]]:
    """Offsets of what was taken: reports, and events by their kind."""
    found = {"report": [row["offset"] for row in block["reports"]]}
    for event in block["events"]:
        found.setdefault(event["kind"], []).append(event["offset"])
    return found


def summaries(block: dict[str, Any]) -> list[int]:
    return [
        count_records("", value) for _, field, value, _ in rejections(block) if field == "records"
    ]


def test_of_a_storm_of_reports_the_newest_counts_and_the_others_are_one_row() -> None:
    storm = [record(b"eu/b", report(lastUpdate=at), at) for at in range(50)]
    others = [record(b"eu/c", report(), 60), record(b"eu/d", report(), 61)]
    block = decoded(storm + others, config(records_per_second=10))["eu", 0]
    assert records(block)["report"] == [60, 61, 49]
    assert summaries(block) == [49]
    (shown,) = rejections(block)
    assert shown[1:3] == ("records", "49 more")
    assert "admission.records_per_second" in shown[3]


def test_as_many_as_are_allowed_all_count_and_so_do_those_of_other_seconds() -> None:
    apart = [record(b"eu/b", report(lastUpdate=at), at * 100) for at in range(50)]
    block = decoded(apart, config(records_per_second=10))["eu", 0]
    assert len(block["reports"]) == 50 and not rejections(block)
    assert len(decoded(apart, config(records_per_second=9))["eu", 0]["reports"]) == 5
    assert len(decoded(apart, config(records_per_second=0))["eu", 0]["reports"]) == 50


def test_the_newest_that_can_be_read_counts() -> None:
    storm = [record(b"eu/b", report() if at < 20 else b"{", at) for at in range(25)]
    assert records(decoded(storm, config())["eu", 0])["report"] == [19]


def test_both_records_of_an_extensible_broker_count() -> None:
    storm = [record(b"eu/b", (LOAD, TOP)[at % 2], at) for at in range(40)]
    assert sorted(records(decoded(storm, config())["eu", 0])["report"]) == [38, 39]


def test_reports_whose_key_names_no_broker_are_no_storm() -> None:
    many = [record(b"eu/", report(webServiceUrl=f"http://b{at}:8080"), at) for at in range(40)]
    assert len(decoded(many, config())["eu", 0]["reports"]) == 40


def test_of_answers_as_many_count_as_are_allowed_and_two_for_each_pending_decision() -> None:
    storm = [record(b"eu/b", ACK, at, "ack") for at in range(200)]
    known = {"eu": ShardMap(asked={f"eu:1:{at}": ("b", "x") for at in range(5)})}
    block = decoded(storm, replace(config(records_per_second=3), known=known))["eu", 0]
    assert records(block)["ack"] == list(range(40))
    assert summaries(block) == [160]


def test_a_storm_costs_little_beside_its_records_parsed() -> None:
    storm = [record(b"eu/b", report(lastUpdate=at), at) for at in range(800)]
    few, many = (
        calls(lambda limits=limits: rows_of(storm, config(**limits)))
        for limits in ({}, {"records_per_second": 0})
    )
    assert 10 * few < many


class Keyring:
    """Verifies signatures whose bytes are `good`."""

    def verify(self, signature: Signature | None, *_: object) -> None:
        if signature is None or signature.value != b"good":
            raise SignatureRejected("lb-signature", "?", "a right one")


def test_neither_forged_records_nor_copies_displace_the_newest_of_the_signer() -> None:
    """Forged ones come last, and copies of the first one after the newest."""
    names = (*RECORD_FIELDS, *SIGNATURE_FIELDS)
    signed = [(at, 1_000 + at, b"good") for at in range(15)]
    copies = [(at, 1_000, b"good") for at in range(15, 30)]
    forged = [(at, 9_000 + at, b"bad") for at in range(30, 200)]
    rows = [
        record(b"eu/b", BEAT, at, "heartbeat")
        | {"key_id": "k", "signed_us": signed_us, "signature": value, "append_ms": 5_000}
        for at, signed_us, value in signed + copies + forged
    ]
    schema = pa.schema(
        [*RECORDS, ("key_id", pa.string()), ("signed_us", pa.int64()), ("signature", pa.binary())]
    )
    check = SignatureCheck(Keyring(), "open", "signed")  # type: ignore[arg-type]
    found = decode(
        [pa.RecordBatch.from_pylist(rows, schema).select(names)],
        replace(config(), signatures=check),
    )
    events = [
        event
        for batch in found
        for row in batch.to_pylist()
        if row["events"]
        for event in pa.ipc.open_stream(row["events"]).read_all().to_pylist()
    ]
    assert [event["offset"] for event in events if event["kind"] == "heartbeat"] == [14]


def test_a_report_may_not_name_more_bundles_than_allowed() -> None:
    stats = {f"a/b/0x{at:08x}_0x{at + 1:08x}": {} for at in range(6)}
    raw = [record(b"eu/b", report(lastStats=stats), 0)]
    assert len(decoded(raw, config(report_bundles=6))["eu", 0]["samples"]) == 6
    (shown,) = rejections(decoded(raw, config(report_bundles=5))["eu", 0])
    assert shown[1:3] == ("bundles", "6 bundles")


def test_rejected_records_of_a_cluster_are_listed_up_to_a_number_and_then_counted() -> None:
    raw = [record(f"eu/b{at}".encode(), b"{", at) for at in range(30)]
    block = decoded(raw, config(rejected_rows=5))["eu", 0]
    assert [offset for offset, field, *_ in rejections(block) if field != "records"] == [*range(5)]
    assert summaries(block) == [25]


# --- clusters ---


def made_up(count: int, brokers: int = 1) -> list[dict[str, Any]]:
    keys = [f"x{at:03d}/b{broker}" for at in range(count) for broker in range(brokers)]
    return [record(key.encode(), report(), at) for at, key in enumerate(keys)]


def clusters(raw: list[dict[str, Any]], given: Any) -> list[str]:
    return sorted({name for name, _ in decoded(raw, given)} - {"eu"})


def test_new_clusters_of_one_broker_come_in_up_to_a_number() -> None:
    given = config(unconfirmed_clusters=3)
    assert clusters(made_up(5), given) == ["home", "x000", "x001", "x002"]
    shown = rejections(decoded(made_up(5), given)["home", 0])
    assert [words[2] for words in shown] == ["x003/b0", "x004/b0"]
    assert all("admission.unconfirmed_clusters" in words[3] for words in shown)
    assert len(clusters(made_up(5, brokers=2), given)) == 5


def test_those_that_wait_for_a_second_record_count_and_confirmed_ones_do_not() -> None:
    known = {"eu": ShardMap(), "y1": ShardMap(new_ms=1), "y2": ShardMap(new_ms=1)}
    given = replace(config(unconfirmed_clusters=3), known=known)
    assert [name for name in clusters(made_up(5), given) if name[0] == "x"] == ["x000"]


def test_no_more_clusters_than_allowed_are_known_however_many_brokers_they_have() -> None:
    given = config(clusters=3, unconfirmed_clusters=0)
    assert clusters(made_up(5, brokers=2), given) == ["home", "x000", "x001"]
    known = {f"z{at}": ShardMap() for at in range(7)}
    assert clusters([record(b"z6/b", report(), 0)], replace(given, known=known)) == sorted(known)


def test_the_default_cluster_is_never_refused() -> None:
    given = config(clusters=1)
    assert clusters([record(b"b:8080", report(), 0)], given) == ["home"]


def test_a_second_broker_or_a_later_record_confirms_a_cluster() -> None:
    one, two = view(b=[]), view(b=[], c=[])
    assert is_confirmed(two, Memory())
    assert not is_confirmed(one, Memory())
    seen_ms = int(one.brokers.seen_ms.max())
    assert not is_confirmed(one, Memory(first_ms=seen_ms))
    assert is_confirmed(one, Memory(first_ms=seen_ms - 1))
    assert not is_confirmed(view(), Memory(first_ms=0))


def test_a_new_cluster_is_unconfirmed_until_a_round_says_otherwise() -> None:
    after = ClusterBlocks(1_000, (("b", "n", "v"),), sampled=True, bundles=1)
    new = next_shard_map(NEW, after, 50_000)
    assert new.new_ms == 1_000
    later = ClusterBlocks(2_000, (("c", "n", "v"),), sampled=True, bundles=1)
    assert next_shard_map(new, later, 50_000).new_ms == 1_000
    assert next_shard_map(new, replace(later, confirmed=True), 50_000).new_ms is None
    assert next_shard_map(ShardMap(), later, 50_000).new_ms is None  # it was known before


RESTING = ShardMap(1, (("b", "n", "v"),), new_ms=1, waits=True)


def test_unconfirmed_clusters_that_wait_for_a_record_rest_and_no_others_do() -> None:
    assert RESTING.rests
    assert not replaced(RESTING, new_ms=None).rests
    assert not replaced(RESTING, waits=False).rests
    assert not replaced(RESTING, leaving=True).rests


def test_a_cluster_waits_for_a_record_only_as_long_as_its_last_round_says_so() -> None:
    after = ClusterBlocks(2_000, (("b", "n", "v"),), sampled=False, bundles=1, waits=True)
    assert next_shard_map(RESTING, after, 50_000).waits
    assert not next_shard_map(RESTING, replace(after, waits=False), 50_000).waits
    failed = ClusterBlocks(2_000, (("", "", ""),), sampled=False)
    assert not next_shard_map(RESTING, failed, 50_000).waits


def test_bundles_of_clusters_that_rest_stay_in_the_part_of_others() -> None:
    blocks, part = RESTING.blocks[0], table_part("x", 0, 1)
    other = next(name for name in map(str, range(1_000)) if table_part(name, 0, 1) == part)
    due = due_parts({"x": RESTING}, {other: ClusterBlocks(5, (("b", "n", "v"),), sampled=True)})
    assert due == {part: [DueShard(other, 0, 5, blocks), DueShard("x", 0, 5, blocks)]}


def test_a_job_that_takes_over_has_a_round_of_each_cluster(tmp_path: Path) -> None:
    store = Store.at(tmp_path)
    write_directory(store, 7, 1, {"x": RESTING})
    assert read_directory(store, 7, 1)["x"].rests
    assert not read_directory(store, 7, 2)["x"].rests


def test_what_nothing_confirms_in_time_is_forgotten_once_the_job_has_listened_so_long() -> None:
    maps = {"a": ShardMap(new_ms=0), "b": ShardMap(new_ms=1_500_000), "c": ShardMap()}
    listening = ListeningTime()
    listening.record_batch(1_000, caught_up=True)
    assert not listening.unconfirmed_clusters(maps, 1_800_000, 1_800_000)
    assert listening.unconfirmed_clusters(maps, 1_801_000, 1_800_000) == ["a"]
    assert not listening.unconfirmed_clusters(maps, 1_801_000, 0)
