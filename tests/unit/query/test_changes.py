"""What changed in a cluster: brokers that were silent or died, starts and ends of the job."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from lb_stream.contracts.tables import BATCHES, BROKER_LOADS, LEADERS, REFUSALS
from lb_stream.query.lake import open_lake
from lb_stream.query.screens.changes import list_changes
from lb_stream.store import Store
from tests.support.table_rows import NOW, fill, load

MINUTE_MS = 60_000


def list_texts(folder: Path, has_stopped: bool = False) -> list[tuple[str, str]]:
    """Return what changed in the last ten minutes, and its text up to the first colon."""
    with open_lake(Store.at(folder)) as lake:
        rows = list_changes(lake, "eu", NOW - 10 * MINUTE_MS, NOW, has_stopped)
    return [(row["what"], row["text"].partition(":")[0]) for row in rows]


def seen(broker: str, minute: int, silent_ms: int, alive: bool, active: bool) -> dict[str, Any]:
    now_ms = NOW - (10 - minute) * MINUTE_MS
    times = {"now_ms": now_ms, "seen_ms": now_ms - silent_ms, "seq": minute, "log_seq": minute}
    return load("eu", minute, broker, 1.0) | times | {"alive": alive, "active": active}


def test_brokers_that_were_silent_died_or_were_drained_are_told_apart(tmp_path: Path) -> None:
    rows = [
        *(seen("b-1", at, 0, True, True) for at in range(9)),
        *(seen("b-2", at, 8_000 * (at in (2, 3)), True, at not in (2, 3)) for at in range(9)),
        *(seen("b-3", at, 9_000 * (at > 4), at < 6, at < 5) for at in range(9)),
        *(seen("b-4", at, 500, True, at < 4) for at in range(9)),  # drained
    ]
    fill(tmp_path, BROKER_LOADS, rows)
    assert list_texts(tmp_path) == [
        ("broker", "b-3 counts as dead"),
        ("broker", "b-3 went silent"),
        ("broker", "b-2 is heard again"),
        ("broker", "b-2 went silent"),
    ]


def test_brokers_that_went_silent_together_are_one_change_while_that_lasts(tmp_path: Path) -> None:
    of = {"cluster": "eu", "subjects": ["b-1", "b-2"], "count": 5, "unit": "ms", "broker": None}
    rows = [
        of | {"rule": rule, "seq": at, "log_seq": at, "now_ms": NOW - (9 - at) * MINUTE_MS}
        for rule, times in (("mass_disappearance", (1, 2, 4)), ("most_topics", (3,)))
        for at in times
    ]
    fill(tmp_path, REFUSALS, rows)
    with open_lake(Store.at(tmp_path)) as lake:
        (row,) = list_changes(lake, "eu", NOW - 10 * MINUTE_MS, NOW)
    assert row["at_ms"] == NOW - 8 * MINUTE_MS
    assert row["text"].partition(": ")[2].startswith("b-1, b-2 and 3 more;")
    kinds = [(reference.kind, reference.name) for reference in row["references"]]
    assert kinds == [("broker", "b-1"), ("broker", "b-2"), ("round", "1")]


def test_a_job_that_stopped_stands_at_the_time_of_its_last_batch(tmp_path: Path) -> None:
    starts = {1: NOW - 60 * MINUTE_MS, 2: NOW - 4 * MINUTE_MS}
    leaders = [
        {"pipeline": "p", "epoch": epoch, "host": f"host-{epoch}", "pid": 1, "since_ms": since_ms}
        for epoch, since_ms in starts.items()
    ]
    fill(tmp_path, LEADERS, leaders)
    batches = [(1, 30), (1, 9), (1, 7), (2, 4), (2, 2)]
    fill(
        tmp_path,
        BATCHES,
        [{"epoch": epoch, "started_ms": NOW - ago * MINUTE_MS} for epoch, ago in batches],
    )
    known = [
        ("job", "a job began to lead on host-2 (epoch 2)"),
        ("job", "the job on host-1 stopped (epoch 1)"),
    ]
    assert list_texts(tmp_path) == known
    assert list_texts(tmp_path, has_stopped=True) == [
        ("job", "the job on host-2 stopped (epoch 2)"),
        *known,
    ]
