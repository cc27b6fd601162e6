"""The decoder where records must be signed, and copies of signed records. Without a JVM."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from lb_stream.access.rights import parse_rights
from lb_stream.access.signatures import (
    KEY_HEADER,
    SIGNATURE_HEADER,
    TIME_HEADER,
    Signature,
)
from lb_stream.access.signing_keys import AllowedSigner, Keyring, Signer
from lb_stream.core.averages.copies import drop_copies
from lb_stream.core.averages.fold import fold
from lb_stream.core.model.blocks import Batch, Shard, from_bytes
from lb_stream.core.model.rates import FoldConfig
from lb_stream.stream.decode import MAX_ANSWERED, decode
from lb_stream.stream.shard_blocks import ALL_CLUSTERS
from lb_stream.stream.signed_records import Requirement, SignatureCheck
from tests.support.decoding import (
    BUNDLE,
    KNOWN,
    RECORDS,
    decoded,
    record,
    rejections,
    report,
    rows_of,
)

SIGNED = pa.schema(
    [
        *RECORDS,
        ("key_id", pa.string()),
        ("signed_us", pa.int64()),
        ("signature", pa.binary()),
    ]
)
KEYS = {
    name: Ed25519PrivateKey.from_private_bytes(bytes([number]) * 32)
    for number, name in enumerate(("eu/b1", "eu/b2", "alice", "job:lb-stream"))
}
SIGNERS = {name: Signer(key) for name, key in KEYS.items()}
KEYRING = Keyring(
    tuple(AllowedSigner(name, key.public_key().public_bytes_raw()) for name, key in KEYS.items())
)


def config(commands: Requirement = "signed", reports: Requirement = "signed") -> Any:
    return replace(KNOWN, signatures=SignatureCheck(KEYRING, commands, reports))


def signed(
    signer: str | None,
    key: bytes,
    value: bytes,
    offset: int,
    kind: str | None = None,
    topic: str = "reports",
    late_ms: int = 0,
) -> dict[str, Any]:
    """A record, signed by one of KEYS, and appended as many ms after that."""
    row = record(key, value, offset, kind, topic)
    if signer is None:
        return row
    headers = SIGNERS[signer].sign(topic, key, value, kind or "")
    signature = Signature.from_headers(headers)
    assert signature is not None
    return row | {
        "append_ms": signature.signed_us // 1000 + late_ms,
        "key_id": signature.key_id,
        "signed_us": signature.signed_us,
        "signature": signature.value,
    }


def read(records: list[dict[str, Any]], settings: Any) -> dict[str, list[dict[str, Any]]]:
    """What the decoder makes of records of the cluster eu: reports, samples, events."""
    rows = [
        row
        for batch in decode([pa.RecordBatch.from_pylist(records, SIGNED)], settings)
        for row in batch.to_pylist()
        if row["cluster"] == "eu"
    ]
    (row,) = rows
    return {
        name: from_bytes(row[name]).to_pylist() if row[name] else []
        for name in ("reports", "samples", "events")
    }


def kinds(block: dict[str, list[dict[str, Any]]]) -> list[str]:
    return ["report"] * len(block["reports"]) + [event["kind"] for event in block["events"]]


BROKER_RECORDS = [
    (None, report()),
    ("report", report()),
    ("heartbeat", b'{"sent_ms": 1}'),
    ("goodbye", b'{"sent_ms": 1}'),
    ("ack", b'{"decision_id": "eu:1:0", "outcome": "released"}'),
    (None, b""),
]
AS_READ = {None: ("report", "goodbye"), "report": ("report",)}
"""Header → what its record is to the stream, where that isn't the header."""


@pytest.mark.parametrize(("kind", "value"), BROKER_RECORDS)
def test_a_brokers_record_counts_if_its_own_key_has_signed_it(
    kind: str | None, value: bytes
) -> None:
    block = read([signed("eu/b1", b"eu/b1", value, 0, kind)], config())
    (taken,) = kinds(block)
    assert taken in AS_READ.get(kind, (kind,))
    (row,) = block["reports"] + block["events"]
    assert row["signed_us"] > 0


@pytest.mark.parametrize("signer", [None, "eu/b2", "alice", "job:lb-stream"])
@pytest.mark.parametrize(("kind", "value"), BROKER_RECORDS)
def test_a_forged_record_of_a_broker_is_rejected_and_changes_nothing(
    kind: str | None, value: bytes, signer: str | None
) -> None:
    block = read([signed(signer, b"eu/b1", value, 0, kind)], config())
    assert kinds(block) == ["rejected"] and block["samples"] == []
    ((_, field, _, expected),) = rejections(block)
    assert field == (SIGNATURE_HEADER if signer is None else KEY_HEADER)
    assert signer is None or expected == "a key of eu/b1"


def test_a_record_under_another_brokers_key_is_no_record_of_the_signer() -> None:
    row = signed("eu/b1", b"eu/b1", report(), 0) | {"key": b"eu/b2"}
    ((_, field, *_),) = rejections(read([row], config()))
    assert field == KEY_HEADER


