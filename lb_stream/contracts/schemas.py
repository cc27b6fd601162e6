"""Writes `schemas/`: JSON Schema and an example of each kind of record, and DDL of the tables.

`python -m lb_stream.contracts.schemas` writes the files. `--check` writes nothing; it names the
files that differ, and exits with code 1 if there are any.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

import pyarrow as pa
from pydantic import BaseModel

from lb_stream.contracts.columnar import (
    COLUMNS,
    COLUMNS_SCHEMA,
    DELTA,
    DELTA_SCHEMA,
    FIGURES,
    ROSTER,
    ROSTER_SCHEMA,
    digest_of,
    write_columns,
    write_delta,
    write_roster,
)
from lb_stream.contracts.commands import (
    Claim,
    CommandResult,
    HandOver,
    Standby,
    Tick,
    command_union,
)
from lb_stream.contracts.decisions import Decision, Ownership, example_decision
from lb_stream.contracts.openapi import DIALECT, WithoutTitles
from lb_stream.contracts.reads import READS, Reads
from lb_stream.contracts.reports import (
    Ack,
    BrokerLoadReport,
    Goodbye,
    Heartbeat,
    ModularLoadReport,
    SimpleLoadReport,
    SplitAsk,
    TopBundlesReport,
)
from lb_stream.contracts.table_spec import table_ddl, view_ddl
from lb_stream.contracts.tables import TABLES
from lb_stream.contracts.topics import TOPICS
from lb_stream.contracts.trace_ids import TRACEPARENT

FOLDER = Path(__file__).resolve().parents[2] / "schemas"


@dataclass(frozen=True, slots=True)
class RecordSchema:
    """One kind of record: its topic, model and example. `name`: of its files.

    `topic`: its key in the settings. `headers`: name → value; empty: any. `traced`: whether it has
    the header traceparent, too, where traces are on. `senders`: the roles of its senders in Kafka;
    empty: all that may write to the topic.
    """

    name: str
    topic: str
    model: type[BaseModel]
    example: Mapping[str, object]
    headers: Mapping[str, str] = field(default_factory=dict)
    traced: bool = False
    senders: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class BinaryRecord:
    """One kind of record whose value is an Arrow IPC stream: its columns and example.

    Other fields are as in RecordSchema.
    """

    name: str
    topic: str
    about: str
    schema: pa.Schema
    example: bytes
    headers: Mapping[str, str]
    traced: bool = False
    senders: tuple[str, ...] = ()


def _resource(usage: float, limit: float) -> dict[str, float]:
    return {"usage": usage, "limit": limit}


def _stats(rate_in: float, bytes_in: float, fan_out: int, topics: int) -> dict[str, float | int]:
    return {
        "msgRateIn": rate_in,
        "msgThroughputIn": bytes_in,
        "msgRateOut": rate_in * fan_out,
        "msgThroughputOut": bytes_in * fan_out,
        "consumerCount": topics * fan_out,
        "producerCount": topics,
        "topics": topics,
        "cacheSize": 16_384,
    }


_MODULAR = {
    "webServiceUrl": "http://broker-3.eu.example:8080",
    "pulsarServiceUrl": "pulsar://broker-3.eu.example:6650",
    "persistentTopicsEnabled": True,
    "nonPersistentTopicsEnabled": True,
    "cpu": _resource(340.0, 800.0),
    "memory": _resource(1_150.0, 4_096.0),
    "directMemory": _resource(900.0, 8_192.0),
    "bandwidthIn": _resource(52_000.0, 1_000_000.0),
    "bandwidthOut": _resource(104_000.0, 1_000_000.0),
    "msgThroughputIn": 6_500_000.0,
    "msgThroughputOut": 13_000_000.0,
    "msgRateIn": 6_500.0,
    "msgRateOut": 13_000.0,
    "lastUpdate": 1_767_225_615_000,
    "lastStats": {
        "shop/orders/0x00000000_0x80000000": _stats(4_500.0, 4_500_000.0, 2, 24),
        "shop/carts/0x40000000_0x80000000": _stats(2_000.0, 2_000_000.0, 2, 7),
    },
    "numTopics": 31,
    "numBundles": 2,
    "numConsumers": 62,
    "numProducers": 31,
    "bundles": ["shop/orders/0x00000000_0x80000000", "shop/carts/0x40000000_0x80000000"],
    "lastBundleGains": ["shop/carts/0x40000000_0x80000000"],
    "lastBundleLosses": [],
    "brokerVersionString": "4.0.7",
    "protocols": {},
    "advertisedListeners": {},
    "loadManagerClassName": "org.apache.pulsar.broker.loadbalance.impl.ModularLoadManagerImpl",
    "startTimestamp": 1_767_139_200_000,
    "loadReportType": "LocalBrokerData",
}
_SIMPLE = {
    "name": "broker-1.us.example:8080",
    "brokerVersionString": "2.6.2",
    "webServiceUrl": "http://broker-1.us.example:8080",
    "pulsarServiceUrl": "pulsar://broker-1.us.example:6650",
    "persistentTopicsEnabled": True,
    "nonPersistentTopicsEnabled": True,
    "underLoaded": False,
    "overLoaded": False,
    "timestamp": 1_767_225_615_000,
    "systemResourceUsage": {
        "cpu": _resource(500.0, 800.0),
        "memory": _resource(2_048.0, 4_096.0),
        "directMemory": _resource(-1.0, -1.0),
        "bandwidthIn": _resource(14_400.0, 1_000_000.0),
        "bandwidthOut": _resource(43_200.0, 1_000_000.0),
    },
    "bundleStats": {"shop/mail/0x00000000_0xffffffff": _stats(1_200.0, 1_800_000.0, 3, 12)},
    "bundleGains": [],
    "bundleLosses": ["shop/old/0x00000000_0xffffffff"],
    "msgRateIn": 1_200.0,
    "msgRateOut": 3_600.0,
    "numTopics": 12,
    "numConsumers": 36,
    "numProducers": 12,
    "numBundles": 1,
    "allocatedCPU": 0.0,
    "preAllocatedCPU": 0.0,
    "loadReportType": "LoadReport",
}
_COMMAND = {
    "schema_version": 1,
    "id": "2f1d5e0a-unload",
    "kind": "unload",
    "by": "User:operator",
    "sent_ms": 1_767_225_621_500,
    "namespace": "shop/orders",
    "bundle": "0x00000000_0x80000000",
    "destination": "broker-3.eu.example:8080",
}
_RESULT = CommandResult(
    id="2f1d5e0a-unload",
    cluster="eu-1",
    kind="unload",
    outcome="accepted",
    text="shop/orders/0x00000000_0x80000000 leaves broker-7.eu.example:8080 for "
    "broker-3.eu.example:8080",
    decision_ids=["eu-1:43:0"],
    at_ms=1_767_225_622_000,
)
_ACK = {
    "decision_id": "eu-1:42:0",
    "outcome": "released",
    "reason": "",
    "bundle": None,
    "sent_ms": 1_767_225_661_200,
}
_ASK = {
    "bundle": "shop/orders/0x00000000_0x80000000",
    "reason": "MsgRate",
    "boundaries": [0x40000000],
    "algorithm": "range_equally_divide",
    "saw": 31_250.0,
    "limit": 30_000.0,
    "sent_ms": 1_767_225_640_000,
}
_BROKER_LOAD = {
    "cpu": _resource(340.0, 800.0),
    "memory": _resource(1_150.0, 4_096.0),
    "directMemory": _resource(900.0, 8_192.0),
    "bandwidthIn": _resource(52_000.0, 1_000_000.0),
    "bandwidthOut": _resource(104_000.0, 1_000_000.0),
    "msgThroughputIn": 6_500_000.0,
    "msgThroughputOut": 13_000_000.0,
    "msgRateIn": 6_500.0,
    "msgRateOut": 13_000.0,
    "bundleCount": 2,
    "topics": 31,
    "maxResourceUsage": 0.425,
    "weightedMaxEMA": 0.3975,
    "msgThroughputEMA": 18_250_000.0,
    "updatedAt": 1_767_225_614_000,
    "reportedAt": 1_767_225_615_000,
    "startTimestamp": 1_767_139_200_000,
    "bundles": ["shop/carts/0x40000000_0x80000000", "shop/orders/0x00000000_0x80000000"],
}
_TOP_BUNDLES = {
    "topBundlesLoadData": [
        {
            "bundleName": "shop/carts/0x40000000_0x80000000",
            "stats": _stats(2_000.0, 2_000_000.0, 2, 7),
        },
        {
            "bundleName": "shop/orders/0x00000000_0x80000000",
            "stats": _stats(4_500.0, 4_500_000.0, 2, 24),
        },
    ]
}
_OWNERSHIP = Ownership(
    cluster="eu-1",
    bundle="shop/orders/0x00000000_0x80000000",
    state="Owned",
    owner="broker-3.eu.example:8080",
    version=2,
    since_ms=1_767_225_602_000,
    epoch=3,
    decision_id="eu-1:41:0",
)


_LEADER = {
    "sent_ms": 1_767_225_621_000,
    "pipeline": "lb-stream",
    "epoch": 4,
    "host": "lb-1",
    "pid": 512,
}
_STANDBY = _LEADER | {"host": "lb-2", "pid": 733}

_READS = {
    "kind": READS,
    "cluster": "eu-1",
    "forms": ["json", "columns", "deltas"],
    "checkpoint": "9f1c2d3e-0b7a-4c55-8f0e-1a2b3c4d5e6f",
    "rosters": ["broker-1:8080"],
    "sent_ms": 1_767_225_660_000,
}
_REPORT = {"kind": "report"}
RECORDS = (
    RecordSchema("modular-report", "reports", ModularLoadReport, _MODULAR, _REPORT),
    RecordSchema("simple-report", "reports", SimpleLoadReport, _SIMPLE, _REPORT),
    RecordSchema("broker-load", "reports", BrokerLoadReport, _BROKER_LOAD, _REPORT),
    RecordSchema("top-bundles", "reports", TopBundlesReport, _TOP_BUNDLES, _REPORT),
    RecordSchema(
        "heartbeat", "reports", Heartbeat, {"sent_ms": 1_767_225_620_000}, {"kind": "heartbeat"}
    ),
    RecordSchema("ack", "reports", Ack, _ACK, {"kind": "ack"}, traced=True),
    RecordSchema("ask", "reports", SplitAsk, _ASK, {"kind": "ask"}),
    RecordSchema(
        "goodbye", "reports", Goodbye, {"sent_ms": 1_767_229_200_000}, {"kind": "goodbye"}
    ),
    RecordSchema(
        "tick",
        "commands",
        Tick,
        {"id": "tick:4:17", "kind": "tick", **_LEADER, "ends": False, "to": ""},
        senders=("job",),
    ),
    RecordSchema(
        "standby",
        "commands",
        Standby,
        {"id": "3f0a", "kind": "standby", **_STANDBY, "warm": True},
        senders=("job",),
    ),
    RecordSchema(
        "claim",
        "commands",
        Claim,
        {"id": "9c41", "kind": "claim", **_STANDBY, "forced": False},
        senders=("job",),
    ),
    RecordSchema(
        "hand-over",
        "commands",
        HandOver,
        {"id": "77d2", "kind": "hand-over", **_STANDBY, "to": "lb-2:733", "by": "User:ann"},
        senders=("operator",),
    ),
    RecordSchema("command", "commands", command_union(), _COMMAND, senders=("operator", "lookup")),
    RecordSchema("command-result", "results", CommandResult, _RESULT.model_dump(mode="json")),
    RecordSchema(
        "decision",
        "decisions",
        Decision,
        example_decision().model_dump(mode="json"),
        {"decision_id": "", "epoch": "", "schema": ""},
        traced=True,
    ),
    RecordSchema("reads", "decisions", Reads, _READS, {"kind": READS}),
    RecordSchema("ownership", "ownership", Ownership, _OWNERSHIP.model_dump(mode="json")),
)


def _example_columns(roster: bytes) -> bytes:
    """Return the modular report of the examples as a columnar one, of which a delta follows."""
    stats = _MODULAR["lastStats"]
    assert isinstance(stats, dict)
    columns = {figure: [stats[name][figure] for name in sorted(stats)] for figure in FIGURES}
    return write_columns(_own_fields(), digest_of(roster), columns, is_base=True)


def _example_delta(roster: bytes, base: bytes) -> bytes:
    """Return a delta in which the second bundle has other figures."""
    stats = _stats(5_000.0, 5_000_000.0, 1, 6)
    own = _own_fields() | {"lastUpdate": 1_767_225_665_000}
    columns = {figure: [stats[figure]] for figure in FIGURES}
    return write_delta(own, digest_of(roster), digest_of(base), [1], columns)


def _own_fields() -> dict[str, object]:
    """Return the fields of the modular report that columns don't have."""
    return {name: value for name, value in _MODULAR.items() if name not in ("lastStats", "bundles")}


