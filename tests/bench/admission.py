"""`python -m tests.bench.admission`: what a storm and made-up clusters cost a batch, without a JVM.

Nine calm clusters of twenty brokers; each second a fifth of the brokers reports fifty bundles and
sends a heartbeat. A tenth cluster sends as much, then a hundred times as many. Then clusters that
don't exist report once, and are forgotten. The last line is one JSON object: ms of CPU time for
decode, fold, rounds and directory of a batch (medians of three). `--unlimited`: without limits.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from lb_stream.contracts.settings import AdmissionSettings
from lb_stream.stream.shards.directory import ListeningTime
from tests.bench.stages import Record, Stages
from tests.bench.stream.fleet import Fleet, Shape

BEAT = json.dumps({"sent_ms": 0}).encode()
RUNS, CALM, EXPIRES_MS = 3, 9, 1_800_000
UNLIMITED = AdmissionSettings(records_per_second=0, clusters=0, unconfirmed_clusters=0)


def with_beats(reports: list[tuple[bytes, bytes]]) -> list[Record]:
    """Reports, each with a heartbeat of its broker."""
    beats: list[Record] = [(key, BEAT, "heartbeat") for key, _ in reports]
    return [*((key, value, None) for key, value in reports), *beats]


def measure(admission: AdmissionSettings, made_up: int) -> dict[str, Any]:
    """Measure all states in turn."""
    calm = Fleet(Shape(CALM, 20, 50), seed=2, prefix="calm")
    wild = Fleet(Shape(1, 20, 50), seed=3, prefix="wild")
    fifth = range(0, calm.brokers, 5)

    def second(times: int) -> list[Record]:
        stormy = [report for _ in range(times) for report in wild.reports(range(0, 20, 5))]
        return with_beats(calm.reports(fifth)) + with_beats(stormy)

    with tempfile.TemporaryDirectory() as folder:
        stages = Stages(Path(folder), admission)
        stages.run(with_beats(calm.generation() + wild.generation()))

        def median(times: int = 1) -> float:
            stages.run(second(times))
            return round(statistics.median(sum(stages.run(second(times))) for _ in range(RUNS)), 1)

        found: dict[str, Any] = {"calm": median(), "storm": median(100)}
        found["calm_again"], found["storm_again"] = median(), median(100)
        found["before"] = median()
        report = calm.reports([0])[0][1]
        fakes: list[Record] = [(f"x{at}/b:1".encode(), report, None) for at in range(made_up)]
        found["made_up_batches"] = [
            round(sum(stages.run(fakes[at : at + 5_000]))) for at in range(0, made_up, 5_000)
        ]
        found["after"], found["clusters"] = median(), len(stages.directory)
        listening = ListeningTime()
        for now_ms in range(stages.now_ms, stages.now_ms + EXPIRES_MS + 1, 50_000):
            listening.record_batch(now_ms, caught_up=True)
        stages.run(second(1), EXPIRES_MS)
        for cluster in listening.unconfirmed_clusters(stages.directory, stages.now_ms, EXPIRES_MS):
            stages.directory[cluster] = replace(stages.directory[cluster], leaving=True)
        stages.run(second(1))
        found["expired"], found["clusters_left"] = median(), len(stages.directory)
    storms = found["storm"] + found["storm_again"]
    found["storm_ratio"] = round(storms / (found["calm"] + found["calm_again"]), 2)
    return found


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m tests.bench.admission", description=__doc__)
    parser.add_argument("--unlimited", action="store_true", help="without limits of admission")
    parser.add_argument("--clusters", type=int, default=10_000, help="made-up ones (10,000)")
    given = parser.parse_args()
    limits = UNLIMITED if given.unlimited else AdmissionSettings()
    print(json.dumps(measure(limits, given.clusters)))