def test_a_report_that_names_its_broker_itself_is_checked_by_that_name() -> None:
    value = report(webServiceUrl="http://b1:8080")
    key = b"eu/"
    assert rejections(read([signed("eu/b2", key, value, 0)], config()))[0][1] == KEY_HEADER


def test_a_record_that_is_sent_again_later_is_rejected_by_its_time() -> None:
    row = signed("eu/b1", b"eu/b1", b'{"sent_ms": 1}', 0, "goodbye", late_ms=300_001)
    assert rejections(read([row], config()))[0][1] == TIME_HEADER


def command(by: str) -> bytes:
    content = {"id": "c1", "kind": "drain-broker", "broker": "b1:8080", "by": by}
    return json.dumps(content).encode()


@pytest.mark.parametrize(
    ("signer", "by", "field"),
    [
        ("alice", "alice", None),
        ("alice", "bob", KEY_HEADER),
        (None, "alice", SIGNATURE_HEADER),
        ("eu/b1", "alice", KEY_HEADER),
        ("eu/b1", "eu/b1", "by"),
        ("job:lb-stream", "job:lb-stream", "by"),
    ],
)
def test_a_command_counts_in_the_name_of_its_signer_alone(
    signer: str | None, by: str, field: str | None
) -> None:
    block = read([signed(signer, b"eu", command(by), 0, topic="commands")], config())
    answered = [json.loads(row["payload"]) for row in block["events"] if row["kind"] == "command"]
    assert [row[1] for row in rejections(block)] == ([] if field is None else [field])
    assert len(answered) == 1 and (answered[0]["rejected"] is None) == (field is None)
    assert answered[0]["key_id"] == (SIGNERS["alice"].key_id if field is None else None)


def test_a_command_that_counts_without_a_right_signature_has_no_key() -> None:
    rows = [
        signed(signer, b"eu", command("alice"), at, topic="commands")
        for at, signer in enumerate((None, "eu/b1", "alice"))
    ]
    block = read(rows, config(commands="warn"))
    taken = [json.loads(row["payload"]) for row in block["events"] if row["kind"] == "command"]
    assert [row["key_id"] for row in taken] == [None, None, SIGNERS["alice"].key_id]


@pytest.mark.parametrize("required", ["signed", "warn", "open"])
def test_a_right_of_a_key_counts_for_what_that_key_has_signed(required: Requirement) -> None:
    grant = f'[[grants]]\nto = ["key:{SIGNERS["alice"].key_id}"]\nrole = "operator"'
    settings = replace(config(commands=required), rights=parse_rights(grant))
    rows = [
        signed(signer, b"eu", command("alice"), at, topic="commands")
        for at, signer in enumerate(("alice", None))
    ]
    block = read(rows, settings)
    answers = [json.loads(row["payload"]) for row in block["events"] if row["kind"] == "command"]
    rules = [(row["rejected"] or {}).get("rule") for row in answers]
    not_signed = "unsigned" if required == "signed" else "not_allowed"
    assert rules == ["not_allowed" if required == "open" else None, not_signed]


def test_with_warn_a_record_counts_and_its_sender_is_listed_once() -> None:
    rows = [signed(None, b"eu/b1", report(), offset) for offset in range(3)]
    rows.append(signed("eu/b1", b"eu/b2", report(), 3))
    block = read(rows, config(reports="warn"))
    assert len(block["reports"]) == 4
    assert [row[0] for row in rejections(block)] == [0, 3]
    assert all("warn" in row[3] for row in rejections(block))


def test_where_signatures_do_not_matter_nothing_of_them_is_read() -> None:
    plain = record(b"eu/b1", report(), 0)
    assert len(decoded([plain], KNOWN)["eu", 0]["reports"]) == 1
    commands_only = read([signed(None, b"eu/b1", report(), 0)], config(reports="open"))
    assert kinds(commands_only) == ["report"]
    assert any(row["cluster"] == ALL_CLUSTERS for row in rows_of([plain], KNOWN))


# --- copies ---


def batch(records: list[dict[str, Any]]) -> Batch:
    (row,) = (
        row
        for part in decode([pa.RecordBatch.from_pylist(records, SIGNED)], config())
        for row in part.to_pylist()
        if row["cluster"] == "eu"
    )
    return Batch(
        *(
            from_bytes(row[name]) if row[name] else getattr(Batch.empty(), name)
            for name in ("reports", "samples", "events")
        )
    )


FOLD = FoldConfig()


def folded(shard: Shard, records: list[dict[str, Any]]) -> tuple[Shard, list[dict[str, Any]]]:
    """The shard after a batch, and the events of its copies."""
    kept, copies = drop_copies(shard.brokers, batch(records))
    after, _ = fold(shard, kept, max(row["append_ms"] for row in records), FOLD)
    return after, copies.to_pylist()