_EXAMPLE_ROSTER = write_roster(_MODULAR["bundles"])  # type: ignore[arg-type]
_EXAMPLE_COLUMNS = _example_columns(_EXAMPLE_ROSTER)
BINARY_RECORDS = (
    BinaryRecord(
        "roster",
        "reports",
        "The names of a broker's bundles, to which its columnar reports refer by digest.",
        ROSTER_SCHEMA,
        _EXAMPLE_ROSTER,
        {"kind": ROSTER},
    ),
    BinaryRecord(
        "columnar-report",
        "reports",
        "A modular load report whose bundles' figures are columns, in the order of a roster.",
        COLUMNS_SCHEMA,
        _EXAMPLE_COLUMNS,
        {"kind": COLUMNS},
    ),
    BinaryRecord(
        "delta",
        "reports",
        "The rows in which a modular load report differs from a columnar report, its base.",
        DELTA_SCHEMA,
        _example_delta(_EXAMPLE_ROSTER, _EXAMPLE_COLUMNS),
        {"kind": DELTA},
    ),
)
OTHER_FILES = {
    "asyncapi.json": "lb_stream.access.asyncapi",
    "openapi.json": "lb_stream.console.routes",
    "openapi-lookup.json": "lb_stream.io.lookup.api",
    "openapi-job.json": "lb_stream.job.metrics.api",
}
"""Files that a module of a higher floor builds, with its function `build_document`."""

