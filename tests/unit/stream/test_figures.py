"""Figures of the clusters of one task: one file, and one cluster's damage is its own."""

import logging
from typing import Any

import numpy as np
import pytest

from lb_stream.contracts.tables import BROKER_LOADS
from lb_stream.core.averages import FoldConfig, fold
from lb_stream.core.model.blocks import Shard
from lb_stream.stream.figures import _averages, _concat_columns
from lb_stream.stream.shards.slicing import DueShard
from tests.support.build import Report, batch_of


def columns(cluster: str, **changed: Any) -> dict[str, Any]:
    """Of one broker, as a round gives them."""
    rates = {
        field.name: np.zeros(1) for field in BROKER_LOADS.schema if str(field.type) == "double"
    }
    numbers = {
        field.name: np.ones(1, np.int64)
        for field in BROKER_LOADS.schema
        if str(field.type).startswith("int")
    }
    flags = {
        field.name: np.ones(1, np.bool_)
        for field in BROKER_LOADS.schema
        if str(field.type) == "bool"
    }
    return {"cluster": [cluster], "broker": ["b"]} | flags | rates | numbers | changed


def test_columns_of_all_clusters_become_one_table() -> None:
    assert _concat_columns(BROKER_LOADS, [columns("a"), columns("b")])["cluster"].to_pylist() == [
        "a",
        "b",
    ]


def test_a_cluster_with_a_damaged_column_is_left_out_and_named(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.WARNING):
        made = _concat_columns(
            BROKER_LOADS, [columns("a"), columns("b", topics=np.array([np.nan])), columns("c")]
        )
    assert made["cluster"].to_pylist() == ["a", "c"] and made.schema == BROKER_LOADS.schema
    assert [
        text
        for text in caplog.messages
        if "broker_loads lacks the brokers of the cluster b: " in text
    ]


def test_bundles_with_shares_of_topics_have_them_in_their_row() -> None:
    first, second, third = (f"t/n/0x{at}0000000_0x{at + 1}0000000" for at in range(3))
    shares = {first: {5: 1.0}, third: {0x2000_0007: 0.25, 0x2000_0009: 0.75}}
    report = Report("a", 1, dict.fromkeys((first, second, third)), topic_shares=shares)
    shard, _ = fold(Shard.empty(), batch_of([report]), 1, FoldConfig())
    other, _ = fold(Shard.empty(), batch_of([Report("a", 1, {first: None})]), 1, FoldConfig())
    due = [
        (DueShard(name, 0, 7, ("", "", "")), each) for name, each in (("c", shard), ("d", other))
    ]
    rows = _averages(due).to_pylist()
    topics = [
        {name: row[name] for name in ("topic_hashes", "topic_shares", "hottest_topic_ratio")}
        for row in rows
    ]
    none = dict.fromkeys(topics[0])
    assert topics == [
        {"topic_hashes": [5], "topic_shares": [1.0], "hottest_topic_ratio": 1.0},
        none,
        {
            "topic_hashes": [0x2000_0007, 0x2000_0009],
            "topic_shares": [0.25, 0.75],
            "hottest_topic_ratio": 0.75,
        },
        none,
    ]
