"""`python -m tests.bench.failover`: the leader is killed (kill -9); how long until the next
decision can be read.

Two jobs stand by for each other, beside six simulated brokers. Each run kills the one that leads
when the other has stood by for a while, orders an unload at the same moment, and waits for its
decision with read_committed; then a new job takes the place of the killed one. The last line of
stdout is one JSON object.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import sys
import tempfile
import time
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path
from typing import Any

from lb_stream.contracts.commands import Claim
from lb_stream.kit.embedded_kafka import EmbeddedKafka
from tests.e2e.standbys import Job, Stage, new_pipeline, staged
from tests.support.topics import topics_named

PARTS = ("detection", "fencing", "query_start", "first_batch")


def measure(stage: Stage, leader: Job, heir: Job) -> dict[str, float]:
    """Kill the leader; the parts of the time until its heir's first decision, s."""
    with stage.reader() as reader:
        reader.drain()
        killed = time.time()
        leader.signal(signal.SIGKILL)
        stage.unload()
        decision, read = reader.next()
    stage.await_leader(heir)
    claimed = max(sign.append_ms for sign in stage.signs() if isinstance(sign.record, Claim)) / 1000
    leads, started = heir.said_at(" leads the pipeline"), heir.said_at("continuing after batch")
    assert leads is not None and started is not None
    times = (killed, claimed, leads, started, read)
    parts = dict(
        zip(PARTS, (round(after - before, 3) for before, after in pairwise(times)), strict=True)
    )
    return parts | {"seconds": round(read - killed, 3), "epoch": decision.epoch}


def run(stage: Stage, runs: int, stood_by_s: float, keep: Path) -> list[dict[str, float]]:
    """Kill as often."""
    leader = stage.start("--standby")
    stage.await_leader(leader)
    found = []
    for number in range(runs):
        heir = stage.start("--standby")
        stage.await_warm(heir)
        time.sleep(stood_by_s)
        found.append(measure(stage, leader, heir))
        print(f"{number + 1}: {found[-1]} (logs in {keep})", file=sys.stderr, flush=True)
        leader.process.wait()
        leader = heir
    return found


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.failover", description=__doc__)
    parser.add_argument("--runs", type=int, default=3, help="how often the leader is killed (3)")
    parser.add_argument(
        "--stood-by",
        type=float,
        default=120,
        metavar="SECONDS",
        help="how long the heir has been warm before (120)",
    )
    parser.add_argument(
        "--folder", type=Path, help="a new folder for Kafka's data, tables and logs, to be kept"
    )
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = given.folder or Path(temporary)
        kafka = EmbeddedKafka(folder / "kafka")
        kafka.start(timeout_s=1_800)
        with ExitStack() as stack:
            stack.callback(kafka.stop)
            pipeline = new_pipeline(kafka.bootstrap, topics_named("failover"), folder / "jobs")
            found = run(
                stack.enter_context(staged(kafka.bootstrap, pipeline)),
                given.runs,
                given.stood_by,
                folder,
            )
    medians: dict[str, Any] = {
        name: statistics.median(one[name] for one in found) for name in ("seconds", *PARTS)
    }
    worst = max(one["seconds"] for one in found)
    print(
        json.dumps(
            {
                "cores": os.cpu_count(),
                "runs": len(found),
                "stood_by": given.stood_by,
                "worst_seconds": worst,
                **medians,
            }
        )
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
