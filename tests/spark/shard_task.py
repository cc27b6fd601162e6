"""A task of the stateful stage, without Spark: one shard of the cluster `eu` in one batch."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any
from unittest.mock import patch

from pyspark.sql import Row

from lb_stream.contracts.columns.rounds import RoundRow
from lb_stream.core.averages import FoldConfig
from lb_stream.store import Store
from lb_stream.stream import averages
from lb_stream.stream.averages import Folding
from lb_stream.stream.cluster_input import ClusterInput
from lb_stream.stream.context import BatchContext, DecodeConfig
from lb_stream.stream.decide import RecordAllowance, decide_cluster
from lb_stream.stream.figures import FigureFiles
from lb_stream.stream.shard_blocks import ALL_CLUSTERS
from lb_stream.stream.shards.block_files import OpenFiles
from lb_stream.stream.shards.shard_files import read_shard
from lb_stream.stream.views import ClusterViews
from tests.support.decoding import BUNDLE, CONFIG, KNOWN, record, report, rows_of

BATCH = 5


class State:
    """The state of one key, as Spark keeps it."""

    def __init__(self) -> None:
        self.value: tuple[Any, ...] | None = None

    def get(self) -> tuple[Any, ...] | None:
        return self.value

    def update(self, value: tuple[Any, ...]) -> None:
        self.value = value

    def clear(self) -> None:
        self.value = None


def folded(
    checkpoint: Path,
    epoch: int,
    rates: Sequence[float],
    state: State | None = None,
    batch: int = BATCH,
) -> Row:
    """What the task emits in a batch in which broker b1 reports one bundle with these rates, one
    after another."""
    stats = [{BUNDLE: {"msgRateIn": rate, "topics": 3}} for rate in rates]
    records = [
        record(b"eu/b1", report(lastStats=one), 100 * batch + offset)
        for offset, one in enumerate(stats)
    ]
    return emitted(checkpoint, epoch, records, state, batch)


def emitted(
    checkpoint: Path,
    epoch: int,
    records: Sequence[dict[str, Any]],
    state: State | None = None,
    batch: int = BATCH,
    config: DecodeConfig | None = None,
) -> Row:
    """What the task emits in a batch with these records.

    `config`: by itself, the cluster is known once it has a state.
    """
    config = config or (KNOWN if state is not None and state.value is not None else CONFIG)
    folding = Folding({}, FoldConfig(), Store.at(checkpoint), "cafe0123", epoch)
    with patch.object(averages, "current_task", lambda: (batch, 0, 0)):
        folding.begin(state or State())
    rows = [Row(**row) for row in rows_of(list(records), config)]
    keys = {key: iter([row for row in rows if row.cluster == key]) for key in (ALL_CLUSTERS, "eu")}
    (shard,) = (shard for key, own in keys.items() for shard in folding.fold((key, 0), own))
    folding.close()
    return shard


def rates(checkpoint: Path, shard: Row) -> list[float]:
    """The latest rates in the blocks that a task has named."""
    return (
        read_shard(Store.at(checkpoint), (shard.brokers, shard.names, shard.values))
        .bundles["latest_rate_in_msgs_per_s"]
        .to_pylist()
    )


def round_of(rows: Any, context: BatchContext, folder: Path) -> RoundRow:
    """The round of the cluster with these shards."""
    views = ClusterViews(OpenFiles(Store.at(folder)), "lb-load-reports")
    inputs = ClusterInput.from_rows(rows)
    return decide_cluster(
        inputs,
        context,
        FigureFiles(context, "0-0"),
        views,
        RecordAllowance.of_task(context.settings.stream),
    )
