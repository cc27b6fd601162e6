"""The deciding stage without Spark around it."""

import json
from pathlib import Path

import pyarrow as pa

from lb_stream.contracts.settings import Settings, StreamSettings
from lb_stream.stream.decide import BatchContext, decide_cluster
from lb_stream.stream.figures import Taken


def test_a_cluster_that_fails_again_and_again_is_left_alone_for_a_while(tmp_path: Path) -> None:
    stream = StreamSettings(tables=str(tmp_path / "tables"), checkpoint=str(tmp_path), suspend_after_errors=3, suspended_ms=10_000)
    settings = Settings(stream=stream, balancer={"shedding_strategy": "ThresholdShedder", "threshold_percent": "absurd"})
    memories: dict[str, str] = {}
    seen = []
    for now_ms in (1_000, 2_000, 3_000, 4_000, 12_999, 13_000, 14_000):
        clock = json.dumps([{"topic": "reports", "partition": 0, "first": 0, "last": 0, "append_ms": now_ms}])
        row = {"cluster": "eu", "shard": 0, "clock": clock, "brokers": "", "names": "", "values": "", "events": None}
        rows = pa.Table.from_pylist([row])
        context = BatchContext(settings, "test-0", log_seq=0, epoch=1, caught_up=True, memories=memories)
        row = decide_cluster(rows, context, Taken(context, "0-0"))
        memories["eu"] = row["memory"]
        seen.append((row["error"] is not None, "suspended" in (row["error"] or ""), row["idle"]))
    failed, last, alone = (True, False, False), (True, True, False), (False, False, True)
    assert seen == [failed, failed, last, alone, alone, last, alone]
