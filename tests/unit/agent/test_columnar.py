"""When an agent sends columns, and that they contain what its JSON would have contained."""

import builtins
import json
import logging
from collections.abc import Mapping
from typing import Any

import pytest

from lb_stream.agent import Agent, AgentConfig
from lb_stream.agent.columnar import REPORTS_PER_BASE, ROSTER_INTERVAL_S, ReportEncoder
from lb_stream.contracts.columnar import (
    ReportReader,
    digest_of,
    read_columns,
    read_delta,
    read_roster,
)
from lb_stream.contracts.reads import READS_VALID_S, Reads
from lb_stream.core.model.blocks import from_bytes
from lb_stream.sim import SimBroker, build_cluster
from tests.support.decoding import KNOWN, record, rows_of

B = "broker-1:8080"


def report(bundles: int, **fields: Any) -> dict[str, Any]:
    stats = {
        f"t/n{at:04d}/0x00000000_0x80000000": {"msgRateIn": at / 3, "topics": at}
        for at in range(bundles)
    }
    return {"lastStats": stats, "loadReportType": "LocalBrokerData", "numBundles": bundles} | fields


class Clock:
    """A clock that is set by hand."""

    now_s = 1_000.0

    def __call__(self) -> float:
        return self.now_s


def encoder(min_bundles: int = 3, checkpoint: str = "one") -> tuple[ReportEncoder, Clock]:
    """An encoder that has heard that the job reads columns."""
    clock = Clock()
    made = ReportEncoder(min_bundles, clock)
    assert not made.note_reads(reads(checkpoint), [B])
    return made, clock


def reads(
    checkpoint: str = "one",
    forms: tuple[str, ...] = ("json", "columns"),
    rosters: tuple[str, ...] = (),
) -> Reads:
    return Reads(cluster="eu", forms=list(forms), checkpoint=checkpoint, rosters=list(rosters))


def kinds(made: ReportEncoder, given: Mapping[str, Any] | bytes) -> list[str]:
    return [kind for kind, _ in made.encode(B, given)]


def test_reports_are_json_until_the_job_says_that_it_reads_columns() -> None:
    made = ReportEncoder(3, Clock())
    assert kinds(made, report(5)) == ["report"]
    made.note_reads(reads(forms=("json",)), [B])
    assert kinds(made, report(5)) == ["report"]
    made.note_reads(reads(), [B])
    assert kinds(made, report(5)) == ["roster", "columns"]


def test_reports_are_json_again_once_the_job_no_longer_says_so() -> None:
    made, clock = encoder()
    clock.now_s += READS_VALID_S - 1
    assert kinds(made, report(5)) == ["roster", "columns"]
    clock.now_s += 1
    assert kinds(made, report(5)) == ["report"]
    made.note_reads(reads(), [B])
    assert kinds(made, report(5)) == ["columns"]
    made.note_reads(reads(forms=("json",)), [B])
    assert kinds(made, report(5)) == ["report"]


def test_a_roster_is_sent_once_and_again_when_bundles_change_or_time_passes() -> None:
    made, clock = encoder()
    (_, roster), (_, columns) = made.encode(B, report(5))
    assert read_columns(columns).roster == digest_of(roster)
    assert kinds(made, report(5, lastUpdate=9)) == ["columns"]
    assert kinds(made, report(6)) == ["roster", "columns"]
    clock.now_s += ROSTER_INTERVAL_S
    made.note_reads(reads(), [B])
    assert kinds(made, report(6)) == ["roster", "columns"]
    assert kinds(made, report(6)) == ["columns"]
    made.forget(B)
    assert kinds(made, report(6)) == ["roster", "columns"]


def test_another_checkpoint_gets_all_reports_and_rosters_again() -> None:
    made, _ = encoder()
    made.encode(B, report(5))
    assert not made.note_reads(reads("one"), [B, "other"])
    assert made.note_reads(reads("two"), [B, "other"]) == [B, "other"]
    assert kinds(made, report(5)) == ["roster", "columns"]
    assert made.note_reads(reads("three", forms=("json",)), [B]) == [B]
    assert kinds(made, report(5)) == ["report"]


