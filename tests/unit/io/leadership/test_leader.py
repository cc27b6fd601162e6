"""Every start of the job has an epoch of its own, also after starts that have logged nothing."""

from pathlib import Path

from lb_stream.contracts.tables import LEADERS
from lb_stream.io.leadership.leader import announce_leader, is_leader, last_leader
from lb_stream.io.tables.delta import dataset, open_table
from lb_stream.store import Store
from tests.support.table_rows import fill


def test_epochs_grow_with_every_start_whatever_the_log_says(tmp_path: Path) -> None:
    root = Store.at(tmp_path)
    starts = [("p", 0), ("p", 0), ("q", 0), ("p", 7), ("p", 7)]
    assert [announce_leader(root, *start) for start in starts] == [1, 2, 1, 8, 9]
    rows = dataset(open_table(root, LEADERS)).to_table().to_pylist()
    assert sorted((row["pipeline"], row["epoch"]) for row in rows) == [
        ("p", 1),
        ("p", 2),
        ("p", 8),
        ("p", 9),
        ("q", 1),
    ]
    assert all(row["pid"] > 0 and row["host"] and row["since_ms"] > 0 for row in rows)


def test_who_leads_is_told_by_epochs_as_clocks_of_two_machines_differ(tmp_path: Path) -> None:
    fill(
        tmp_path,
        LEADERS,
        [
            {
                "pipeline": "p",
                "epoch": 1,
                "host": "fast.example",
                "pid": 7,
                "since_ms": 9_000_000_000_000,
            }
        ],
    )
    assert announce_leader(Store.at(tmp_path), "p", 1) == 2
    last = last_leader(Store.at(tmp_path))
    assert last is not None and last.epoch == 2 and is_leader(Store.at(tmp_path), "p")
