"""The stages of the dataflow, each a function from data frame to data frame."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict
from hashlib import blake2b

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import from_arrow_schema

from lb_stream.access.rights import Rights, parse_rights
from lb_stream.contracts.base import canonical_json
from lb_stream.contracts.columns.rounds import ROUND_SCHEMA
from lb_stream.contracts.settings import SecuritySettings, Settings
from lb_stream.settings.resolve import resolve
from lb_stream.store import Store, checkpoint_of
from lb_stream.stream.averages import SHARD_DDL, Folding
from lb_stream.stream.columns.reading import ColumnarReader
from lb_stream.stream.context import BatchContext, DecodeConfig
from lb_stream.stream.decide import decide_clusters
from lb_stream.stream.decode import decode
from lb_stream.stream.shard_blocks import BLOCK_DDL
from lb_stream.stream.shards.block_files import BlockWriter, sample_file
from lb_stream.stream.shards.directory import read_access_file, read_directory
from lb_stream.stream.shards.share import Share
from lb_stream.stream.signed_records import SignatureCheck
from lb_stream.stream.task.current_task import current_task
from lb_stream.stream.task.processor import ShardProcessor

Transform = Callable[[DataFrame], DataFrame]


def to_blocks(settings: Settings, epoch: int) -> Transform:
    """Return the stage that decodes raw records into blocks, a row for each (cluster, shard).

    `epoch`: the job's, which is part of the names of its files.
    """
    stream = settings.stream
    # Executors check signatures, and need no private key.
    security = settings.security.model_copy(update={"private_key": "", "passphrase": ""})
    commands_topic = settings.topics.commands
    checkpoint, admission = checkpoint_of(stream), settings.admission
    share = Share.from_settings(stream)

    def decode_partition(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        task = current_task()
        name = sample_file(task.batch_id, epoch, task.partition)
        samples = BlockWriter(checkpoint, name, durable=False)
        config = DecodeConfig(
            stream.default_cluster,
            commands_topic,
            known=share.select(read_directory(checkpoint, task.batch_id, epoch)),
            partitions=stream.shuffle_partitions,
            allowed=stream.allowed_clusters,
            first=task.partition == 0,
            share=share,
            signatures=_check_signatures(security, checkpoint, task.batch_id),
            rights=_find_rights(security, checkpoint, task.batch_id),
            admission=admission,
            columnar=ColumnarReader(checkpoint, task.batch_id),
        )
        yield from decode(batches, config, samples.put)
        # Samples are read only after all tasks of this stage.
        samples.close()

    return lambda records: records.mapInArrow(decode_partition, BLOCK_DDL)


def _check_signatures(
    security: SecuritySettings, checkpoint: Store, batch_id: int
) -> SignatureCheck | None:
    """Return the check of a batch's signatures; None: they do not matter."""
    if not security.checks_records:
        return None
    # The library takes 40 ms to import, in every worker.
    from lb_stream.access.signing_keys import Keyring, parse_signers

    signers = parse_signers(read_access_file(checkpoint, batch_id, "signers"))
    keyring = Keyring(tuple(signers), security.window_ms)
    return SignatureCheck(keyring, security.commands, security.reports)


def _find_rights(security: SecuritySettings, checkpoint: Store, batch_id: int) -> Rights | None:
    """Return who may send which commands of a batch; None: everyone may send all."""
    if not security.rights:
        return None
    return parse_rights(read_access_file(checkpoint, batch_id, "rights"), security.rights)


def to_shards(settings: Settings, epoch: int) -> Transform:
    """Return the stage that folds blocks into averages, and emits references to the new blocks."""
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
    """Return the stage that makes each cluster's round from all its shards."""

    def decide_partition(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        task = current_task()
        return decide_clusters(batches, context, task=f"{task.partition}-{task.attempt}")

    # A partition holds all shards of its clusters. They are decided together, and their figures
    # share a file.
    return lambda shards: shards.repartition(
        context.settings.stream.shuffle_partitions, "cluster"
    ).mapInArrow(decide_partition, from_arrow_schema(ROUND_SCHEMA))
