"""What the log says of a cluster that is forgotten."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest

from lb_stream.contracts.columns.rounds import RoundRow
from lb_stream.stream.batch import is_to_be_forgotten
from lb_stream.stream.decide import _forget

ADVISED = '{"mergeable": {"t/n/a": ["t/n/b", 1, 1]}}'


@pytest.mark.parametrize(("memory", "withdrawn"), [("{broken", 0), ("{}", 0), (ADVISED, 1)])
def test_a_cluster_is_forgotten_with_its_records_and_advice_and_also_when_its_memory_cannot_be_read(
    memory: str, withdrawn: int
) -> None:
    context: Any = SimpleNamespace(
        ownership_versions={"eu": {"t/n/a": 3}}, epoch=2, memories={"eu": memory}, log_seq=4
    )
    row = RoundRow(cluster="eu", epoch=2, now_ms=1_000, memory=memory, inputs="")
    _forget(row, (), context)
    assert (row.memory, row.seq) == ("", 5) and row.ownership.count('"state":"Init"') == 1
    assert row.merge_advice.count("t/n/a") == withdrawn


DONE = {"kind": "forget-cluster", "outcome": "done", "repeated": False}


@pytest.mark.parametrize(
    ("answers", "forgets"),
    [
        ([DONE], True),
        ([{"kind": "unload", "outcome": "done", "repeated": False}, DONE], True),
        ([DONE | {"outcome": "refused"}], False),
        (
            [DONE | {"repeated": True}],
            False,
        ),  # it was done before: what is there now has begun since
        ([DONE | {"kind": "pause-cluster"}], False),
        ([], False),
    ],
)
def test_a_cluster_is_forgotten_by_a_command_that_was_done(
    answers: list[dict[str, Any]], forgets: bool
) -> None:
    assert is_to_be_forgotten(json.dumps(answers)) is forgets
    assert not is_to_be_forgotten(None)
