"""What the extensible manager's brokers say, in two records, and what acknowledgements change
before a report does."""

import json
from dataclasses import replace
from typing import Any

import pytest

from lb_stream.contracts.reports import BundleStats
from lb_stream.core.averages import FoldConfig, fold
from lb_stream.core.averages.cluster_view import view_of
from lb_stream.core.model.blocks import EVENT_SCHEMA, Batch, Shard
from lb_stream.core.model.memory import Memory, Pending
from lb_stream.core.model.view import ClusterView
from lb_stream.core.round.decide import Inbox, Round, decide
from lb_stream.core.shedding.transfer import TransferMemory, TransferShedderConfig, observe
from lb_stream.settings.resolve import cluster_config
from lb_stream.stream.records import RecordRejected, parse_report
from tests.support.build import Event, Report, batch_of

X, Y, Z = (f"t/n/0x{at}0000000_0x{at + 1}0000000" for at in range(3))
STATS = BundleStats(msg_rate_in=100.0, topics=3)


def load_data(**fields: Any) -> bytes:
    return json.dumps(
        {"weightedMaxEMA": 0.25, "msgThroughputEMA": 5e6, "cpu": {"usage": 40.0, "limit": 100.0}}
        | fields
    ).encode()


def top(*bundles: str) -> bytes:
    stats = {"msgRateIn": 100.0, "topics": 3}
    return json.dumps(
        {"topBundlesLoadData": [{"bundleName": bundle, "stats": stats} for bundle in bundles]}
    ).encode()


def folded(
    *given: tuple[str, bytes], shard: Shard | None = None, at_ms: int = 1_000
) -> tuple[Shard, list[dict[str, Any]]]:
    """After one batch of such records."""
    records = [parse_report(value, broker) for broker, value in given]
    named = [
        {
            name: STATS if name in record.stats else None
            for name in (*record.stats, *record.unmeasured)
        }
        for record in records
    ]
    reports = [
        Report(record.broker, at_ms, bundles, offset=at_ms + place)
        for place, (record, bundles) in enumerate(zip(records, named, strict=True))
    ]
    batch = batch_of(reports)
    rows = [
        row | record.fields for row, record in zip(batch.reports.to_pylist(), records, strict=True)
    ]
    table = type(batch.reports).from_pylist(rows, batch.reports.schema)
    shard, refused = fold(
        shard or Shard.empty(), Batch(table, batch.samples, batch.events), at_ms, FoldConfig()
    )
    return shard, refused.to_pylist()


def view(shard: Shard) -> ClusterView:
    return view_of("c", [shard], 1_000, {"cpu": 1.0})


def owners(shard: Shard) -> dict[str, str | None]:
    seen = view(shard)
    rows = zip(seen.bundles.names.to_pylist(), seen.bundles.owner.tolist(), strict=True)
    return {name: seen.brokers.names[owner] if owner >= 0 else None for name, owner in rows}


def test_load_data_gives_the_brokers_load_and_top_bundles_their_statistics() -> None:
    shard, refused = folded(("a", load_data(bundleCount=40, topics=7)), ("a", top(X, Y)))
    seen = view(shard)
    assert not refused and owners(shard) == {X: "a", Y: "a"}
    assert (seen.brokers.load_ema.tolist(), seen.brokers.throughput_ema.tolist()) == ([0.25], [5e6])
    assert (seen.brokers.usage.round(3).tolist(), seen.brokers.topics.tolist()) == ([0.4], [7])
    assert seen.bundles.latest.rate_in.tolist() == [100.0, 100.0]


def test_a_bundle_that_is_no_longer_among_the_top_ones_stays_its_owners() -> None:
    shard, _ = folded(("a", load_data()), ("a", top(X, Y)))
    shard, _ = folded(
        ("a", load_data(cpu={"usage": 50.0, "limit": 100.0})),
        ("a", top(Y)),
        shard=shard,
        at_ms=2_000,
    )
    assert owners(shard) == {X: "a", Y: "a"}
    since = dict(
        zip(
            shard.bundles["name"].to_pylist(),
            shard.bundles["owner_since_ms"].to_pylist(),
            strict=True,
        )
    )
    assert since == {X: 1_000, Y: 1_000}
    shard, _ = folded(("b", load_data()), ("b", top(X)), shard=shard, at_ms=3_000)
    assert owners(shard) == {X: "b", Y: "a"}, "another broker names it: it is that one's"


def test_a_broker_that_names_all_its_bundles_loses_those_that_it_leaves_out() -> None:
    shard, _ = folded(("a", load_data(bundles=[X, Y, Z])), ("a", top(X)))
    assert owners(shard) == {X: "a", Y: "a", Z: "a"}
    shard, _ = folded(("a", load_data(bundles=[X, Y])), ("a", top(Y)), shard=shard, at_ms=2_000)
    assert owners(shard) == {X: "a", Y: "a", Z: None}


def test_top_bundles_of_a_broker_whose_load_nobody_knows_are_refused() -> None:
    shard, refused = folded(("a", top(X)))
    assert len(shard.brokers) == len(shard.bundles) == 0
    assert [json.loads(one["payload"])["field"] for one in refused] == ["key"]


