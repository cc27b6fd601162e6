"""Acknowledgements that name bundles, from the record to who owns the bundle: only who was asked is
believed. No JVM needed."""

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from lb_stream.store import Store
from lb_stream.stream.shards.directory import ShardMap
from lb_stream.stream.shards.shard_files import read_shard
from tests.spark.shard_task import State, emitted
from tests.support.decoding import BUNDLE, CONFIG, record, report

ID = "eu:1:0"


def owner_after(
    folder: Path, broker: str, outcome: str, asked: Mapping[str, tuple[str, str]]
) -> str | None:
    """Who owns b1's bundle once this broker has said what it did with it.

    `asked`: of each decision who was asked, and for what.
    """
    state = State()
    emitted(
        folder,
        1,
        [record(b"eu/b1", report(), 1), record(b"eu/b2", report(lastStats={}), 2)],
        state,
        batch=4,
    )
    ack = {"decision_id": ID, "outcome": outcome, "bundle": BUNDLE}
    config = replace(CONFIG, known={"eu": ShardMap(1, asked=asked)})
    row = emitted(
        folder,
        1,
        [record(f"eu/{broker}".encode(), json.dumps(ack).encode(), 3, kind="ack")],
        state,
        batch=5,
        config=config,
    )
    shard = read_shard(Store.at(folder), (row.brokers, row.names, row.values))
    owner = shard.bundles["owner"].to_pylist()[0]
    return None if owner < 0 else str(shard.brokers["name"].to_pylist()[owner])


@pytest.mark.parametrize(
    ("asked", "owner"),
    [
        ({ID: ("b2", BUNDLE)}, "b2"),
        ({}, "b1"),
        ({ID: ("b1", BUNDLE)}, "b1"),
        ({ID: ("b2", "acme/orders/0x80000000_0xffffffff")}, "b1"),
        ({"eu:2:0": ("b2", BUNDLE)}, "b1"),
    ],
)
def test_a_bundle_is_taken_by_who_was_asked_to_and_by_nobody_else(
    tmp_path: Path, asked: dict[str, tuple[str, str]], owner: str
) -> None:
    assert owner_after(tmp_path, "b2", "acquired", asked) == owner


def test_a_bundle_is_let_go_by_its_owner_only_when_that_was_asked(tmp_path: Path) -> None:
    assert owner_after(tmp_path / "asked", "b1", "released", {ID: ("b1", BUNDLE)}) is None
    assert owner_after(tmp_path / "not", "b1", "released", {}) == "b1"
