"""A job that was shut out and goes on all the same: it writes what its heir has written, later and otherwise. No JVM needed."""

import json
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import Row

from lb_stream.contracts.base import canonical_json
from lb_stream.core.averages import FoldConfig
from lb_stream.stream import averages
from lb_stream.stream.averages import ShardProcessor, read_shard
from lb_stream.stream.block_files import BlockWriter, read_block, remove_samples, sample_file
from lb_stream.stream.decode import decode
from lb_stream.stream.directory import FOLDER, NEW, Slices, forget_directories, read_directory, write_directory
from tests.spark.test_decode import BUNDLE, CONFIG, RECORDS, record, report

BATCH, ZOMBIE, HEIR = 5, 1, 2


class State:
    """The state of one key, as Spark keeps it."""

    value: tuple[Any, ...] | None = None

    def get(self) -> tuple[Any, ...] | None:
        return self.value

    def update(self, value: tuple[Any, ...]) -> None:
        self.value = value


@pytest.fixture(autouse=True)
def in_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(averages, "task_of_batch", lambda: (BATCH, 0, 0))
    monkeypatch.setattr(averages, "leave_closing_to_spark", lambda _: None)


def folded(checkpoint: Path, epoch: int, rates: Sequence[float], state: State | None = None) -> Row:
    """What one task of a job's batch emits for broker b1, which reports one bundle with these rates."""
    processor = ShardProcessor({}, FoldConfig(), str(checkpoint), "cafe0123", epoch)
    processor.init(SimpleNamespace(getValueState=lambda *_: state or State()))  # type: ignore[arg-type]
    stats = [{BUNDLE: {"msgRateIn": rate, "topics": 3}} for rate in rates]
    records = [record(b"eu/b1", report(lastStats=one), offset) for offset, one in enumerate(stats)]
    rows = [row for batch in decode([pa.RecordBatch.from_pylist(records, RECORDS)], CONFIG) for row in batch.to_pylist()]
    (emitted,) = processor.handleInputRows(("eu", 0), iter([Row(**row) for row in rows]), None)
    processor.close()
    return emitted


def rates(checkpoint: Path, shard: Row) -> list[float]:
    """The latest rates in the blocks that a task has named."""
    return read_shard(str(checkpoint), (shard.brokers, shard.names, shard.values)).bundles["latest_rate_in_msgs_per_s"].to_pylist()


def test_a_zombies_blocks_lie_beside_its_heirs(tmp_path: Path) -> None:
    heirs = folded(tmp_path, HEIR, [10.0])
    zombies = folded(tmp_path, ZOMBIE, [10.0, 20.0])
    assert rates(tmp_path, heirs) == [10.0]
    assert rates(tmp_path, zombies) == [20.0]


def test_what_a_zombie_says_of_the_next_batch_is_not_read_by_its_heir(tmp_path: Path) -> None:
    written = Slices(1, (("heir:0:1",) * 3,)), Slices(4, (("zombie:0:1",) * 3,))
    write_directory(str(tmp_path), BATCH + 1, HEIR, {"eu": written[0]})
    write_directory(str(tmp_path), BATCH + 1, ZOMBIE, {"eu": written[1]})
    assert read_directory(str(tmp_path), BATCH + 1, HEIR) == {"eu": written[0]}
    assert read_directory(str(tmp_path), BATCH + 1, HEIR + 1) == {"eu": written[0]}, "so does the heir's heir"
    assert read_directory(str(tmp_path), BATCH + 1, ZOMBIE) == {"eu": written[1]}
    assert forget_directories(str(tmp_path), BATCH) == {"heir", "zombie"}, "what either names stays as long as it may be read"


def test_a_zombie_that_tidies_up_leaves_its_heirs_samples(tmp_path: Path) -> None:
    places = {}
    for epoch in (ZOMBIE, HEIR):
        writer = BlockWriter(str(tmp_path), sample_file(BATCH, epoch, 0), lasts=False)
        places[epoch] = writer.put(pa.table({"x": [epoch]}))
        writer.close()
    remove_samples(str(tmp_path), BATCH, ZOMBIE)
    assert read_block(str(tmp_path), places[HEIR])["x"].to_pylist() == [HEIR]
    with pytest.raises(FileNotFoundError):
        read_block(str(tmp_path), places[ZOMBIE])
    remove_samples(str(tmp_path), BATCH, HEIR)
    with pytest.raises(FileNotFoundError):
        read_block(str(tmp_path), places[HEIR])


def test_a_checkpoint_from_before_epochs_were_in_names_is_read_on(tmp_path: Path) -> None:
    before = BlockWriter(str(tmp_path), f"{BATCH - 1:012d}-0-cafe0123.arrow")
    now = folded(tmp_path, HEIR, [10.0])
    references = [before.put(read_block(str(tmp_path), one)) for one in (now.brokers, now.names, now.values)]
    before.close()
    (tmp_path / FOLDER).mkdir()
    content = canonical_json({"eu": {"shards": 1, "blocks": [references]}, "us": {"shards": 1, "blocks": []}})
    (tmp_path / FOLDER / f"{BATCH}.json").write_text(content)
    known = read_directory(str(tmp_path), BATCH, HEIR)
    assert known == {"eu": Slices(1, (tuple(references),)), "us": NEW}
    state = State()
    state.value = (1, *references)
    assert rates(tmp_path, folded(tmp_path, HEIR, [30.0], state)) == [30.0]
    write_directory(str(tmp_path), BATCH + 1, HEIR, known)
    assert forget_directories(str(tmp_path), BATCH + 1) == {f"{BATCH - 1:012d}-0-cafe0123.arrow"}
    assert json.loads((tmp_path / FOLDER / f"{BATCH + 1}-e{HEIR}.json").read_text()) == json.loads(content)
    assert not (tmp_path / FOLDER / f"{BATCH}.json").exists()
