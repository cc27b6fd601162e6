"""Thousands of batches, and upkeep beside them: what a job holds and what lies on the disk doesn't
grow with their number.

LB_SOAK_BATCHES sets another number than 2,000. Growth is the slope of a straight line through what
was seen after the first half: Spark remembers its last thousand executions. All goes up and down
meanwhile, so the least of every three looks counts.
"""

import os
import re
import signal
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

from lb_stream.contracts.settings import TopicSettings, UpkeepSettings
from lb_stream.io.tables.upkeep import maintain
from lb_stream.kit.embedded_kafka import EmbeddedKafka
from lb_stream.store import Store
from tests.e2e import backlog
from tests.e2e.pipeline import Pipeline, wait_until
from tests.support.killing import processes

pytestmark = [pytest.mark.jvm, pytest.mark.e2e, pytest.mark.long]

BATCHES = int(os.environ.get("LB_SOAK_BATCHES", "2000"))
LOOKS, EACH = 48, 3
SETTINGS = backlog.SETTINGS | {"stream.metrics_address": ""}
UPKEEP = UpkeepSettings(keep_replaced_files_hours=0.01)

MOST_IN_A_THOUSAND = {
    "descriptors": 20,
    "threads": 20,
    "JVM's live kB": 10_000,
    "Python's resident kB": 30_000,
    "old files": 150,
}
"""Growth within a thousand batches.

With a socket for each task, descriptors grew by 2,000; files by 9,000.
"""
OLD_S = 300.0
"""What is replaced is kept for half a minute, what Spark may go back to for a hundred batches: no
more and no fewer files are older."""


def live_heap_kb(job: Pipeline, jvm: int) -> float:
    """What the JVM's objects take after a full collection: SIGQUIT makes it print a histogram of
    them."""
    total = re.compile(r"^Total +\d+ +(\d+)$", re.MULTILINE)
    before = len(total.findall(job.log()))
    os.kill(jvm, signal.SIGQUIT)
    wait_until(lambda: len(total.findall(job.log())) > before, "the JVM's histogram", timeout_s=60)
    return int(total.findall(job.log())[-1]) / 1024


def look(job: Pipeline, jvm: int) -> dict[str, float]:
    """All that must not grow."""
    seen: Counter[str] = Counter({"JVM's live kB": int(live_heap_kb(job, jvm))})
    for pid in processes(jvm):
        with suppress(OSError):
            seen["descriptors"] += len(os.listdir(f"/proc/{pid}/fd"))
            seen["threads"] += len(os.listdir(f"/proc/{pid}/task"))
            if pid != jvm:
                resident = re.search(r"VmRSS:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())
                seen["Python's resident kB"] += int(resident[1]) if resident else 0
    folders = (found for part in ("tables", "checkpoint") for found in os.walk(job.folder / part))
    seen["old files"] = sum(
        old(Path(folder, name)) for folder, _, names in folders for name in names
    )
    return dict(seen)


def old(path: Path) -> bool:
    """Whether a file is one that stays: of younger ones there are the more the faster batches
    come."""
    try:
        return time.time() - path.stat().st_mtime > OLD_S
    except OSError:  # it has been removed meanwhile
        return False


def growth(batches: Sequence[int], seen: Sequence[Mapping[str, float]], name: str) -> float:
    """Within a thousand batches."""
    starts = range(len(seen) // 2, len(seen) - EACH + 1, EACH)
    least = [min(one[name] for one in seen[start : start + EACH]) for start in starts]
    return 1_000 * float(np.polyfit([batches[start] for start in starts], least, 1)[0])


def test_what_a_job_holds_and_leaves_on_the_disk_does_not_grow_with_its_batches(
    kafka: EmbeddedKafka,
    topic_names: TopicSettings,
    tmp_path: Path,
    count: Callable[[str], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", "-XX:+PrintClassHistogram")
    job = Pipeline(kafka.bootstrap, topic_names, tmp_path, SETTINGS, short_lived=False)
    job.create_topics(reports=backlog.PARTITIONS)
    job.send(backlog.records(BATCHES))
    batches, seen = list[int](), list[dict[str, float]]()
    with job.running() as process:

        def newest() -> int:
            commits = (job.folder / "checkpoint" / "commits").glob("*")
            return max((int(path.name) for path in commits if path.name.isdigit()), default=-1)

        for goal in np.linspace(0, BATCHES - 1, LOOKS, dtype=int).tolist():
            wait_until(
                lambda least=goal: newest() >= least or process.poll() is not None,
                f"batch {goal}",
                timeout_s=600,
            )
            assert process.poll() is None, job.log()[-4000:]
            for _ in maintain(Store.at(tmp_path / "tables"), UPKEEP, time.time_ns() // 1_000_000):
                pass
            batches.append(newest())
            seen.append(look(job, process.pid))
            print(batches[-1], round(time.monotonic()), seen[-1], flush=True)
    grown = {name: growth(batches, seen, name) for name in MOST_IN_A_THOUSAND}
    for name, slope in grown.items():
        first, last = seen[len(seen) // 2][name], seen[-1][name]
        count(
            f"soak: {name} {first:,.0f} → {last:,.0f}, {slope:+,.0f} in a thousand of "
            f"{batches[-1] + 1} batches"
        )
    assert {name: slope for name, slope in grown.items() if slope > MOST_IN_A_THOUSAND[name]} == {}
