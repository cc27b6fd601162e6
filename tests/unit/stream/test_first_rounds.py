"""Ownership records of clusters that are new together: one batch publishes only some of them."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from lb_stream.core.ownership import ledger
from lb_stream.io.tables.replay import RoundFilter, replay
from lb_stream.stream import decide
from lb_stream.stream.decide import RecordAllowance
from tests.bench.stages import Stages
from tests.bench.stream.fleet import Fleet, Shape
from tests.support.hot_broker import BUNDLES
from tests.support.round_stage import Stage


def test_clusters_share_what_a_batch_publishes_until_all_have_all_records(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ledger, "MAX_PUBLISHED", 4)
    monkeypatch.setattr(decide, "MAX_PUBLISHED", 4)
    fleet = Fleet(Shape(clusters=3, brokers=2, bundles=4), seed=1, prefix="c")
    stages = Stages(
        tmp_path / "job",
        balancer={"dry_run": False, "shedding_enabled": False},
        stream={"max_first_records": 6, "shuffle_partitions": 1},
    )
    published: Counter[tuple[str, str]] = Counter()
    of_batches = []
    for _ in range(6):
        stages.run([(key, value, None) for key, value in fleet.generation()])
        records = [json.loads(entries) for entries in stages.rounds["ownership"].to_pylist()]
        of_batches.append([len(own) for own in records])
        published.update((record["cluster"], record["bundle"]) for own in records for record in own)
    assert of_batches == [[4, 2, 1], [4, 2, 1], [0, 4, 2], [0, 0, 4], [0, 0, 0], [0, 0, 0]]
    assert len(published) == 3 * 8 and set(published.values()) == {1}


def test_a_round_that_may_add_one_record_is_replayed_bit_for_bit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = Stage(tmp_path, shadows={})
    with monkeypatch.context() as patched:
        patched.setattr(RecordAllowance, "of_task", lambda _stream: RecordAllowance(1))
        row = stage.run()
    assert json.loads(row["inputs"])["max_published"] == 1
    published = [record["bundle"] for record in json.loads(row["ownership"])]
    assert published[0] == BUNDLES[0] and len(published) < len(BUNDLES)
    assert "max_published" not in json.loads(stage.run()["inputs"])
    results = [round_.result for round_ in replay(stage.settings.stream, RoundFilter())[1]]
    assert results == ["equal", "equal"]
