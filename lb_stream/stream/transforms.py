"""The named steps of the dataflow, each a function from frame to frame."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict
from hashlib import blake2b

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import from_arrow_schema

from lb_stream.contracts.base import canonical_json
from lb_stream.contracts.columns.rounds import ROUND_SCHEMA
from lb_stream.contracts.settings import Settings
from lb_stream.settings.resolve import resolve
from lb_stream.store import checkpoint_of
from lb_stream.stream.averages import SHARD_DDL, Folding
from lb_stream.stream.context import BatchContext, DecodeConfig
from lb_stream.stream.decide import decide_clusters
from lb_stream.stream.decode import decode
from lb_stream.stream.shard_blocks import BLOCK_DDL
from lb_stream.stream.shards.block_files import BlockWriter, sample_file
from lb_stream.stream.shards.directory import read_directory
from lb_stream.stream.shards.share import Share
from lb_stream.stream.task.current_task import current_task
from lb_stream.stream.task.processor import ShardProcessor

Transform = Callable[[DataFrame], DataFrame]


def to_blocks(settings: Settings, epoch: int) -> Transform:
    """Raw records → validated columnar blocks for each (cluster, shard).

    `epoch`: of the job, which names its files by it.
    """
    stream, commands = settings.stream, settings.topics.commands
    checkpoint, share = checkpoint_of(stream), Share.from_settings(stream)

    def decode_partition(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        batch_id, partition, _ = current_task()
        known = share.select(read_directory(checkpoint, batch_id, epoch))
        samples = BlockWriter(checkpoint, sample_file(batch_id, epoch, partition), durable=False)
        config = DecodeConfig(
            stream.default_cluster,
            commands,
            known,
            stream.shuffle_partitions,
            stream.allowed_clusters,
            partition == 0,
            share,
        )
        yield from decode(batches, config, samples.put)
        samples.close()  # nobody reads them before all of this stage is done

    return lambda records: records.mapInArrow(decode_partition, BLOCK_DDL)


def to_shards(settings: Settings, epoch: int) -> Transform:
    """Blocks → where the whole view of each shard is, averages folded into its state."""
    configs = {
        name: resolve(settings.of_cluster(name)).config.fold for name in (*settings.cluster, "")
    }
    fields = {name: asdict(config) for name, config in configs.items()}
    tag = blake2b(canonical_json(fields).encode(), digest_size=4).hexdigest()
    default = configs.pop("")
    processor = ShardProcessor(
        Folding(configs, default, checkpoint_of(settings.stream), tag, epoch)
    )
    return lambda blocks: blocks.groupBy("cluster", "slot").transformWithState(
        statefulProcessor=processor,
        outputStructType=SHARD_DDL,
        outputMode="Update",
        timeMode="None",
    )


def to_rounds(context: BatchContext) -> Transform:
    """All shards of each cluster → its round."""

    def decide_partition(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        _, partition, attempt = current_task()
        return decide_clusters(batches, context, task=f"{partition}-{attempt}")

    # A partition holds all shards of its clusters: they are decided together, and their figures
    # share a file.
    return lambda shards: shards.repartition(
        context.settings.stream.shuffle_partitions, "cluster"
    ).mapInArrow(decide_partition, from_arrow_schema(ROUND_SCHEMA))
