"""What an earlier version of the job has left (tests/data/old_state): its tables and checkpoint, and the topics that it read and wrote.

Text on the topics is kept as it was, byte for byte, with the offsets and times that Kafka gave it: both are part of the job's input.
"""

import gzip
import json
import tarfile
from collections.abc import Iterable
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import ConfigResource, ConfigResourceType
from kafka.structs import OffsetAndMetadata

from lb_stream.contracts.base import canonical_json
from lb_stream.io.kafka.topics import topic_specs
from tests.support.topics import topics_named

DATA = Path(__file__).parent / "data" / "old_state"
FOLDERS, BEFORE, NEXT, EXPECTED = (
    DATA / name
    for name in ("folders.tar.xz", "before.jsonl.gz", "next.jsonl.gz", "expected.jsonl.gz")
)
HERE = "@FOLDER@"
"""Stands in the packed files for the folder of tables and checkpoint."""

PIPELINE = "old-state"
NAMES = ("reports", "commands", "results", "decisions", "ownership")
TOPICS = topics_named(PIPELINE)
PARTITIONS = {"reports": 2, "decisions": 1, "ownership": 1}
READ = (TOPICS.reports, TOPICS.commands)
SETTINGS = {
    "dry_run": "false",
    "shedding_interval_ms": 0,
    "shedding_grace_period_ms": 0,
    "history_ratio": 0.5,
    "min_throughput_mb": 0,
    "unloading_timeout_ms": 120_000,
    "cluster.west.load_manager": "extensible",
    "cluster.west.hit_count_threshold": 0,
    "cluster.west.target_std": 0.1,
    "cluster.west.unload_delay_ms": 0,
    "stream.pipeline_id": PIPELINE,
    "stream.tick_interval_ms": 0,
    "stream.keep_views": 1_000,
    "stream.max_offsets_per_trigger": 20,
}
"""The clock stands still: all time is that of the records."""
COMPARED = (
    "app", "batch_id", "log_seq", "cluster", "seq", "epoch", "now_ms", "decisions", "outcomes", "ownership", "refusals", "results",
    "memory", "inputs", "error",
)  # fmt: skip
"""A round in the log, without the names of files."""


@dataclass(frozen=True, slots=True)
class Record:
    """One record of a topic. `topic` is one of NAMES."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    key: str | None
    value: str | None
    headers: list[list[str]]


CHANGED = {"released_ms", "text", "saw", "expected_after", "queue"}
"""Fields that are decided otherwise since, on purpose: a release's time is the report's and not the round's, answers
say what goes on all the same, and a shedder counts the moves that operators have ordered in the same round. The
command `unload` has got the field `queue`."""


def without_changes(logged: Any) -> Any:
    """Drop the fields of CHANGED from a logged round's column, where that is JSON."""
    if not isinstance(logged, str) or not any(f'"{name}"' in logged for name in CHANGED):
        return logged

    def kept(found: dict[str, Any]) -> dict[str, Any]:
        return {name: value for name, value in found.items() if name not in CHANGED}

    return canonical_json(json.loads(logged, object_hook=kept))


def read_records(path: Path) -> list[Record]:
    """The records of a file, in their order on each partition."""
    return [Record(**json.loads(line)) for line in gzip.decompress(path.read_bytes()).splitlines()]


def write_lines(path: Path, rows: Iterable[object]) -> None:
    """JSON lines; the same rows make the same file."""
    text = "".join(json.dumps(row, ensure_ascii=False, sort_keys=True) + "\n" for row in rows)
    path.write_bytes(gzip.compress(text.encode(), 9, mtime=0))


def write_records(path: Path, records: Iterable[Record]) -> None:
    """What `read_records` reads."""
    write_lines(path, map(asdict, records))


def watermark() -> int:
    """How many batches the job had published: the number that it keeps in Kafka."""
    found: int = json.loads((DATA / "watermark.json").read_text())
    return found


def unpack(folder: Path) -> None:
    """Make `tables` and `checkpoint` in this folder."""
    with tarfile.open(FOLDERS) as archive:
        archive.extractall(folder, filter="data")
    for path in filter(names_places, folder.rglob("*")):
        path.write_text(path.read_text().replace(HERE, str(folder)))


def names_places(path: Path) -> bool:
    """Whether this is a file in which Delta or Spark writes down where its folder is."""
    return (
        path.is_file()
        and {"_delta_log", "_metadata"} & {*path.parts} != set()
        and path.suffix != ".parquet"
    )


def fill(bootstrap: str, records: Iterable[Record], published: int) -> None:
    """Make the topics with these records at their offsets and times, and say how many batches have been published."""
    by_name = {f"{PIPELINE}-{name}": name for name in NAMES}
    specs = topic_specs(TOPICS, **PARTITIONS)
    resources = [
        ConfigResource(
            ConfigResourceType.TOPIC, spec.name, {"message.timestamp.type": "LogAppendTime"}
        )
        for spec in specs
    ]
    given = {
        "message.timestamp.type": "CreateTime",
        "message.timestamp.after.max.ms": str(2**63 - 1),
        "retention.ms": "-1",
    }
    with closing(KafkaAdminClient(bootstrap_servers=bootstrap)) as client:
        client.create_topics(
            {
                spec.name: {"num_partitions": spec.partitions, "configs": spec.configs | given}
                for spec in specs
            }
        )
        client.wait_for_topics(list(by_name))
        with closing(KafkaProducer(bootstrap_servers=bootstrap, linger_ms=5)) as producer:
            sent = [
                (record, producer.send(f"{PIPELINE}-{record.topic}", *_fields(record)))
                for record in records
            ]
            for one, future in sent:
                written = future.get(timeout=30)
                # A transaction leaves marks of its own between the records that the job wrote; nobody reads on from there.
                assert written.topic not in READ or written.offset == one.offset, (one, written)
        client.alter_configs(resources)  # what is there keeps its time
    with closing(
        KafkaConsumer(
            bootstrap_servers=bootstrap, group_id=f"{PIPELINE}-watermark", enable_auto_commit=False
        )
    ) as group:
        group.commit({TopicPartition(TOPICS.decisions, 0): OffsetAndMetadata(published, "", -1)})


def _fields(one: Record) -> tuple[object, ...]:
    """As KafkaProducer.send takes them."""
    headers = [(name, value.encode()) for name, value in one.headers]
    return _bytes(one.value), _bytes(one.key), headers, one.partition, one.timestamp


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else text.encode()