_README = """\
# The contract, for programs in any language

`python -m lb_stream.contracts.schemas` writes this folder from the models in `lb_stream/contracts`.
A test fails when it is out of date.

| record | topic | key | headers | schema | example |
|---|---|---|---|---|---|
{rows}

Three kinds of records are Arrow IPC streams ([columnar reports](#columnar-reports)):

| record | topic | key | headers | columns | example |
|---|---|---|---|---|---|
{binary_rows}

[asyncapi.json](asyncapi.json) describes the topics for programs (AsyncAPI 3.0.0): keys, headers,
who sends and who receives each record, which topics are compacted. It refers to the schemas.
Over HTTP (OpenAPI 3.1): [openapi.json](openapi.json) describes the console's API, as the console
itself does at `/openapi.json`, [openapi-lookup.json](openapi-lookup.json) the lookup server,
[openapi-job.json](openapi-job.json) health and metrics of the job. They are three programs at three
addresses, so each has its own.

`tables.sql` describes the Delta tables and each of their columns. `views.sql` has a view beside
each table (`decisions_at`), in which times are timestamps. Times are ms since the epoch, rates
messages/s, throughputs bytes/s.

Any record may be signed; where [settings](../docs/security.md#signed-records) ask for it, it must
be. Its three headers are `lb-key` (the first 16 hex digits of the SHA-256 of the public key's 32
bytes), `lb-signed-us` (the time, µs since the epoch, in decimal; it increases from record to
record), and `lb-signature` (64 bytes, Ed25519). Signed are the bytes of
`DSSEv1 LEN TOPIC LEN KEY LEN KIND LEN TIME LEN DIGEST` with single spaces; each LEN is the number
of bytes of what follows it, in decimal, KIND is the header `kind` or empty, TIME is `lb-signed-us`,
DIGEST the 32 bytes of the value's SHA-256.

A broker, or an agent beside it, takes part by following four rules:

1. **Report**: send a load report, in either form, to `lb-load-reports` under the key
   `<cluster>/<host:port>`, when the load has changed notably, and at once after each change of the
   bundles that you own. A missing field has its default; an unknown field is ignored.
   It may have `topicShares`: of about ten of the heaviest bundles, the CRC-32 hash of each topic's
   full name and the topic's part of the bundle's load (together 1). A balancer then splits such a
   bundle where its load says. Shares that can't be right are rejected, and not the report.
2. **Live**: send a heartbeat every 5 s, and a goodbye before you leave on purpose. A broker that
   sends no heartbeats is judged by its reports alone.
3. **Obey**: read `lb-decisions` with `isolation.level=read_committed`, and act on the decisions
   addressed to you:
   - `unload`, and you are the `source`: stop serving the bundle.
   - `assign`, and you are the `destination`: serve the bundle from now on.
   - `split`, and you are the `source`: serve the `children` in place of the bundle. Where no
     children are named, serve those that `algorithm` finds.
   - `merge`, and you are the `source`: serve the one child in place of the bundle and its
     `neighbour`. Only brokers whose heartbeats say `merges` get it.

   Then send an ack (`released`, `acquired`, `split`, `merged`) and at once a new report: the
   report, not the ack, confirms the decision. A move is an `unload` and, once that is confirmed,
   an `assign`. Skip records whose kind is `reads`: they decide nothing.
4. **Refuse** (ack `refused`, with the reason) a decision whose `epoch` is lower than the highest
   you have seen, one whose `expires_ms` has passed, and an `unload`, `split` or `merge` of a bundle
   that isn't yours. A decision whose record has a timestamp later than a third of its time
   (`expires_ms - issued_ms`), and not later than five times that, was published late: its time
   counts from that timestamp. Carry out each `decision_id` once. Ignore a decision with `dry_run`.

## Columnar reports

A broker with many bundles may send a modular report as columns: the names once, then numbers as
they lie in memory. Each value is one Arrow IPC stream: a schema, one record batch, the end. Column
types are exactly those of the table above, columns may come in any order, and no value is null.
Numbers are little-endian. Buffers are not compressed, because Kafka compresses records.

- **Roster**, header `kind` = `roster`: the names of all bundles that the broker has, sorted by
  their UTF-8 bytes, each once. Its digest is the first 16 bytes of the SHA-256 of the record's
  value, in hex.
- **Columns**, header `kind` = `columns`: a row of figures for each name, in the roster's order. The
  schema's metadata has `roster`, the digest, and `report`, the broker's own fields as JSON: a
  modular report without `lastStats` and `bundles`. A further column `measured` (bool) may say which
  bundles have been measured; the figures of others don't count. Limits of numbers are those of JSON
  reports. With `is_base` = `true` in the metadata, deltas of it may follow.
- **Delta**, header `kind` = `delta`: a report that has only the rows that differ from a columnar
  report, its base. Bundles may have come or gone since, so a delta has a roster of its own: column
  `row` has the numbers of its rows in that roster, from 0, ascending, each once. The metadata has
  `report`, all of the broker's own fields, `roster`, the digest of the delta's own roster, and
  `base`, the base's digest: the first 16 bytes of the SHA-256 of its record's value, in hex.
  Bundles that it leaves out have the base's figures, and are measured where the base's are; a
  bundle that is not in the base's roster must not be left out. If the base has bundles a, b and c,
  and the roster of a delta a, c and d, then row 2 (d) is there, and row 0 (a) only if a has other
  figures than in the base. A delta never refers to another delta, so a lost one costs nothing.

Send the roster under the same key before the first report that refers to it, after each change of
the bundles, and again every ten minutes: a balancer that reads from the middle of the topic rejects
columns until it has read their roster. Send a base with the first roster, with each roster that is
sent again, and every tenth report or so: a balancer deletes a base ten minutes after the next one.
Deltas refer to the last base that was sent. A broker may send any form at any time. Simple reports,
and load data of the extensible manager, have no columns.

The balancer's record `reads` on `lb-decisions` comes every minute, with the key `<cluster>/`. Send
columns if its `forms` has them, and deltas if it has `deltas` too; JSON before the first such
record, and after three minutes without one. Report again at once, with a roster and in full, where
its `checkpoint` is another one than before, or its `rosters` names your broker.

In Python, `lb_stream.contracts.columnar` reads and writes all three. In any other language: read
the stream with Arrow's own library, take column `name` of the roster whose digest the report names,
and row i of the columns belongs to name i. Of a delta, take for each name of its own roster the
base's row of that name, then for each i write row i of the delta over row `row[i]`.

The header `traceparent` (W3C Trace Context) of a decision or an ack is for tracing alone, and is
missing where `otel.enabled` is false. A program may ignore it; one that traces makes its own span a
child of the decision's, and names that span in its ack.

The compacted topic `lb-ownership` has each bundle's owner; an empty value means that the bundle no
longer exists. A broker gives up a bundle whose record says that another one owns it (`Owned`), or
that it was split or merged (`Deleted`): both may happen while it counts as dead.

An operator's program sends commands to `lb-commands` and reads the answers on `lb-command-results`.
The sender chooses a command's `id`; the same `id` sent again is answered again and not done twice.
A command that takes time has two results: `accepted`, then `done` or `failed`. Each addressed
cluster answers for itself. `by` names the sender, because a Kafka record does not.
"""


