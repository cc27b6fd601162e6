"""The deciding stage without Spark around it."""

import json
from pathlib import Path
from typing import Any

import pytest

from lb_stream.contracts.reports import BundleStats
from lb_stream.contracts.settings import Settings, StreamSettings
from lb_stream.core.averages import FoldConfig, fold
from lb_stream.core.model.blocks import Shard, to_bytes
from lb_stream.core.model.memory import Memory, Pending
from lb_stream.store import Store
from lb_stream.stream import decide
from lb_stream.stream.context import BatchContext
from lb_stream.stream.shards.block_files import BlockWriter
from lb_stream.stream.shards.shard_files import names_block
from tests.spark.shard_task import round_of
from tests.support.build import Event, Report, batch_of

BUNDLE = "t/n/0x00000000_0xffffffff"


def test_a_cluster_that_fails_again_and_again_is_left_alone_for_a_while(tmp_path: Path) -> None:
    stream = StreamSettings(
        tables=str(tmp_path / "tables"),
        checkpoint=str(tmp_path),
        suspend_after_errors=3,
        suspension_ms=10_000,
    )
    settings = Settings(
        stream=stream,
        balancer={"shedding_strategy": "ThresholdShedder", "threshold_percent": "absurd"},
    )
    memories: dict[str, str] = {}
    seen = []
    for now_ms in (1_000, 2_000, 3_000, 4_000, 12_999, 13_000, 14_000):
        clock = json.dumps(
            [{"topic": "reports", "partition": 0, "first": 0, "last": 0, "append_ms": now_ms}]
        )
        given = {
            "cluster": "eu",
            "shard": 0,
            "clock": clock,
            "brokers": "",
            "names": "",
            "values": "",
            "events": None,
        }
        context = BatchContext(
            settings, "test-0", log_seq=0, epoch=1, caught_up=True, memories=memories
        )
        row = round_of([given], context, tmp_path)
        memories["eu"] = row.memory
        seen.append((row.error is not None, "suspended" in (row.error or ""), row.idle))
    failed, last, alone = (True, False, False), (True, True, False), (False, False, True)
    assert seen == [failed, failed, last, alone, alone, last, alone]


def endless(*_: object) -> None:
    """A round that never ends."""
    while True:
        pass


def one_broker(folder: Path, *events: Event) -> list[dict[str, Any]]:
    """The shard of a cluster of one broker and one bundle, as the stateful stage emits it."""
    batch = batch_of([Report("b1", 1_000, {BUNDLE: BundleStats(topics=3)})], events)
    shard, _ = fold(Shard.empty(), batch, 1_000, FoldConfig())
    writer = BlockWriter(Store.at(folder), "eu.arrow")
    references = [
        writer.put(part)
        for part in (
            shard.brokers,
            names_block(shard.bundles["name"]),
            shard.bundles.drop_columns("name"),
        )
    ]
    writer.close()
    clock = json.dumps(
        [{"topic": "lb-load-reports", "partition": 0, "first": 0, "last": 0, "append_ms": 1_000}]
    )
    given = dict(zip(("brokers", "names", "values"), references, strict=True))
    return [{"cluster": "eu", "shard": 0, "clock": clock, "events": to_bytes(batch.events)} | given]


def test_an_acknowledgement_that_counts_is_logged_among_the_rounds_inputs(tmp_path: Path) -> None:
    asked = Pending(
        "eu:1:0", "unload", BUNDLE, "b1", "b2", issued_ms=500, expires_ms=60_000, version=2
    )
    refused = Event(
        "ack",
        "b1",
        1_000,
        payload=json.dumps({"decision_id": "eu:1:0", "outcome": "refused", "reason": "busy"}),
    )
    settings = Settings(
        stream=StreamSettings(tables=str(tmp_path / "tables"), checkpoint=str(tmp_path))
    )
    memories = {"eu": Memory(seq=1, first_ms=500, pending=(asked,)).to_json()}
    context = BatchContext(
        settings, "test-0", log_seq=1, epoch=1, caught_up=True, memories=memories
    )
    row = round_of(one_broker(tmp_path, refused), context, tmp_path)
    assert [
        (outcome["decision_id"], outcome["outcome"]) for outcome in json.loads(row.outcomes)
    ] == [("eu:1:0", "refused")], row.error
    assert [(ack["decision_id"], ack["reason"]) for ack in json.loads(row.inputs)["acks"]] == [
        ("eu:1:0", "busy")
    ]


def test_a_round_that_never_ends_fails_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = one_broker(tmp_path)
    settings = Settings(
        stream=StreamSettings(
            tables=str(tmp_path / "tables"), checkpoint=str(tmp_path), round_timeout_ms=50
        )
    )
    context = BatchContext(settings, "test-0", log_seq=0, epoch=1, caught_up=True, memories={})
    good = round_of(rows, context, tmp_path)
    assert (good.error, json.loads(good.inputs)["times"]) == (None, {"0": 1_000})
    monkeypatch.setattr(decide, "decide", endless)
    failed = round_of(rows, context, tmp_path)
    assert "it took longer than 0.05 s (stream.round_timeout_ms)" in (failed.error or "")
    assert (failed.decisions, json.loads(failed.memory)["errors"]) == ("[]", 1)


def test_a_round_that_succeeds_forgets_the_failures_before_it(tmp_path: Path) -> None:
    rows = one_broker(tmp_path)
    settings = Settings(stream=StreamSettings(tables=str(tmp_path), checkpoint=str(tmp_path)))
    failed = Memory(errors=2, retry_ms=900).to_json()
    context = BatchContext(
        settings, "test-0", log_seq=0, epoch=1, caught_up=True, memories={"eu": failed}
    )
    row = round_of(rows, context, tmp_path)
    after = Memory.from_json(row.memory)
    assert (row.error, after.errors, after.retry_ms, row.idle) == (None, 0, 0, False)
