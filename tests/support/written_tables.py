"""A log and its tables as a job writes them, without Spark and Kafka."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from lb_stream.contracts.columns.rounds import ROUND_SCHEMA
from lb_stream.contracts.decisions import example_decision
from lb_stream.contracts.table_spec import TableSpec
from lb_stream.contracts.tables import BROKER_LOADS
from lb_stream.core.commands.audited import Audited
from lb_stream.core.commands.responder import CommandAnswer
from lb_stream.io.tables.commits import Table
from lb_stream.io.tables.delta import dataset
from lb_stream.io.tables.log import RoundLog
from lb_stream.io.tables.projections import Projections
from lb_stream.store import Store
from lb_stream.stream.figures import write_file

MINUTE_MS = 60_000


def decision(cluster: str) -> dict[str, Any]:
    """A decision as the log has it; its id and time are the round's to give."""
    return example_decision().model_dump(mode="json") | {"cluster": cluster}


def ownership(cluster: str, bundle: str, owner: str | None, version: int = 1) -> dict[str, Any]:
    """An ownership record as the log has it."""
    record = {
        "cluster": cluster,
        "bundle": bundle,
        "state": "Owned",
        "owner": owner,
        "source": None,
        "destination": None,
    }
    return record | {"version": version, "since_ms": 0, "epoch": 1, "decision_id": None}


def advice(cluster: str, bundle: str, owner: str = "b-0") -> dict[str, Any]:
    """An entry of merge advice as the log has it; without an owner: it is advised no more."""
    return {
        "cluster": cluster,
        "namespace": "t/n",
        "bundle": bundle,
        "neighbour": f"{bundle}+1",
        "owner": owner,
        "since_ms": 7,
    }


def answer(number: int = 0, **fields: Any) -> dict[str, Any]:
    """The answer to a drain as the log has it. `number`: of the broker, and of the command."""
    broker = f"b-{number}:8080"
    given: dict[str, Any] = {
        "id": f"c{number}",
        "kind": "drain-broker",
        "by": "alice",
        "at_ms": 1_000 + number,
        "arguments": {"broker": broker},
        "outcome": "done",
        "text": f"{broker} has no bundle, and gets none from now on",
        "audited": Audited(
            key_id="3f1c22a09b7d4e10",
            right=f"drain {broker}",
            objects=(f"broker {broker}",),
            old_value='{"drained":[]}',
            new_value=f'{{"drained":["{broker}"]}}',
        ),
    }
    return CommandAnswer(**given | fields).to_dict()


class Job:
    """The log and the projections of one start of a pipeline; batches are a minute apart."""

    def __init__(self, folder: Path, checkpoint: str = "u-1", pipeline: str = "p") -> None:
        self.root = Store.at(folder)
        self.folder, self.tables, self.checkpoint = folder, folder / "tables", folder / "checkpoint"
        self.checkpoint.mkdir(parents=True, exist_ok=True)
        (self.checkpoint / "metadata").write_text(json.dumps({"id": checkpoint}))
        self.log = RoundLog(Store.at(self.tables), pipeline, Store.at(self.checkpoint))
        self.tables_of = Projections(Store.at(self.tables), pipeline)

    def rounds(
        self,
        batch: int,
        clusters: Sequence[str] = ("a",),
        decisions: Sequence[Mapping[str, Any]] = (),
        ownership: Sequence[Mapping[str, Any]] = (),
        offsets: Mapping[str, Any] | None = None,
        loads: int = 0,
        now_ms: int | None = None,
        advice: Sequence[Mapping[str, Any]] = (),
        results: Sequence[Mapping[str, Any]] = (),
    ) -> pa.Table:
        """One round for each cluster; what is decided is the first cluster's.

        `loads`: rows of broker_loads in a file beside the log.
        """
        empty: dict[str, Any] = {
            field.name: "[]" if pa.types.is_string(field.type) else None for field in ROUND_SCHEMA
        } | {"error": None}
        now_ms = batch * MINUTE_MS if now_ms is None else now_ms
        rows = [
            empty
            | {
                "cluster": cluster,
                "seq": batch + 1,
                "epoch": 1,
                "now_ms": now_ms,
                "memory": json.dumps({"seq": batch + 1, "padding": [batch] * 50}),
                "inputs": json.dumps(
                    {
                        "offsets": {"r": {"0": [batch, batch]}} if offsets is None else offsets,
                        "settings": {},
                    }
                ),
                "files": "{}",
                "shadow_memory": "{}",
            }
            for cluster in clusters
        ]
        made = [
            dict(one) | {"decision_id": f"a:{batch + 1}:{number}", "issued_ms": now_ms}
            for number, one in enumerate(decisions)
        ]
        rows[0]["decisions"] = json.dumps(made)
        rows[0]["ownership"] = json.dumps([dict(one) for one in ownership])
        rows[0]["merge_advice"] = json.dumps([dict(one) for one in advice])
        rows[0]["results"] = json.dumps([dict(one) for one in results])
        if loads:
            rows[0]["files"] = json.dumps({BROKER_LOADS.name: self._loads(batch, loads, now_ms)})
        return pa.Table.from_pylist(rows, ROUND_SCHEMA)

    def _loads(self, batch: int, count: int, now_ms: int) -> dict[str, Any]:
        given = {
            "cluster": "a",
            "seq": batch + 1,
            "now_ms": now_ms,
            "alive": True,
            "log_seq": self.log.last_seq + 1,
        }
        rows = [
            {field.name: None for field in BROKER_LOADS.schema} | given | {"broker": f"b-{number}"}
            for number in range(count)
        ]
        return write_file(
            self.root / "tables",
            BROKER_LOADS,
            pa.Table.from_pylist(rows, BROKER_LOADS.schema),
            f"u-1-{batch:09d}-1-0",
        )


class JobInBucket(Job):
    """The same, of a folder that is nowhere on this machine."""

    def __init__(self, root: Store, pipeline: str = "p") -> None:
        root.put("checkpoint/metadata", json.dumps({"id": "u-1"}).encode())
        self.root = root
        self.log = RoundLog(root / "tables", pipeline, root / "checkpoint")
        self.tables_of = Projections(root / "tables", pipeline)


def rows_of(job: Job, spec: TableSpec) -> pa.Table:
    """A table as it is now, read as `lbctl` reads it, in the order of the log."""
    return dataset(Table(Store.at(job.tables / spec.name))).to_table().sort_by("log_seq")