def record_schema(record: RecordSchema) -> dict[str, Any]:
    """Build the JSON Schema (2020-12) of one kind of record, with field names as on the topic."""
    return {
        "$schema": DIALECT,
        "$id": f"{record.name}.schema.json",
        **record.model.model_json_schema(by_alias=True, schema_generator=WithoutTitles),
    }


def build_files() -> dict[str, str | bytes]:
    """Build every file of `schemas/`: name → content. The same code always gives the same files."""
    built: dict[str, str | bytes] = {
        "README.md": _readme(),
        "tables.sql": "\n".join(map(table_ddl, TABLES)),
        "views.sql": "\n".join(map(view_ddl, TABLES)),
    }
    for record in RECORDS:
        built[f"{record.name}.schema.json"] = _json(record_schema(record))
        built[f"examples/{record.name}.json"] = _json(record.example)
    for binary in BINARY_RECORDS:
        built[f"examples/{binary.name}.arrow"] = binary.example
    for name, module in OTHER_FILES.items():
        built[name] = _json(import_module(module).build_document())
    return built


def _to_bytes(content: str | bytes) -> bytes:
    return content if isinstance(content, bytes) else content.encode()


def _json(value: object) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def _readme() -> str:
    topics = {topic.setting: topic for topic in TOPICS}
    rows = "\n".join(
        f"| {record.name} | `{topics[record.topic].name}` | `{topics[record.topic].key}` | "
        f"{_describe_headers(record)} "
        f"| [schema]({record.name}.schema.json) | [example](examples/{record.name}.json) |"
        for record in RECORDS
    )
    binary_rows = "\n".join(
        f"| {record.name} | `{topics[record.topic].name}` | `{topics[record.topic].key}` | "
        f"{_describe_headers(record)} | {_describe_columns(record.schema)} "
        f"| [example](examples/{record.name}.arrow) |"
        for record in BINARY_RECORDS
    )
    return _README.format(rows=rows, binary_rows=binary_rows)


