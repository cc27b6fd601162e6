"""Rows of the job's tables, made from decisions and loads, and appended to tables of a test."""

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import write_deltalake

from lb_stream.contracts.decisions import Decision
from lb_stream.contracts.table_spec import TableSpec
from lb_stream.contracts.tables import (
    ROUNDS,
)
from lb_stream.core.model.memory import Memory
from lb_stream.query.lake import open_lake, records, run
from lb_stream.store import Store
from tests.support.recorded_tables import Recorder

NOW = int(time.time() * 1000)


def fill(folder: Path, spec: TableSpec, rows: list[dict[str, Any]]) -> None:
    """Append rows; what they leave out is null.

    A broker that is alive is active, unless it is said.
    """
    alive = [{"active": row["alive"]} if "alive" in row else {} for row in rows]
    given = [known | row for known, row in zip(alive, rows, strict=True)]
    whole = [{field.name: row.get(field.name) for field in spec.schema} for row in given]
    partition = [spec.partition_by] if spec.partition_by else None
    write_deltalake(
        str(folder / spec.name),
        pa.Table.from_pylist(whole, schema=spec.schema),
        mode="append",
        partition_by=partition,
    )


def decided(decision: Decision) -> dict[str, Any]:
    """Return the row of `decisions` that says a decision."""
    return decision.model_dump(mode="json") | {
        "explain": decision.explain.to_json(),
        "log_seq": decision.seq,
    }


def load(cluster: str, seq: int, broker: str, rate: float, *, alive: bool = True) -> dict[str, Any]:
    """A row of broker_loads with `rate` msg/s of 1 kB each way."""
    latest = {
        f"latest_{name}": rate * 1000
        for name in ("throughput_in_bytes_per_s", "throughput_out_bytes_per_s")
    }
    latest |= {f"latest_{name}": rate for name in ("rate_in_msgs_per_s", "rate_out_msgs_per_s")}
    at = {"seq": seq, "log_seq": seq, "now_ms": NOW + seq, "seen_ms": NOW - 5_000}
    return (
        {
            "cluster": cluster,
            "broker": broker,
            "alive": alive,
            "usage_ratio": 0.5,
            "bundles": 4,
            "topics": 9,
        }
        | latest
        | at
    )


def query(recorded: Recorder, text: str) -> list[dict[str, Any]]:
    """Return the rows that a query over recorded tables gives."""
    return records(run(open_lake(Store.at(recorded.root)), text))


def with_operator_state(made: Recorder, **changes: Any) -> None:
    """One more round, after which operators have laid down what is given; the rest of the memory as
    changed."""
    row = query(made, "SELECT * FROM rounds ORDER BY log_seq DESC LIMIT 1")[0]
    memory = Memory.from_json(row["memory"])
    changed = {
        name: changes.pop(name) for name in ("paused", "drained", "isolation") if name in changes
    }
    memory = replace(memory, operator_state=replace(memory.operator_state, **changed), **changes)
    fill(made.root, ROUNDS, [row | {"log_seq": row["log_seq"] + 1, "memory": memory.to_json()}])