def test_a_broker_whose_roster_the_job_lacks_sends_it_again() -> None:
    made, _ = encoder()
    for broker in (B, "other"):
        made.encode(broker, report(5))
    assert made.note_reads(reads(rosters=(B, "of another agent")), [B, "other"]) == [B]
    assert kinds(made, report(5)) == ["roster", "columns"]
    assert [kind for kind, _ in made.encode("other", report(5))] == ["columns"]


@pytest.mark.parametrize(
    "given",
    [
        report(2),
        {"bundleStats": report(9)["lastStats"], "loadReportType": "LoadReport"},
        {"weightedMaxEMA": 0.5, "bundles": list(report(9)["lastStats"])},
        {"topBundlesLoadData": []},
        report(5) | {"lastStats": {f"t/n{at}/x": {"msgRateIn": "much"} for at in range(5)}},
        report(5) | {"lastStats": {f"t/n{at}/x": {"topics": 0.5} for at in range(5)}},
        report(5) | {"lastStats": {f"t/n{at}/x": None for at in range(5)}},
        report(5) | {"lastStats": {f"t/n{at}/\ud800": {} for at in range(5)}},
    ],
    ids=["few", "simple", "extensible", "top bundles", "text", "fraction", "null", "surrogate"],
)
def test_other_reports_stay_json(given: dict[str, Any]) -> None:
    made, _ = encoder()
    ((kind, value),) = made.encode(B, json.dumps(given).encode())
    assert kind == "report" and json.loads(value) == given


def test_the_setting_zero_means_json_alone() -> None:
    made, _ = encoder(min_bundles=0)
    assert kinds(made, report(500)) == ["report"]


@pytest.mark.parametrize("form", ["fields", "bytes"])
def test_columns_contain_what_the_json_would_have_contained(form: str) -> None:
    given = report(7, cpu={"usage": 0.1 + 0.2, "limit": 3.0}, unknown=[1, 2])
    given["bundles"] = [*list(given["lastStats"]), "t/m/0x00000000_0x80000000"]
    made, _ = encoder()
    sent = made.encode(B, given if form == "fields" else json.dumps(given).encode())
    assert [kind for kind, _ in sent] == ["roster", "columns"]
    assert len(read_roster(sent[0][1])) == 8
    key = b"eu/" + B.encode()
    columns = [record(key, value, at, kind) for at, (kind, value) in enumerate(sent)]
    plain = [record(key, json.dumps(given, sort_keys=True).encode(), 1)]
    found = [
        {name: from_bytes(row[name]) for name in ("reports", "samples")}
        for records in (columns, plain)
        for row in rows_of(records, KNOWN)
        if row["cluster"] == "eu"
    ]
    assert found[0]["samples"].equals(found[1]["samples"])
    assert (
        found[0]["reports"]
        .drop_columns("digest")
        .equals(found[1]["reports"].drop_columns("digest"))
    )


def test_a_reader_of_json_gets_the_same_report_from_columns() -> None:
    given = report(4, lastUpdate=8)
    made, _ = encoder()
    reader = ReportReader()
    roster, columns = made.encode(B, given)
    assert reader.take(b"k", *columns) is None, "its roster is not known"
    assert reader.take(b"k", *roster) is None
    again = json.loads(reader.take(b"k", *columns) or b"")
    assert again.pop("bundles") == sorted(given["lastStats"])
    for name, stats in given["lastStats"].items():
        assert again["lastStats"][name].items() >= stats.items()
    assert {name: again[name] for name in given if name != "lastStats"} == {
        name: given[name] for name in given if name != "lastStats"
    }


ALL_FORMS = ("json", "columns", "deltas")


def delta_encoder() -> ReportEncoder:
    """An encoder that has heard that the job reads deltas."""
    made, _ = encoder()
    made.note_reads(reads(forms=ALL_FORMS), [B])
    return made


def changed(given: dict[str, Any], count: int, rate: float) -> dict[str, Any]:
    """Return a report in which the first bundles have another rate."""
    stats = {name: dict(stat) for name, stat in given["lastStats"].items()}
    for name in list(stats)[:count]:
        stats[name]["msgRateIn"] = rate
    return given | {"lastStats": stats}