def _describe_columns(schema: pa.Schema) -> str:
    """Return the columns of an Arrow stream, grouped by type."""
    by_type: dict[str, list[str]] = {}
    for column in schema:
        by_type.setdefault(str(column.type), []).append(f"`{column.name}`")
    return "; ".join(f"{kind}: {', '.join(names)}" for kind, names in by_type.items())


def _describe_headers(record: RecordSchema | BinaryRecord) -> str:
    headers = (
        f"`{name}`" + (f" = {value}" if value else "") for name, value in record.headers.items()
    )
    text = ", ".join(headers) or "–"
    if record.traced:
        text += f", with traces also `{TRACEPARENT}`"
    return f"{text}, or none" if record.headers == _REPORT else text


def find_differing() -> list[str]:
    """Find the files of `schemas/` that are missing, stale or superfluous."""
    built = {name: _to_bytes(content) for name, content in build_files().items()}
    present = {
        str(path.relative_to(FOLDER)): path.read_bytes()
        for path in FOLDER.rglob("*")
        if path.is_file()
    }
    return sorted(name for name in {*built, *present} if built.get(name) != present.get(name))


def main(arguments: list[str]) -> int:
    """Run the command, and return its exit code: 0; 1 files differ; 2 wrong usage."""
    if arguments not in ([], ["--check"]):
        print("usage: python -m lb_stream.contracts.schemas [--check]", file=sys.stderr)
        return 2
    names = find_differing()
    if arguments:
        for name in names:
            print(f"differs: schemas/{name}")
        print(
            "run `python -m lb_stream.contracts.schemas` and look at the diff"
            if names
            else "schemas/ is up to date"
        )
        return 1 if names else 0
    built = build_files()
    for name in names:
        path = FOLDER / name
        if name not in built:
            path.unlink()
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(_to_bytes(built[name]))
    print(f"{len(names)} of {len(built)} files written in {FOLDER.name}/")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
