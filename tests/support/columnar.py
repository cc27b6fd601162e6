"""Columnar reports as an agent sends them, and what the decoder makes of them. Without a JVM."""

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from lb_stream.contracts.columnar import FIGURES, digest_of, write_columns, write_roster
from lb_stream.core.model.blocks import Batch, from_bytes
from lb_stream.stream.context import DecodeConfig
from tests.support.decoding import KNOWN, record, rows_of


def bundle(at: int) -> str:
    return f"acme/n{at:03d}/0x00000000_0x80000000"


def stats(at: int) -> dict[str, float]:
    """Statistics of a bundle, of which some are no short decimals, and one has a large count."""
    numbers = {name: at * 1.1 + place / 3 for place, name in enumerate(FIGURES[:4])}
    counts = {name: at + place for place, name in enumerate(FIGURES[4:])}
    return dict.fromkeys(FIGURES, 0) | numbers | counts | {"cacheSize": 2**53 + 1}


def modular(measured: Mapping[str, Mapping[str, Any]], **fields: Any) -> dict[str, Any]:
    return {
        "lastStats": measured,
        "loadReportType": "LocalBrokerData",
        "cpu": {"usage": 100.0 / 3, "limit": 400.0},
        "lastUpdate": 5,
    } | fields


def as_columns(report: Mapping[str, Any]) -> tuple[bytes, bytes]:
    """Return roster and columns of a report."""
    measured = report["lastStats"]
    names = sorted({*measured, *report.get("bundles", ())}, key=str.encode)
    own = {name: value for name, value in report.items() if name not in ("lastStats", "bundles")}
    columns = {
        figure: [measured.get(name, {}).get(figure, 0) for name in names] for figure in FIGURES
    }
    flags = [name in measured for name in names]
    roster = write_roster(names)
    return roster, write_columns(own, digest_of(roster), columns, None if all(flags) else flags)


def sent(broker: str, report: Mapping[str, Any], offset: int) -> list[dict[str, Any]]:
    """Return a roster and a columnar report of a broker, at two offsets."""
    roster, columns = as_columns(report)
    key = f"eu/{broker}".encode()
    return [record(key, roster, offset - 1, "roster"), record(key, columns, offset, "columns")]


def batches(
    records: list[dict[str, Any]], config: DecodeConfig = KNOWN, digests: bool = False
) -> list[Batch]:
    """Return what each shard of the cluster gets; `digests`: with the digests of reports."""
    found = []
    for row in rows_of(records, config):
        if row["cluster"] == "eu" and row["reports"]:
            reports = from_bytes(row["reports"])
            reports = reports if digests else reports.drop_columns("digest")
            samples = from_bytes(row["samples"])
            found.append(Batch(reports, samples, pa.table({})))
    return found
