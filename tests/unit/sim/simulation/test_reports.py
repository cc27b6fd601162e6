"""The player's reports are what the stream's decoder makes of the same reports in JSON."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from lb_stream.contracts.base import canonical_json
from lb_stream.contracts.reports import BundleStats, ModularLoadReport, ResourceUsage
from lb_stream.core.model.blocks import RESOURCES, from_bytes
from lb_stream.sim.model import ClusterModel
from lb_stream.sim.simulation.reports import Mailbox, SimulatedReporter
from lb_stream.stream.context import DecodeConfig
from lb_stream.stream.decode import decode
from tests.unit.sim.simulation.scenes import scene

RECORD = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("kind", pa.string()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("append_ms", pa.int64()),
    ]
)
FOUR = ("rate_in", "rate_out", "throughput_in", "throughput_out")
COLUMNS = (
    "rate_in_msgs_per_s",
    "rate_out_msgs_per_s",
    "throughput_in_bytes_per_s",
    "throughput_out_bytes_per_s",
)


def as_json(report: dict, samples: list[dict]) -> bytes:
    """The report as a broker of Pulsar writes it."""
    stats = {
        row["name"]: BundleStats(
            **{
                f"msg_{name}": row[f"latest_{column}"]
                for name, column in zip(FOUR, COLUMNS, strict=True)
            },
            topics=row["topics"],
            producer_count=row["producers"],
            consumer_count=row["consumers"],
            cache_size=row["cache_size_bytes"],
        )
        for row in samples
    }
    made = ModularLoadReport(
        **{
            name: ResourceUsage(usage=report[f"{name}_usage"], limit=report[f"{name}_limit"])
            for name in RESOURCES
        },
        **{
            f"msg_{name}": report[f"latest_{column}"]
            for name, column in zip(FOUR, COLUMNS, strict=True)
        },
        web_service_url=f"http://{report['name']}",
        broker_version_string=report["version"],
        load_manager_class_name=report["load_manager"],
        start_timestamp=report["start_timestamp_ms"],
        last_update=report["last_update_ms"],
        last_stats=stats,
        bundles=list(stats),
        num_topics=report["topics"],
        num_bundles=report["bundles"],
        num_consumers=report["consumers"],
        num_producers=report["producers"],
    )
    return canonical_json(made.model_dump(mode="json", by_alias=True, exclude_none=True)).encode()


def test_they_are_the_decoders_columns() -> None:
    model, post = ClusterModel(scene([0, 1, 0, 2, 1, -1])), Mailbox()
    post.add_reports(SimulatedReporter(model, "modular").make([2, 0, 1], 70.0, {}), 71.0)
    batch = post.take()
    reports, samples = batch.reports.to_pylist(), batch.samples.to_pylist()
    records = [
        {
            "key": f"c/{report['name']}".encode(),
            "value": as_json(report, [row for row in samples if row["report"] == number]),
            "kind": None,
        }
        | {name: report[name] for name in ("topic", "partition", "offset", "append_ms")}
        for number, report in enumerate(reports)
    ]
    blocks = decode(
        [pa.RecordBatch.from_pylist(records, RECORD)], DecodeConfig("c", "commands", {})
    )
    (row,) = (row for block in blocks for row in block.to_pylist() if row["cluster"])
    decoded = from_bytes(row["reports"]).to_pylist()
    assert [one | {"digest": None} for one in decoded] == [
        report | {"digest": None} for report in reports
    ]
    assert (
        from_bytes(row["samples"]).to_pylist() == samples
        and from_bytes(row["samples"]).schema == batch.samples.schema
    )


def test_what_arrives_is_numbered_in_the_order_of_its_arrival() -> None:
    model, post = ClusterModel(scene([0, 1, 2])), Mailbox()
    reporter = SimulatedReporter(model, "modular")
    post.add_events("heartbeat", ["broker-1:8080", "broker-2:8080"], 1.0)
    post.add_reports(reporter.make([0, 1], 1.0, {}), 2.0)
    post.add_reports(reporter.make([2], 2.0, {}), 3.0)
    batch = post.take()
    assert batch.events["offset"].to_pylist() == [0, 1] and batch.reports["offset"].to_pylist() == [
        2,
        3,
        4,
    ]
    assert np.array_equal(batch.samples["report"].to_numpy(), [0, 1, 2])
    assert not len(post.take().reports)