def test_the_shedder_takes_the_loads_that_brokers_have_smoothed_themselves() -> None:
    config = cluster_config({"load_manager": "extensible"})
    shard, _ = folded(("a", load_data(weightedMaxEMA=0.75)), ("a", top(X)))
    remembered = observe(view(shard), TransferShedderConfig(), TransferMemory.read({}))
    assert (
        remembered.to_dict()["brokers"] == {"a": [0.75, 5e6, 1]}
        and config.shedder.name == "TransferShedder"
    )


def test_other_forms_report_no_smoothed_load() -> None:
    shard, _ = fold(Shard.empty(), batch_of([Report("a", 1_000)]), 1_000, FoldConfig())
    assert str(view(shard).brokers.load_ema.tolist()) == "[nan]"


@pytest.mark.parametrize(
    ("value", "field"),
    [
        (b'{"weightedMaxEMA": "high"}', "weightedMaxEMA"),
        (b'{"weightedMaxEMA": 0.1, "cpu": {"usage": "x"}}', "cpu.usage"),
        (b'{"topBundlesLoadData": [{"stats": {}}]}', "topBundlesLoadData.0.bundleName"),
        (b'{"state": "Owned", "versionId": 3}', "loadReportType"),
    ],
)
def test_what_is_wrong_in_them_is_named(value: bytes, field: str) -> None:
    with pytest.raises(RecordRejected) as raised:
        parse_report(value, "a")
    assert raised.value.field == field


# --- acknowledgements ---


def acked(
    shard: Shard, broker: str, outcome: str, bundle: str | None, at_ms: int, *reports: Report
) -> Shard:
    """After one batch with an acknowledgement."""
    row = {
        "kind": "ack",
        "broker": broker,
        "topic": "reports",
        "partition": 0,
        "offset": at_ms,
        "append_ms": at_ms,
    }
    payload = json.dumps({"decision_id": "c:1:0", "outcome": outcome, "bundle": bundle})
    batch = batch_of(list(reports), [Event("heartbeat", broker, at_ms, offset=at_ms - 1)])
    events = EVENT_SCHEMA.empty_table().from_pylist(
        [*batch.events.to_pylist(), row | {"payload": payload}], EVENT_SCHEMA
    )
    return fold(shard, Batch(batch.reports, batch.samples, events), at_ms, FoldConfig())[0]


@pytest.fixture
def owned() -> Shard:
    return fold(
        Shard.empty(),
        batch_of([Report("a", 1_000, {X: STATS}), Report("b", 1_001, {Y: STATS})]),
        1_001,
        FoldConfig(),
    )[0]


def test_a_bundle_changes_hands_with_the_acknowledgements_that_name_it(owned: Shard) -> None:
    released = acked(owned, "a", "released", X, 2_000)
    assert owners(released) == {X: None, Y: "b"}
    assert released.bundles.filter(released.bundles["gained"])["owner_since_ms"].to_pylist() == [
        2_000
    ]
    assert owners(acked(released, "b", "acquired", X, 3_000)) == {X: "b", Y: "b"}


@pytest.mark.parametrize(
    ("broker", "outcome", "bundle"),
    [
        ("a", "released", None),
        ("a", "refused", X),
        ("b", "released", X),
        ("nobody", "acquired", X),
        ("a", "acquired", Z),
        ("a", "split", X),
    ],
)
def test_others_change_nothing(owned: Shard, broker: str, outcome: str, bundle: str | None) -> None:
    assert owners(acked(owned, broker, outcome, bundle, 2_000)) == {X: "a", Y: "b"}


def test_a_later_report_has_the_last_word(owned: Shard) -> None:
    again = Report("a", 2_001, {X: STATS}, offset=2_001)
    assert owners(acked(owned, "a", "released", X, 2_000, again))[X] == "a"
    before = Report("a", 1_999, {X: STATS}, offset=1_999)
    assert owners(acked(owned, "a", "released", X, 2_000, before))[X] is None
    other = Report("b", 2_005, {X: STATS, Y: STATS}, partition=1)
    assert owners(acked(owned, "a", "acquired", X, 2_000, other))[X] == "b"


def test_a_transfers_destination_takes_over_on_the_sources_acknowledgement_before_any_report(
    owned: Shard,
) -> None:
    config = cluster_config(
        {"load_manager": "extensible", "dry_run": False, "shedding_enabled": False}
    )

    def round_of(shard: Shard, memory: Memory, now_ms: int) -> Round:
        seen = view_of("c", [shard], now_ms, config.balancer.weights)
        return decide(seen, memory, Inbox(), config)

    memory = round_of(owned, Memory(), 1_001).memory
    pending = Pending("c:1:9", "transfer", X, "a", "b", 1_500, 61_500, version=2)
    memory = replace(memory, pending=(pending,), versions={X: 2})
    assert round_of(owned, memory, 1_900).decisions == (), "still with its source"
    released = acked(owned, "a", "released", X, 2_000)
    done = round_of(released, memory, 2_000)
    assert [
        (decision.kind, decision.destination, decision.rule) for decision in done.decisions
    ] == [("assign", "b", "released")]
    assert [
        (one.state, one.source, one.destination, one.version, one.force) for one in done.ownership
    ] == [("Assigning", "a", "b", 3, False)]
    taken = round_of(acked(released, "b", "acquired", X, 3_000), done.memory, 3_000)
    assert [
        (one.state, one.owner, one.source, one.version, one.force) for one in taken.ownership
    ] == [("Owned", "b", "a", 4, False)]
    assert taken.memory.pending == ()
