"""Figures of the clusters of one task: one file, and one cluster's damage is its own."""

import logging
from typing import Any

import numpy as np
import pytest

from lb_stream.contracts.tables import BROKER_LOADS
from lb_stream.stream.figures import _concat_columns


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
