"""Scenarios of recorded loads: what is taken over, what is inferred, what is assumed and said."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from lb_stream.contracts.tables import BROKER_HISTORY, BROKER_LOADS, BUNDLE_HISTORY
from lb_stream.core.model.memory import Memory
from lb_stream.core.model.operator_state import OperatorState
from lb_stream.sim.scenario.capacities import (
    deduplicate_reports,
    fit_non_negative,
    infer_capacities,
)
from lb_stream.sim.scenario.errors import ScenarioError
from lb_stream.sim.scenario.from_history import LoadHistory, build_from_history
from lb_stream.sim.scenario.reading import read_scenario
from lb_stream.sim.scenario.scenario import Event, ScenarioAntiAffinity, ScenarioIsolation
from lb_stream.sim.scenario.writing import write_scenario
from tests.support.scenarios import same
from tests.support.wordings import check_wording

MINUTE_MS = 60_000
A, B, C = "a:8080", "b:8080", "c:8080"
WHOLE, LOW, HIGH = (
    f"shop/orders/0x{bounds}"
    for bounds in ("00000000_0xffffffff", "00000000_0x40000000", "40000000_0xffffffff")
)
CARTS = "shop/carts/0x00000000_0xffffffff"


def bundles(*rows: tuple[int, str, str | None, float]) -> pa.Table:
    """Rows of minute, bundle, owner, rate in; bytes are a hundred times that, out is twice in."""
    given = [
        {
            "slot_ms": minute * MINUTE_MS,
            "cluster": "eu",
            "bundle": bundle,
            "owner": owner,
            "topics": 3,
            "producers": 2,
            "consumers": 4,
        }
        | {"rate_in_msgs_per_s": rate, "rate_out_msgs_per_s": 2 * rate}
        | {"throughput_in_bytes_per_s": 100 * rate, "throughput_out_bytes_per_s": 200 * rate}
        for minute, bundle, owner, rate in rows
    ]
    return pa.Table.from_pylist(given, BUNDLE_HISTORY.schema)


def report(
    minute: int,
    broker: str,
    rate: float,
    size: float = 100.0,
    cores: float = 4.0,
    slowness: float = 1.0,
) -> dict[str, Any]:
    """A broker that needs a hundredth of a core for 100 msg/s, and one for 10 kB/s."""
    used = slowness * (rate / 100 + rate * size / 10_000)
    known = {
        "cpu": (used, 100 * cores),
        "memory": (1024.0, 4096.0),
        "direct_memory": (256.0, 2048.0),
    }
    known |= {
        "bandwidth_in": (rate * size / 125 / 2, 1e6),
        "bandwidth_out": (rate * size / 125, 1e6),
    }
    row: dict[str, Any] = {
        "slot_ms": minute * MINUTE_MS,
        "cluster": "eu",
        "broker": broker,
        "reported_ms": minute * MINUTE_MS + 7_000,
    }
    row |= {
        f"{name}_{part}": value
        for name, pair in known.items()
        for part, value in zip(("usage", "limit"), pair, strict=True)
    }
    halves = {"rate_in_msgs_per_s": rate / 2, "rate_out_msgs_per_s": rate / 2}
    return (
        row
        | halves
        | {
            "throughput_in_bytes_per_s": rate * size / 2,
            "throughput_out_bytes_per_s": rate * size / 2,
        }
    )


def brokers(*rows: dict[str, Any]) -> pa.Table:
    return pa.Table.from_pylist(list(rows), BROKER_HISTORY.schema)


def lives(*rows: tuple[int, str, bool, int]) -> pa.Table:
    schema = pa.schema(
        [BROKER_LOADS.schema.field(name) for name in ("now_ms", "broker", "alive", "seen_ms")]
    )
    return pa.Table.from_pylist([dict(zip(schema.names, row, strict=True)) for row in rows], schema)


EVERYBODY = brokers(
    *(report(minute, broker, 1_000.0) for minute in range(4) for broker in (A, B, C))
)
NOBODY = pa.table(
    {
        "at_ms": pa.array([], pa.int64()),
        "kind": pa.array([], pa.string()),
        "broker": pa.array([], pa.string()),
    }
)
CALM = LoadHistory(
    cluster="eu",
    from_ms=0,
    to_ms=4 * MINUTE_MS,
    resolution_ms=MINUTE_MS,
    bundles=bundles((0, CARTS, A, 10.0), (0, LOW, B, 20.0), (0, HIGH, C, 30.0), (2, LOW, B, 25.0)),
    brokers=EVERYBODY,
    alive=lives((5_000, A, True, 5_000), (5_000, B, True, 5_000), (5_000, C, True, 5_000)),
    drains=NOBODY,
)


def of(**changed: Any) -> LoadHistory:
    return dataclasses.replace(CALM, **changed)


def rates(history: LoadHistory) -> dict[str, list[float]]:
    scenario = build_from_history(history).scenario
    return {
        name: scenario.loads[0, row].tolist() for row, name in enumerate(scenario.bundles.names)
    }


def test_a_bundle_carries_in_each_step_what_its_last_row_says() -> None:
    scenario = build_from_history(CALM).scenario
    assert rates(CALM) == {CARTS: [10.0] * 4, HIGH: [30.0] * 4, LOW: [20.0, 20.0, 25.0, 25.0]}
    assert scenario.loads[:, 2, 0].tolist() == [30.0, 60.0, 3_000.0, 6_000.0]
    assert (scenario.tick_s, scenario.ticks, scenario.load_step_ticks) == (10.0, 24, 6)
    assert [scenario.brokers.names[row] for row in scenario.bundles.start_owner] == [A, B, C]
    assert (
        scenario.bundles.topics[0],
        scenario.bundles.producers[0],
        scenario.bundles.consumers[0],
    ) == (3, 2, 4)


def test_rows_from_before_the_begin_count_until_a_later_one_comes() -> None:
    history = of(
        bundles=bundles((0, CARTS, A, 1.0), (1, CARTS, B, 2.0), (3, CARTS, C, 3.0)),
        from_ms=2 * MINUTE_MS,
    )
    scenario = build_from_history(history).scenario
    assert rates(history) == {CARTS: [2.0, 3.0]}
    assert scenario.bundles.start_owner.tolist() == [1], "b, not a, has it at the begin"


def test_what_comes_after_the_end_does_not_count() -> None:
    assert rates(
        of(to_ms=65_000, bundles=bundles((0, CARTS, A, 1.0), (1, CARTS, B, 2.0), (1, LOW, B, 3.0)))
    ) == {CARTS: [1.0]}


def test_what_comes_later_carries_nothing_before_and_begins_with_its_first_owner() -> None:
    history = of(bundles=bundles((0, CARTS, A, 1.0), (1, LOW, None, 2.0), (2, LOW, B, 3.0)))
    scenario = build_from_history(history).scenario
    assert rates(history) == {CARTS: [1.0] * 4, LOW: [0.0, 2.0, 3.0, 3.0]}
    assert scenario.bundles.start_owner.tolist() == [0, 1]


def test_the_parts_of_a_bundle_that_was_split_carry_its_load_before() -> None:
    rows = bundles(
        (0, WHOLE, A, 40.0), (2, WHOLE, None, 40.0), (2, LOW, A, 8.0), (2, HIGH, B, 32.0)
    )
    made = build_from_history(of(bundles=rows))
    assert made.scenario.bundles.names == (LOW, HIGH)
    np.testing.assert_allclose(
        made.scenario.loads[0], [[10, 10, 8, 8], [30, 30, 32, 32]], rtol=1e-6
    )
    assert made.scenario.bundles.start_owner.tolist() == [0, 0]
    assert any("1 bundles were split" in note for note in made.notes)


def test_brokers_own_bundles_are_left_out() -> None:
    rows = bundles((0, "pulsar/eu/a:8080/0x00000000_0xffffffff", A, 1.0), (0, CARTS, A, 1.0))
    assert list(rates(of(bundles=rows))) == [CARTS]


def test_deaths_returns_and_new_brokers_are_events_at_ticks() -> None:
    at_first = (5_000, A, True, 5_000), (5_000, B, False, 1_000)
    alive = lives(
        *at_first, (60_000, A, False, 21_000), (70_000, B, True, 70_000), (80_000, C, True, 80_000)
    )
    scenario = build_from_history(of(alive=alive)).scenario
    assert scenario.brokers.up.tolist() == [True, False, False]
    assert scenario.events == (Event(30.0, 0, "crash"), Event(70.0, 1, "up"), Event(80.0, 2, "up"))
    assert scenario.bundles.start_owner.tolist() == [0, -1, -1], "who is down has none"


def test_drains_are_events_and_those_that_change_nothing_are_none() -> None:
    drains = pa.table(
        {
            "at_ms": [15_000, 20_000, 90_000],
            "kind": ["drain-broker", "drain-broker", "undrain-broker"],
            "broker": [B, B, C],
        }
    )
    memory = Memory(operator_state=OperatorState(drained=(C,))).to_json()
    assert build_from_history(of(drains=drains, memory=memory)).scenario.events == (
        Event(0.0, 2, "drain"),
        Event(20.0, 1, "drain"),
        Event(90.0, 2, "undrain"),
    )


def test_the_present_has_brokers_as_they_are_at_the_end_of_the_history() -> None:
    """One that came, went or was drained within the last slot is there, gone or drained."""
    alive = lives(
        (5_000, A, True, 5_000), (235_000, A, False, 205_000), (5_000, B, False, 1_000),
        (6_000, C, True, 6_000), (70_000, B, True, 70_000),
    )  # fmt: skip
    drains = pa.table(
        {
            "at_ms": [15_000, 20_000, 239_000],
            "kind": ["drain-broker", "undrain-broker", "drain-broker"],
            "broker": [B, B, C],
        }
    )
    scenario = build_from_history(of(alive=alive, drains=drains), from_end=True).scenario
    assert scenario.brokers.up.tolist() == [False, True, True]
    assert scenario.events == (Event(0.0, 2, "drain"),)
    assert scenario.bundles.start_owner.tolist()[0] == -1


def test_rules_of_operators_are_told_in_names() -> None:
    isolation = {
        "name": "carts",
        "namespaces": ["shop/c.*"],
        "primary": ["a"],
        "secondary": ["[bc]"],
        "min_available": 1,
    }
    other = isolation | {"name": "other", "namespaces": ["nobody/.*"]}
    operator_state = OperatorState(
        isolation={"carts": isolation, "other": other},
        anti_affinity={"shop/carts": "G", "shop/orders": "g"},
    )
    history = of(
        memory=Memory(operator_state=operator_state).to_json(),
        settings={"shedding_excluded_namespaces": ["shop/carts", "shop/gone"]},
    )
    made = build_from_history(history)
    policies = made.scenario.policies
    assert policies.isolation == (ScenarioIsolation("carts", ("shop/carts",), (0,), (1, 2), 1),)
    assert policies.anti_affinity == (ScenarioAntiAffinity("g", ("shop/carts", "shop/orders")),)
    assert policies.pinned_namespaces == ("shop/carts",)
    assert "left out: the isolation policy other names no namespace of this time" in made.notes
    together = build_from_history(
        dataclasses.replace(history, bundles=bundles((0, CARTS, A, 1.0), (0, LOW, A, 1.0)))
    )
    assert together.scenario.policies.anti_affinity == ()
    assert "left out: the anti-affinity group g, which is broken at the start" in together.notes


def test_cpu_follows_messages_and_bytes_and_a_slower_broker_is_found() -> None:
    rows = [
        report(minute, broker, 500.0 + 100 * minute, 50.0 * (1 + minute), cores, slowness)
        for minute in range(5)
        for broker, cores, slowness in ((A, 4.0, 1.0), (B, 8.0, 1.0), (C, 4.0, 1.0))
    ]
    made = build_from_history(of(brokers=brokers(*rows))).scenario.brokers
    np.testing.assert_allclose(made.cpu_msgs_per_s, [40_000, 80_000, 40_000], rtol=1e-9)
    np.testing.assert_allclose(made.cpu_bytes_per_s, [4e6, 8e6, 4e6], rtol=1e-9)
    slow = [
        row | ({"cpu_usage": 2 * row["cpu_usage"]} if row["broker"] == C else {}) for row in rows
    ]
    made = build_from_history(of(brokers=brokers(*slow))).scenario.brokers
    np.testing.assert_allclose(made.cpu_msgs_per_s / made.cpu_msgs_per_s[0], [1, 2, 0.5], rtol=1e-6)


def noisy(errors: Any, base: float = 0.0, rates: Any = (500.0, 1000.0, 1500.0)) -> pa.Table:
    """Reports of three equal brokers, whose cpu has these errors, in hundredths of a core.

    `base`: cpu without load. Each broker has one of the rates, by turns.
    """
    rows = [
        (minute, broker, rates[(minute + row) % len(rates)])
        for minute in range(len(errors) // 3)
        for row, broker in enumerate((A, B, C))
    ]
    reports = [report(minute, broker, rate, 1.0, cores=1.0) for (minute, broker, rate) in rows]
    used = [row["cpu_usage"] + base + error for row, error in zip(reports, errors, strict=True)]
    return brokers(*(row | {"cpu_usage": cpu} for row, cpu in zip(reports, used, strict=True)))


def test_noise_of_a_few_reports_makes_no_broker_unlike_the_others() -> None:
    errors = [9.0, -4.0, 0.0, 6.0, 0.0, -5.0, 7.0, -6.0, 1.0]
    made = build_from_history(of(brokers=noisy(errors, rates=(3000.0, 4000.0, 5000.0))))
    speeds = made.scenario.brokers.cpu_msgs_per_s
    assert speeds.tolist() == [speeds[0]] * 3
    assert made.scenario.brokers.cpu_base is None
    assert made.error is not None and 0.03 < made.error < 0.06


def test_cpu_without_load_is_found_and_is_no_reason_to_move_a_bundle(tmp_path: Any) -> None:
    errors = [0.5, -0.5, 0.2, -0.2, 0.4, -0.4, 0.1, -0.1, 0.0]
    made = build_from_history(of(brokers=noisy(errors, 30.0)))
    assert made.scenario.brokers.cpu_base == pytest.approx([0.3] * 3, abs=0.01)
    usage = 1000 / made.scenario.brokers.cpu_msgs_per_s
    usage += 1000 / made.scenario.brokers.cpu_bytes_per_s
    assert usage == pytest.approx([0.101] * 3, abs=0.01)
    assert made.error == pytest.approx(0.003, abs=0.001)
    write_scenario(made.scenario, tmp_path)
    assert same(read_scenario(tmp_path), made.scenario)


def test_a_slower_broker_is_found_beside_cpu_without_load() -> None:
    errors = [0.5, -0.5, 0.2, -0.2, 0.4, -0.4, 0.1, -0.1, 0.0] * 2
    table = noisy(errors, 10.0, rates=(1000.0, 2000.0, 4000.0)).to_pylist()
    slow = [
        row | {"cpu_usage": 2 * row["cpu_usage"] - 10.0} if row["broker"] == C else row
        for row in table
    ]
    found = build_from_history(of(brokers=brokers(*slow))).scenario.brokers
    speeds = found.cpu_msgs_per_s / found.cpu_msgs_per_s[0]
    assert speeds[1] == pytest.approx(1.0, abs=0.1)
    assert speeds[2] == pytest.approx(0.5, abs=0.1)
    assert found.cpu_base == pytest.approx([0.1] * 3, abs=0.03)


@pytest.mark.parametrize(
    ("errors", "rates"),
    [
        pytest.param([0.0] * 9, (500.0, 1000.0, 1500.0), id="nothing is missed"),
        pytest.param(
            [1.0, 0.5, 0.0, 1.0, 0.5, 0.0, 1.0, 0.5, 0.0],
            (950.0, 1000.0, 1050.0),
            id="load jitters",
        ),
    ],
)
def test_cpu_without_load_is_not_made_of_noise(errors: list[float], rates: Any) -> None:
    made = build_from_history(of(brokers=noisy(errors, rates=rates)))
    assert made.scenario.brokers.cpu_base is None
    assert made.scenario.format == 1


def test_usages_of_which_no_report_shows_anything_have_no_error() -> None:
    mute = [report(0, broker, 100.0) | {"cpu_usage": 0.0} for broker in (A, B, C)]
    assert build_from_history(of(brokers=brokers(*mute))).error is None


def test_bandwidth_is_what_is_left_beside_other_traffic_and_memory_is_as_reported() -> None:
    made = build_from_history(CALM)
    assert made.scenario.brokers.bandwidth_in_bytes_per_s.tolist() == [125e6] * 3
    assert made.scenario.brokers.bandwidth_out_bytes_per_s.tolist() == [125e6 / 2] * 3
    assert "bandwidth out: brokers use 2 times what their bundles carry" in made.notes
    assert made.scenario.brokers.direct_memory_bytes.tolist() == [2048 * 2**20] * 3
    assert made.scenario.brokers.direct_memory_base_bytes.tolist() == [256 * 2**20 - 50_000] * 3


def test_what_nothing_tells_is_assumed_and_said() -> None:
    bare = {name: None for name in BROKER_HISTORY.schema.names}
    mute = brokers(
        *(
            bare | {"slot_ms": 0, "cluster": "eu", "broker": broker, "reported_ms": 5_000}
            for broker in (A, B, C)
        )
    )
    made = build_from_history(of(brokers=mute, alive=CALM.alive.slice(0, 0)))
    text = "\n".join(made.notes)
    for said in (
        "cpu: no report shows",
        "3 brokers report no limit of memory",
        "assumed: release_s = 2, acquire",
        "no round says which",
    ):
        assert said in text
    assert (made.scenario.brokers.cpu_msgs_per_s > 0).all() and made.scenario.brokers.up.all()
    measured = build_from_history(of(release_s=3.0, acquire_s=5.0, report_interval_s=28.0))
    assert (measured.scenario.move.release_s, measured.scenario.move.acquire_s) == (2.0, 4.0)
    assert measured.scenario.report_interval_s == 30.0


def test_a_limit_that_a_broker_never_states_stays_unstated(tmp_path: Any) -> None:
    rows = [
        report(minute, broker, 100.0)
        | ({"bandwidth_in_limit": 0.0, "bandwidth_out_limit": -1.0} if broker == B else {})
        for minute in range(3)
        for broker in (A, B, C)
    ]
    scenario = build_from_history(of(brokers=brokers(*rows))).scenario
    assert scenario.format == 2
    assert set(scenario.brokers.stated) == {"bandwidth_in", "bandwidth_out"}
    for limit in ("bandwidth_in", "bandwidth_out"):
        stated = scenario.brokers.stated_limit(limit)
        assert [value > 0 for value in stated.tolist()] == [True, False, True]
    assert (scenario.brokers.bandwidth_in_bytes_per_s > 0).all()
    write_scenario(scenario, tmp_path)
    assert same(read_scenario(tmp_path), scenario)
    assert build_from_history(CALM).scenario.format == 1


def test_bundles_can_be_split_where_topics_shares_are_recorded(tmp_path: Any) -> None:
    shares = pa.table(
        {
            "bundle": [CARTS, "shop/gone/0x00000000_0xffffffff"],
            "topic_hashes": [[1 << 31, 5, 7], [3]],
            "topic_shares": [[0.2, 0.7, 0.1], [1.0]],
        }
    )
    made = build_from_history(of(topics=shares))
    scenario = made.scenario
    assert scenario.format == 2
    assert scenario.splits is not None
    assert scenario.topics is not None
    row = scenario.bundles.names.index(CARTS)
    hashes, parts = scenario.topics.of(row)
    assert hashes.tolist() == [5, 7, 1 << 31]
    assert parts == pytest.approx([0.7, 0.1, 0.2])
    for other in range(len(scenario.bundles)):
        assert len(scenario.topics.of(other)[0]) == scenario.bundles.topics[other] >= 1
    assert any(note.startswith("topics of 1 bundles") for note in made.notes)
    write_scenario(scenario, tmp_path)
    assert same(read_scenario(tmp_path), scenario)
    without = build_from_history(of(topics=shares.slice(1))).scenario
    assert (without.topics, without.splits) == (None, None)


def test_a_report_that_several_slots_have_found_counts_once() -> None:
    rows = [report(minute, A, 100.0) | {"reported_ms": 5} for minute in range(3)] + [
        report(3, A, 100.0) | {"reported_ms": 6}
    ]
    assert len(deduplicate_reports(brokers(*rows))) == 2


@pytest.mark.parametrize(
    ("first", "second", "wanted", "parts"),
    [
        ([1.0, 2.0, 3.0], [1.0, 1.0, 5.0], [3.0, 4.0, 13.0], (1.0, 2.0)),
        ([1.0, 2.0], [2.0, 4.0], [4.0, 8.0], (2.0, 1.0)),  # they go together
        ([1.0, 2.0, 3.0], [3.0, 2.0, 1.0], [3.0, 2.0, 1.0], (0.0, 1.0)),
        ([0.0, 0.0], [0.0, 0.0], [1.0, 2.0], (0.0, 0.0)),
        ([1.0, 2.0], [0.0, 0.0], [3.0, 6.0], (3.0, 0.0)),
    ],
)
def test_no_part_of_a_fit_is_below_nothing(
    first: Any, second: Any, wanted: Any, parts: tuple[float, float]
) -> None:
    assert fit_non_negative(np.array(first), np.array(second), np.array(wanted)) == pytest.approx(
        parts
    )
    assert (
        infer_capacities(EVERYBODY, np.zeros(len(EVERYBODY), np.int64), 1).columns["cpu_msgs_per_s"]
        > 0
    )


def test_what_is_made_can_be_written_and_read(tmp_path: Any) -> None:
    scenario = build_from_history(CALM).scenario
    write_scenario(scenario, tmp_path)
    again = read_scenario(tmp_path)
    assert again.bundles.names == scenario.bundles.names
    assert np.array_equal(again.loads, scenario.loads)


@pytest.mark.parametrize(
    ("changed", "tick_s"),
    [
        (
            {},
            7.0,
        ),
        (
            {"bundles": CALM.bundles.slice(0, 0)},
            10.0,
        ),
        (
            {"to_ms": 0},
            10.0,
        ),
    ],
)
def test_there_is_no_scenario_of_nothing(changed: dict[str, Any], tick_s: float) -> None:
    with pytest.raises(ScenarioError) as error:
        build_from_history(of(**changed), tick_s)
    check_wording(error.value)
