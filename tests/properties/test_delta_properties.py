"""Deltas are exact: with their bases they give the samples of full reports, to the bit."""

import json
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from lb_stream.agent.columnar import ReportEncoder
from lb_stream.contracts.reads import Reads
from tests.support.columnar import batches, bundle, modular
from tests.support.decoding import record

BROKER = "b-1:8080"
RATES = (0.0, -0.0, 5e-324, 0.1, 0.1 + 0.2, 1.0, 1e18)
COUNTS = (0, 1, 2**53 + 1, 2**63 - 1)

statistics = st.builds(
    lambda rate, throughput, topics, cache: {
        "msgRateIn": rate,
        "msgThroughputOut": throughput,
        "topics": topics,
        "cacheSize": cache,
    },
    *[st.sampled_from(RATES)] * 2,
    *[st.sampled_from(COUNTS)] * 2,
)
"""Statistics of a bundle, often the same ones as before."""


@st.composite
def lives(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Reports of one broker: some bundles change, come, go, or are not measured."""
    measured: dict[str, Mapping[str, Any]] = {}
    reports = []
    for turn in range(draw(st.integers(2, 6))):
        if turn == 0 or draw(st.integers(0, 6)) == 0:
            names = draw(st.sets(st.integers(0, 9), min_size=1))
        elif draw(st.booleans()):  # a few moves
            moved = names ^ draw(st.sets(st.integers(0, 9), max_size=2))
            names = moved or names
        changed = draw(st.dictionaries(st.sampled_from(sorted(names)), statistics, max_size=3))
        measured |= {bundle(at): stats for at, stats in changed.items()}
        unknown = draw(st.sets(st.sampled_from(sorted(names)), max_size=1))
        stats = {
            bundle(at): measured.setdefault(bundle(at), {"topics": at})
            for at in names
            if at not in unknown
        }
        fields = {"bundles": [bundle(at) for at in names], "lastUpdate": draw(st.integers(0, 2))}
        reports.append(modular(stats, **fields))
    return reports


def sent(reports: list[dict[str, Any]], *forms: str) -> list[dict[str, Any]]:
    """Return the records of an agent whose job reads these forms."""
    encoder = ReportEncoder(min_bundles=1, clock=lambda: 0.0)
    encoder.note_reads(Reads(cluster="eu", forms=["json", *forms], checkpoint="c"), ())
    encoded = [entry for report in reports for entry in encoder.encode(BROKER, report)]
    key = f"eu/{BROKER}".encode()
    return [record(key, value, at, kind) for at, (kind, value) in enumerate(encoded)]


def bits(table: pa.Table) -> list[Any]:
    """Return the columns of a table, doubles as their bits."""
    return [
        column.to_numpy().tobytes() if pa.types.is_floating(column.type) else column.to_pylist()
        for column in table.columns
    ]


@given(lives())
def test_deltas_give_the_samples_of_full_reports_to_the_bit(reports: list[dict[str, Any]]) -> None:
    deltas, full, plain = (
        sent(reports, *forms) for forms in (("columns", "deltas"), ("columns",), ())
    )
    assert {entry["kind"] for entry in plain} == {"report"}
    assert "delta" not in {entry["kind"] for entry in full}
    found = [batches(records) for records in (deltas, full, plain)]
    for batch, *others in zip(*found, strict=True):
        for other in others:
            assert bits(batch.samples) == bits(other.samples)
            own = ["offset", "append_ms"]
            assert batch.reports.drop_columns(own).equals(other.reports.drop_columns(own))


@given(lives())
def test_a_report_that_says_what_the_last_one_said_has_its_digest(
    reports: list[dict[str, Any]],
) -> None:
    digests = [
        [row["digest"] for row in batch.reports.to_pylist()]
        for batch in batches(sent(reports, "columns", "deltas"), digests=True)
    ]
    said = [json.dumps(report, sort_keys=True) for report in reports]
    for found in digests:
        assert len(found) == len(said)
        for at in range(1, len(said)):
            assert (found[at] == found[at - 1]) == (said[at] == said[at - 1])
