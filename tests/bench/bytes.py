"""`python -m tests.bench.bytes`: the bytes that the job's state and `bundle_averages` take for a
million bundle reports, and the CPU time of a batch; the last line is one JSON object.

One cluster, twice: `whole`, every batch reads a report of every broker; `spread`, a batch reads the
reports of one second, of brokers that each report once a minute, as in real life. All stages run in
one process without a JVM and without Kafka. `kafka_json` and `kafka_columns`: MB of the reports in
either form, compressed by zstd as agents do; of `deltas`, where a tenth of the bundles have other
figures than before, also `kafka_deltas`; `blocks`: MB of the files that a batch leaves in
`lb-blocks`; `bundle_averages`: MB of that table's files; for a million bundles in reports, the
warm-up not counted. What decode, fold and round take are medians of CPU time of a batch, in ms.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa

from lb_stream.agent.columnar import REPORTS_PER_BASE
from lb_stream.contracts.settings import StreamSettings
from lb_stream.store import Store
from lb_stream.stream.figures import part_files
from lb_stream.stream.shards.slicing import DueShard, table_part
from tests.bench.stages import Cost, Stages
from tests.bench.stream.columnar import columns_encoder
from tests.bench.stream.fleet import Fleet, Shape
from tests.bench.stream.stepped import BALANCER

BUNDLES_EACH = 1_000  # bundles of a broker
WARM_UPS = 3  # generations before the measured ones
BATCHES_A_MINUTE = 60
ZSTD = pa.Codec("zstd")
NEEDED_BY_A_BATCH = ("-samples.arrow", "-memories.arrow")
"""Ends of the names of files that are deleted with their batch."""


@dataclass
class Measured:
    """What some batches have read, written and taken."""

    reports: int = 0
    json: int = 0
    columns: int = 0
    blocks: int = 0
    averages: int = 0
    costs: list[Cost] = field(default_factory=list)

    def figures(self) -> dict[str, float]:
        """MB for a million bundles in reports, and medians of ms."""
        found = {
            "kafka_json": self.json / self.reports,
            "kafka_columns": self.columns / self.reports,
            "blocks": self.blocks / self.reports,
            "bundle_averages": self.averages / self.reports,
            "batches": len(self.costs),
        }
        for stage in ("decode", "fold", "decide"):
            times = [getattr(cost, stage) for cost in self.costs]
            found[f"{stage}_ms"] = statistics.median(times)
        return {name: round(value, 1) for name, value in found.items()}


class Writer:
    """A cluster whose batches write blocks, and its table from time to time."""

    def __init__(self, folder: Path, brokers: int, interval_ms: int) -> None:
        self._folder, self._interval_ms, self._written_ms = folder, interval_ms, 0
        self.fleet = Fleet(Shape(1, brokers, BUNDLES_EACH))
        self._stages = Stages(folder, balancer=BALANCER)
        self._encoder = columns_encoder()

    def run(self, records: Sequence[tuple[bytes, bytes]], measured: Measured) -> None:
        """Run a batch with these reports, and obey what it decides."""
        cost = self._stages.run([(key, value, None) for key, value in records])
        self.fleet.obey(self._stages.decisions())
        measured.costs.append(cost)
        measured.reports += len(records) * BUNDLES_EACH
        for key, value in records:
            measured.json += _compressed(value)
            encoded = self._encoder.encode(key.decode(), json.loads(value))
            measured.columns += sum(_compressed(record) for _, record in encoded)
        measured.blocks += sum(
            file.stat().st_size
            for file in os.scandir(self._folder / "lb-blocks")
            if file.name.startswith(f"{self._stages.batch:012d}-")
            and not file.name.endswith(NEEDED_BY_A_BATCH)
        )
        if self._stages.now_ms >= self._written_ms + self._interval_ms:
            self._written_ms = self._stages.now_ms
            measured.averages += self._write_averages()

    def _write_averages(self) -> int:
        """Write all parts of the table; return their bytes."""
        written = 0
        for cluster, shard_map in self._stages.directory.items():
            for shard, (brokers, names, values) in enumerate(shard_map.blocks):
                part = table_part(cluster, shard, len(shard_map.blocks))
                due = DueShard(cluster, shard, self._stages.now_ms, (brokers, names, values))
                root, checkpoint = Store.at(self._folder / "tables"), Store.at(self._folder)
                files = part_files(part, [due], root, checkpoint, f"{self._stages.batch}")
                written += sum(file["bytes"] for file in files.values())
        return written


def _compressed(value: bytes) -> int:
    """Return the bytes of a record's value in Kafka."""
    return len(ZSTD.compress(value))


def measure_deltas(brokers: int) -> dict[str, float]:
    """Return MB for a million bundles in reports, in each form, once all have sent a base."""
    fleet = Fleet(Shape(1, brokers, BUNDLES_EACH), steady=0.9)
    encoders = {"kafka_columns": columns_encoder(), "kafka_deltas": columns_encoder(deltas=True)}
    sizes = Counter[str]()
    for number in range(1 + REPORTS_PER_BASE):
        for key, value in fleet.generation():
            fields = json.loads(value)
            found = {
                form: encoder.encode(key.decode(), fields) for form, encoder in encoders.items()
            }
            if number > 0:
                sizes["kafka_json"] += _compressed(value)
                for form, records in found.items():
                    sizes[form] += sum(_compressed(record) for _, record in records)
    reports = REPORTS_PER_BASE * brokers * BUNDLES_EACH
    return {form: round(size / reports, 1) for form, size in sizes.items()}


def measure(brokers: int, generations: int, interval_ms: int) -> dict[str, dict[str, float]]:
    """Measure whole generations, then spread ones, of one cluster, and the bytes of deltas."""
    whole, spread = Measured(), Measured()
    with tempfile.TemporaryDirectory(prefix="bench-bytes-") as folder:
        writer = Writer(Path(folder) / "job", brokers, interval_ms)
        for number in range(WARM_UPS + generations):
            warm_up = number < WARM_UPS
            writer.run(writer.fleet.generation(), Measured() if warm_up else whole)
        for number in range(1 + generations):
            records = writer.fleet.generation()
            each = -(-len(records) // BATCHES_A_MINUTE)
            for begin in range(0, len(records), each):
                measured = Measured() if number == 0 else spread
                writer.run(records[begin : begin + each], measured)
    return {
        "whole": whole.figures(),
        "spread": spread.figures(),
        "deltas": measure_deltas(brokers),
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.bytes")
    parser.add_argument("--brokers", type=int, default=100, help="of 1,000 bundles each (100)")
    parser.add_argument("--generations", type=int, default=2, help="measured of each kind (2)")
    parser.add_argument(
        "--interval-ms",
        type=int,
        default=StreamSettings().averages_interval_ms,
        help="between two writes of bundle_averages; 0: in every batch (the job's default)",
    )
    given = parser.parse_args()
    print(json.dumps(measure(given.brokers, given.generations, given.interval_ms)), flush=True)


if __name__ == "__main__":
    main()
