"""Topics' shares in reports: what is taken, and what is rejected without costing the report."""

import json
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from lb_stream.core.model.topic_shares import TopicShares
from lb_stream.stream.records import ReportRecord, parse_report
from lb_stream.stream.topic_shares import MAX_BUNDLES, SUM_TOLERANCE
from tests.support.decoding import decoded, record, rejections

LOW, HIGH = "t/n/0x00000000_0x80000000", "t/n/0x80000000_0xffffffff"
GOOD = [[0x8000_0000, 0.75], [0xFFFF_FFFF, 0.25]]
INF = float("inf")
NAN = float("nan")


def modular(shares: object) -> bytes:
    stats = {LOW: {"msgRateIn": 10.0}, HIGH: {"msgRateIn": 30.0}}
    fields = {"lastStats": stats, "loadReportType": "LocalBrokerData", "topicShares": shares}
    return json.dumps(fields).encode()


def simple(shares: object) -> bytes:
    stats = {LOW: {"msgRateIn": 10.0}, HIGH: {"msgRateIn": 30.0}}
    fields = {"bundleStats": stats, "loadReportType": "LoadReport", "topicShares": shares}
    return json.dumps(fields).encode()


def extensible(shares: object) -> bytes:
    fields = {"weightedMaxEMA": 0.5, "bundles": [LOW, HIGH], "topicShares": shares}
    return json.dumps(fields).encode()


FORMS = [modular, simple, extensible]


def taken(report: ReportRecord) -> dict[str, list[list[float]]]:
    return {
        bundle: np.column_stack(parts).tolist() for bundle, parts in report.topic_shares.items()
    }


@pytest.mark.parametrize("form", FORMS)
def test_every_form_of_report_can_give_shares(form: Any) -> None:
    report = parse_report(form({HIGH: GOOD, LOW: [[5, 1]]}), "a")
    assert taken(report) == {HIGH: GOOD, LOW: [[5, 1]]}
    assert report.wrong_shares is None


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("shares", [None, {}])
def test_a_report_may_give_none(form: Any, shares: object) -> None:
    report = parse_report(form(shares), "a")
    assert (taken(report), report.wrong_shares) == ({}, None)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    ("shares", "bundle", "figure"),
    [
        ([[0x9000_0000, NAN], [0xA000_0000, 1.0]], HIGH, "nan"),
        ([[0x9000_0000, INF]], HIGH, "inf"),
        ([[0x9000_0000, -0.25], [0xA000_0000, 1.25]], HIGH, "-0.25"),
        ([[0x9000_0000, 0.5], [0xA000_0000, 0.2]], HIGH, "0.7"),
        ([[0x9000_0000, 0.0]], HIGH, "0"),
        ([[0x7FFF_FFFF, 1.0]], HIGH, "2147483647"),
        ([[0x8000_0000, 1.0]], LOW, "2147483648"),
        ([[-1, 1.0]], LOW, "-1"),
        ([[1 << 32, 1.0]], HIGH, "4294967296"),
        ([[10**400, 1.0]], HIGH, "1000"),
        ([[0.5, 1.0]], LOW, "0.5"),
        ([["5", 1.0]], LOW, "'5'"),
        ([[True, 1.0]], LOW, "True"),
        ([[5]], LOW, "[5]"),
        ([[5, 0.5, 0.5]], LOW, "[5, 0.5, 0.5]"),
        ([5], LOW, "5"),
        ([], LOW, "[]"),
        ({"5": 1.0}, LOW, "'5'"),
        (None, LOW, "None"),
    ],
)
def test_shares_that_cant_be_right_are_rejected_with_their_bundle_and_figure(
    form: Any, shares: object, bundle: str, figure: str
) -> None:
    other = LOW if bundle == HIGH else HIGH
    good = {LOW: [[5, 1.0]], HIGH: GOOD}[other]
    report = parse_report(form({bundle: shares, other: good}), "a")
    assert taken(report) == {other: good}
    assert report.wrong_shares is not None
    assert bundle in report.wrong_shares.field
    assert figure in report.wrong_shares.value
    assert {LOW, HIGH} <= {*report.stats, *report.unmeasured}