def test_deltas_follow_a_base_and_each_is_of_that_base() -> None:
    made, given = delta_encoder(), report(6)
    (_, roster), (_, base) = made.encode(B, given)
    assert read_columns(base).is_base
    for turn in range(2):
        ((kind, value),) = made.encode(B, changed(given, turn + 1, 70.0 + turn))
        found = read_delta(value)
        assert kind == "delta" and found.base == digest_of(base)
        assert found.roster == digest_of(roster)
        assert found.rows.tolist() == [0, 1][: turn + 1]
        assert found.columns["msgRateIn"].tolist() == [70.0 + turn] * (turn + 1)
    ((_, value),) = made.encode(B, given | {"lastUpdate": 9})
    assert not len(read_delta(value).rows) and b'"lastUpdate":9' in read_delta(value).fields


def test_without_the_form_deltas_no_report_is_a_base() -> None:
    made, _ = encoder()
    for _ in range(3):
        kind, value = made.encode(B, report(6))[-1]
        assert kind == "columns" and not read_columns(value).is_base
    made.note_reads(reads(forms=ALL_FORMS), [B])
    assert kinds(made, report(6)) == ["columns"], "the base of the first delta"
    assert kinds(made, report(6)) == ["delta"]
    made.note_reads(reads(), [B])
    assert kinds(made, report(6)) == ["columns"]


def test_one_of_ten_reports_is_a_base_and_brokers_begin_at_different_times() -> None:
    made, firsts = delta_encoder(), set()
    for number in range(20):
        broker = f"broker-{number}:8080"
        sent = [[kind for kind, _ in made.encode(broker, report(6))] for _ in range(32)]
        assert sent[0] == ["roster", "columns"]
        bases = [at for at, found in enumerate(sent) if found == ["columns"]]
        firsts.add(bases[0])
        assert set(range(bases[0], 32, REPORTS_PER_BASE)) == set(bases)
        assert sum(found == ["delta"] for found in sent) == 31 - len(bases)
    assert min(firsts) >= 2 and max(firsts) <= REPORTS_PER_BASE and len(firsts) > 4


def test_a_few_moves_cost_a_roster_and_no_base() -> None:
    made, given = delta_encoder(), report(6)
    (_, roster), (_, base) = made.encode(B, given)
    reader = ReportReader()
    reader.take(b"k", "roster", roster)
    reader.take(b"k", "columns", base)
    first, *_ = stats = dict(given["lastStats"])
    stats |= {"t/z/0x00000000_0x80000000": stats.pop(first)}
    moved = given | {"lastStats": stats}
    ((kind, roster), (_, value)) = made.encode(B, moved)
    found = read_delta(value)
    assert kind == "roster" and found.roster == digest_of(roster)
    assert found.base == digest_of(base) and found.rows.tolist() == [5]
    reader.take(b"k", "roster", roster)
    again = json.loads(reader.take(b"k", "delta", value) or b"")
    assert again["bundles"] == sorted(stats)
    ((kind, value),) = made.encode(B, moved)
    assert read_delta(value).base == digest_of(base), "the roster is known, the base is the same"
    others = {f"t/y{at}/0x00000000_0x80000000": {"topics": at} for at in range(4)}
    many = given | {"lastStats": dict(list(stats.items())[:2]) | others}
    assert kinds(made, many) == ["roster", "columns"], "most are other bundles than in the base"
    assert kinds(made, many) == ["delta"]


def test_a_report_in_which_more_than_half_of_the_rows_differ_is_a_new_base() -> None:
    made, given = delta_encoder(), report(6)
    made.encode(B, given)
    assert kinds(made, changed(given, 3, 7.5)) == ["delta"]
    assert kinds(made, changed(given, 4, 7.5)) == ["columns"]
    ((_, value),) = made.encode(B, changed(given, 4, 7.5))
    assert not len(read_delta(value).rows), "the last full report is the base"