def test_of_unsigned_commands_in_a_batch_a_few_are_answered_and_a_signed_one_counts() -> None:
    value = b'{"id": "x", "kind": "pause-cluster", "by": "alice"}'
    forged = [signed(None, b"eu", value, at, topic="commands") for at in range(MAX_ANSWERED + 5)]
    own = signed("alice", b"eu", value, len(forged), topic="commands")
    events = rows_of_events([*forged, own])
    answered = [json.loads(row["payload"])["rejected"] for row in events["command"]]
    assert [wrong and wrong["rule"] for wrong in answered] == ["unsigned"] * MAX_ANSWERED + [None]
    assert len(events["rejected"]) == len(forged)


def rows_of_events(records: list[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """Kind → the events of a batch."""
    found = dict[str, list[dict[str, Any]]]()
    for row in batch(records).events.to_pylist():
        found.setdefault(row["kind"], []).append(row)
    return found


def test_a_goodbye_that_is_sent_again_after_a_report_does_not_count() -> None:
    first = signed("eu/b1", b"eu/b1", report(), 0)
    goodbye = signed("eu/b1", b"eu/b1", b'{"sent_ms": 1}', 1, "goodbye")
    back = signed("eu/b1", b"eu/b1", report(msgRateIn=5.0), 2)
    shard, copies = folded(Shard.empty(), [first])
    assert copies == []
    shard, copies = folded(shard, [goodbye])
    assert shard.brokers["left"].to_pylist() == [True] and copies == []
    shard, copies = folded(shard, [back, goodbye | {"offset": 3}])
    assert shard.brokers["left"].to_pylist() == [False]
    assert [(copy["kind"], copy["broker"]) for copy in copies] == [("rejected", "b1")]
    shard, copies = folded(shard, [goodbye | {"offset": 4}])
    assert shard.brokers["left"].to_pylist() == [False] and len(copies) == 1


def test_a_heartbeat_that_is_sent_again_hides_no_later_one() -> None:
    """Of a task's heartbeats only the last one is kept: it must be the last that was signed."""
    shard, _ = folded(Shard.empty(), [signed("eu/b1", b"eu/b1", report(), 0)])
    first = signed("eu/b1", b"eu/b1", b'{"sent_ms": 1}', 1, "heartbeat")
    second = signed("eu/b1", b"eu/b1", b'{"sent_ms": 2}', 2, "heartbeat", late_ms=15_000)
    late_ms = first["append_ms"] + 15_010
    shard, copies = folded(shard, [second, first | {"offset": 3, "append_ms": late_ms}])
    assert shard.brokers["seen_ms"].to_pylist() == [second["append_ms"]]
    assert [copy["offset"] for copy in copies] == [3]
    third = signed("eu/b1", b"eu/b1", b'{"sent_ms": 3}', 4, "heartbeat", late_ms=30_000)
    again = third | {"offset": 5, "append_ms": third["append_ms"] + 200_000}
    shard, copies = folded(shard, [third, again])
    assert shard.brokers["seen_ms"].to_pylist() == [third["append_ms"]]
    assert [copy["offset"] for copy in copies] == [5]


def test_a_rejected_part_of_a_report_is_no_copy_of_it() -> None:
    wrong = {"topicShares": {BUNDLE: {"hashes": [1], "shares": [2.0]}}}
    row = signed("eu/b1", b"eu/b1", report(**wrong), 0)
    read_once = batch([row])
    assert len(read_once.reports) == 1
    kept, copies = drop_copies(Shard.empty().brokers, read_once)
    assert len(kept.reports) == 1 and len(copies) == 0
    assert kept.events["kind"].to_pylist() == ["rejected"]


def test_a_report_that_is_sent_again_is_neither_sample_nor_sign_of_life() -> None:
    old = signed("eu/b1", b"eu/b1", report(msgRateIn=1.0), 0)
    new = signed("eu/b1", b"eu/b1", report(msgRateIn=2.0), 1)
    other = signed("eu/b2", b"eu/b2", report(msgRateIn=3.0), 2)
    shard, _ = folded(Shard.empty(), [old, new])
    seen_ms = shard.brokers["seen_ms"].to_pylist()
    later = old["append_ms"] + 60_000
    shard, copies = folded(
        shard, [old | {"offset": 3, "append_ms": later}, other | {"append_ms": later}]
    )
    assert shard.brokers["name"].to_pylist() == ["b1", "b2"]
    assert shard.brokers["seen_ms"].to_pylist()[0] == seen_ms[0]
    assert [copy["broker"] for copy in copies] == ["b1"]
    assert shard.bundles["owner"].to_pylist() == [1], "the sample of b2 is that of its own report"


def test_a_batch_without_signatures_is_not_touched() -> None:
    unsigned = Batch(
        pa.Table.from_pylist([], Batch.empty().reports.schema),
        Batch.empty().samples,
        Batch.empty().events,
    )
    assert drop_copies(Shard.empty().brokers, unsigned)[0] is unsigned