@pytest.mark.parametrize("shares", [5, "x", [1], True])
def test_a_field_of_another_form_is_rejected(shares: object) -> None:
    report = parse_report(modular(shares), "a")
    assert (taken(report), report.wrong_shares is None) == ({}, False)


def test_a_bundle_that_the_report_does_not_name_has_no_shares() -> None:
    report = parse_report(modular({"t/m/0x00000000_0xffffffff": [[1, 1.0]]}), "a")
    assert report.topic_shares == {}
    assert report.wrong_shares is not None
    assert report.wrong_shares.value == "t/m/0x00000000_0xffffffff"


def test_rounded_shares_count() -> None:
    off = 1 + SUM_TOLERANCE - 1e-6
    assert taken(parse_report(modular({LOW: [[5, off]]}), "a")) == {LOW: [[5, off]]}


def test_at_most_some_bundles_of_a_report_are_read() -> None:
    names = [f"t/n/0x{at:08x}_0x{at + 1:08x}" for at in range(MAX_BUNDLES + 1)]
    fields = {
        "loadReportType": "LocalBrokerData",
        "bundles": names,
        "topicShares": {name: [[at, 1.0]] for at, name in enumerate(names)},
    }
    report = parse_report(json.dumps(fields).encode(), "a")
    assert list(report.topic_shares) == names[:MAX_BUNDLES]
    assert report.wrong_shares is not None


def test_a_rejected_share_names_the_broker_and_the_report_counts() -> None:
    block = decoded([record(b"eu/a", modular({LOW: [[5, -1.0]], HIGH: GOOD}), 7)])["eu", 0]
    [(offset, field, value, _)] = rejections(block)
    assert (offset, LOW in field, value) == (7, True, "[5, -1.0]")
    assert [event["broker"] for event in block["events"]] == ["a"]
    assert [row["name"] for row in block["reports"]] == ["a"]
    packed = {row["name"]: row["topic_shares"] for row in block["samples"]}
    assert packed[LOW] is None
    hashes, share = TopicShares.from_packed(np.array([0]), [packed[HIGH]]).of(0)
    assert_array_equal(hashes, [0x8000_0000, 0xFFFF_FFFF])
    assert_allclose(share, [0.75, 0.25], rtol=1e-6)


def test_shares_go_to_their_own_bundle_among_several_reports() -> None:
    records = [
        record(b"eu/a", modular(None), 1),
        record(b"eu/b", modular({HIGH: [[0x9000_0000, 1.0]]}), 2),
        record(b"eu/c", modular({LOW: [[3, 1.0]]}), 3),
    ]
    samples = decoded(records)["eu", 0]["samples"]
    given = [(row["report"], row["name"]) for row in samples if row["topic_shares"] is not None]
    assert given == [(1, HIGH), (2, LOW)]


def test_ten_thousand_topics_become_a_few_entries_and_none_is_lost() -> None:
    rng = np.random.default_rng(5)
    hashes = np.sort(rng.choice(0x8000_0000, 10_000, replace=False))
    share = rng.pareto(1.2, 10_000)
    share /= share.sum()
    given = np.column_stack([hashes, share]).tolist()
    value = modular({LOW: [[int(at), part] for at, part in given]})
    [row] = [
        row
        for row in decoded([record(b"eu/a", value, 1)])["eu", 0]["samples"]
        if row["name"] == LOW
    ]
    assert len(row["topic_shares"]) < 2_000
    kept, parts = TopicShares.from_packed(np.array([0]), [row["topic_shares"]]).of(0)
    # A cut at an entry divides the topics as the entries say.
    below = np.array([share[hashes < cut].sum() for cut in kept])
    assert_allclose(below, np.append(0.0, np.cumsum(parts)[:-1]), atol=1e-5)
    # Every heavy topic has an entry of its own.
    heavy = share > 2 / 199
    assert_allclose(parts[np.isin(kept, hashes[heavy])], share[heavy], rtol=1e-4)


def test_a_sample_without_shares_is_null() -> None:
    block = decoded([record(b"eu/a", modular(None), 1)])["eu", 0]
    assert pa.array([row["topic_shares"] for row in block["samples"]]).null_count == 2