def test_where_most_rows_differ_each_time_one_of_ten_reports_is_a_base() -> None:
    made, given = delta_encoder(), report(6)
    made.encode(B, given)
    bases = []
    for at in range(1, 32):
        ((kind, value),) = made.encode(B, changed(given, 6, float(at)))
        assert kind == "columns"
        if read_columns(value).is_base:
            bases.append(at)
    assert bases == list(range(bases[0], 32, REPORTS_PER_BASE)) and len(bases) >= 3


def test_a_bundle_that_has_not_been_measured_yet_is_a_row_that_differs() -> None:
    made, given = delta_encoder(), report(6)
    given["bundles"] = [*given["lastStats"], "t/z/0x00000000_0x80000000"]
    made.encode(B, given)
    later = {**given["lastStats"], "t/z/0x00000000_0x80000000": {"topics": 0}}
    ((_, value),) = made.encode(B, given | {"lastStats": later})
    assert read_delta(value).rows.tolist() == [6] and read_delta(value).measured is None
    made.forget(B)
    made.encode(B, given | {"lastStats": later})
    ((_, value),) = made.encode(B, given)
    flags = read_delta(value).measured
    assert flags is not None and flags.tolist() == [False]


def test_lost_records_and_a_job_that_asks_get_a_roster_and_a_base() -> None:
    made, clock = encoder()
    made.note_reads(reads(forms=ALL_FORMS), [B])
    given = report(6)
    whole = ["roster", "columns"]
    assert kinds(made, given) == whole and kinds(made, given) == ["delta"]
    assert kinds(made, report(7)) == ["roster", "delta"] and kinds(made, report(7)) == ["delta"]
    made.forget(B)
    assert kinds(made, report(7)) == whole and kinds(made, report(7)) == ["delta"]
    made.note_reads(reads(forms=ALL_FORMS, rosters=(B,)), [B])
    assert kinds(made, report(7)) == whole and kinds(made, report(7)) == ["delta"]
    made.note_reads(reads("two", forms=ALL_FORMS), [B])
    assert kinds(made, report(7)) == whole and kinds(made, report(7)) == ["delta"]
    clock.now_s += ROSTER_INTERVAL_S
    made.note_reads(reads("two", forms=ALL_FORMS), [B])
    assert kinds(made, report(7)) == whole and kinds(made, report(7)) == ["delta"]


def test_without_arrow_reports_stay_json_and_one_line_says_so(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    real = builtins.__import__

    def without(name: str, *rest: Any) -> Any:
        if name == "lb_stream.contracts.columnar":
            raise ImportError("No module named 'pyarrow'")
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without)
    made, _ = encoder()
    with caplog.at_level(logging.WARNING):
        assert [kinds(made, report(5)) for _ in range(3)] == [["report"]] * 3
    assert len(caplog.records) == 1


def test_an_agent_follows_the_records_of_its_own_cluster_alone(
    caplog: pytest.LogCaptureFixture,
) -> None:
    cluster = build_cluster(1, 4, "steady", 1, 0)
    (name,) = cluster.brokers
    agent = Agent(AgentConfig("unused:9092", "eu", min_columns=1), [SimBroker(cluster, name)])

    def hear(value: bytes) -> None:
        headers = [("kind", b"reads")]
        agent._handle_records([_Record("lb-decisions", b"eu/", value, 0, headers)])

    hear(reads().model_copy(update={"cluster": "us"}).to_json().encode())
    assert kinds(agent.reporter.encoder, report(5)) == ["report"]
    hear(b"{not json")
    assert len(caplog.records) == 1
    hear(reads().to_json().encode())
    assert kinds(agent.reporter.encoder, report(5)) == ["roster", "columns"]
    assert not agent.reporter._forced
    hear(reads(rosters=(name,)).to_json().encode())
    assert agent.reporter._forced == {name}
    agent.reporter._forced.clear()
    hear(reads("two").to_json().encode())
    assert agent.reporter._forced == {name}
    assert len(caplog.records) == 1


class _Record:
    """A record of Kafka."""

    def __init__(
        self, topic: str, key: bytes, value: bytes, timestamp: int, headers: list[tuple[str, bytes]]
    ) -> None:
        self.topic, self.key, self.value = topic, key, value
        self.timestamp, self.headers = timestamp, headers
