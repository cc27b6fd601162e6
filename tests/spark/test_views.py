"""Views of small clusters share columns, and a damaged cluster fails alone. No JVM needed."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lb_stream.contracts.reports import BundleStats
from lb_stream.contracts.settings import Settings
from lb_stream.core.averages import FoldConfig, cluster_view, fold
from lb_stream.core.model.blocks import Shard, to_bytes
from lb_stream.store import Store
from lb_stream.stream import views
from lb_stream.stream.context import BatchContext
from lb_stream.stream.decide import decide_clusters
from lb_stream.stream.shards.block_files import BlockWriter
from lb_stream.stream.shards.shard_files import names_block
from tests.support.build import Report, batch_of

NAMES = ("c1", "c2", "c3", "eu")
BUNDLES = [f"acme/orders/0x{at:08x}_0x{at + 1:08x}" for at in range(6)]
NOW_MS = 1_000
_SHARDS = pa.schema(
    [
        ("cluster", pa.string()),
        ("shard", pa.int32()),
        *((name, pa.string()) for name in ("clock", "brokers", "names", "values")),
        ("events", pa.binary()),
    ]
)
Damage = Callable[[Shard], Shard]


def shard_of(number: int) -> Shard:
    """Two brokers, one of which has all bundles and is overloaded."""
    stats = {
        name: BundleStats(msg_rate_in=10.0 + number, msg_throughput_in=9e6 + at)
        for at, name in enumerate(BUNDLES[: 3 + number])
    }
    reports = [
        Report("b1", NOW_MS, stats, {"cpu": (97.0, 100.0)}),
        Report("b2", NOW_MS, {}, {"cpu": (1.0, 100.0)}, partition=1),
    ]
    return fold(Shard.empty(), batch_of(reports), NOW_MS, FoldConfig())[0]


def emitted(folder: Path, damage: Damage | None = None) -> list[dict[str, Any]]:
    """What the stateful stage emits for the clusters; that of "c2" is damaged."""
    writer = BlockWriter(Store.at(folder), "all.arrow")
    clock = json.dumps(
        [
            {"topic": "lb-load-reports", "partition": at, "first": 0, "last": 0, "append_ms": ms}
            for at, ms in enumerate((NOW_MS, NOW_MS - 1))
        ]
    )
    rows = []
    for number, name in enumerate(NAMES):
        shard = shard_of(number)
        if name == "c2" and damage is not None:
            shard = damage(shard)
        rows.append(
            {
                "cluster": name,
                "shard": 0,
                "clock": clock,
                "brokers": writer.put(shard.brokers),
                "names": writer.put(names_block(shard.bundles["name"])),
                "values": writer.put(shard.bundles.drop_columns("name")),
                "events": to_bytes(batch_of([]).events),
            }
        )
    writer.close()
    return rows


def rounds(folder: Path, rows: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """The rounds of these clusters in one task, without the files of figures."""
    settings = Settings.model_validate(
        {
            "stream": {"tables": str(folder / "tables"), "checkpoint": str(folder)},
            "balancer": {"dry_run": False, "min_throughput_mb": 0.0},
            "cluster": {"c3": {"cpu_weight": 0.5}},
        }
    )
    context = BatchContext(settings, "test-0", log_seq=0, epoch=1, caught_up=True, memories={})
    table = pa.Table.from_pylist(rows, _SHARDS)
    made = pa.Table.from_batches(decide_clusters(table.to_batches(), context, "0-0"))
    return {row["cluster"]: row | {"files": ""} for row in made.to_pylist()}


def in_one_task_and_alone(
    folder: Path, rows: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> tuple[dict[str, dict[str, Any]], dict[str, dict[str, Any]], list[str]]:
    """The rounds of all clusters in one task, of each in a task of its own.

    Also the clusters whose views were made one by one in the one task.
    """
    alone: dict[str, dict[str, Any]] = {}
    for row in rows:
        alone |= rounds(folder, [row])
    one_by_one: list[str] = []

    def noted(cluster: str, *given: Any) -> Any:
        one_by_one.append(cluster)
        return cluster_view.view_of(cluster, *given)

    monkeypatch.setattr(views, "view_of", noted)
    return rounds(folder, rows), alone, one_by_one


def test_rounds_of_joined_views_are_what_each_is_by_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    together, alone, one_by_one = in_one_task_and_alone(tmp_path, emitted(tmp_path), monkeypatch)
    assert (together, one_by_one) == (alone, [])
    assert all(row["error"] is None and row["decisions"] != "[]" for row in together.values())


def other_owner(shard: Shard) -> Shard:
    """A bundle belongs to the broker of another cluster, as it were."""
    owners = [2, *shard.bundles["owner"].to_pylist()[1:]]
    return Shard(shard.brokers, shard.bundles.set_column(1, "owner", pa.array(owners, pa.int32())))


def no_value(shard: Shard) -> Shard:
    """A broker's number of topics is null."""
    at = shard.brokers.schema.get_field_index("topics")
    field = shard.brokers.schema.field(at)
    return Shard(
        shard.brokers.set_column(at, field, pa.array([None, 0], field.type)), shard.bundles
    )


@pytest.mark.parametrize("damage", [other_owner, no_value])
def test_a_damaged_cluster_does_not_change_what_the_others_decide(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damage: Damage
) -> None:
    rows = emitted(tmp_path, damage)
    together, alone, one_by_one = in_one_task_and_alone(tmp_path, rows, monkeypatch)
    assert without_trace(together) == without_trace(alone)
    assert one_by_one == [*NAMES]
    assert [name for name in NAMES if together[name]["error"] is None] != []


def test_a_cluster_whose_block_is_gone_or_has_other_columns_is_not_joined(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fewer(shard: Shard) -> Shard:
        return Shard(shard.brokers, shard.bundles.drop_columns("place"))

    rows = emitted(tmp_path, fewer)
    rows[0]["values"] = "gone.arrow:0:8"
    together, alone, one_by_one = in_one_task_and_alone(tmp_path, rows, monkeypatch)
    assert without_trace(together) == without_trace(alone)
    assert ("gone.arrow" in str(together["c1"]["error"]), one_by_one) == (True, ["c2"])
    assert [together[name]["error"] for name in NAMES[1:]] == [None] * 3


def without_trace(made: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """The rounds with only the last lines of their errors: the calls before them may differ."""
    return {
        name: row | {"error": row["error"] and str(row["error"]).splitlines()[-1]}
        for name, row in made.items()
    }
