"""What the extensible manager knows of a broker: its smoothed load, its top bundles, and whether it
has something to report."""

from random import Random

import numpy as np
import pytest

from lb_stream.agent.load_data import BrokerLoad
from lb_stream.agent.report_needed import ReportFigures, report_needed
from lb_stream.contracts.reports import ReportConfig
from lb_stream.core.model.view import Rates
from lb_stream.core.shedding.broker_loads import BrokerLoads, five_weights
from lb_stream.core.shedding.top_bundles import reported_top, rounded, sort_keys
from tests.conformance.reference_only import order_of_averages, stored_top

WEIGHTS = {"cpu": 1.0, "direct_memory": 0.0, "bandwidth_in": 1.0, "bandwidth_out": 1.0}
FIVE = ("cpu", "memory", "direct_memory", "bandwidth_in", "bandwidth_out")


def test_a_broker_counts_as_full_before_its_first_sample_and_again_after_its_bundles_changed() -> (
    None
):
    fresh = BrokerLoad()
    assert (fresh.max_usage, fresh.load, fresh.throughput, fresh.updated_ms) == (1.0, 1.0, 0.0, 0)
    resources = {name: (0.0, 100.0) for name in FIVE} | {
        "cpu": (50.0, 100.0),
        "memory": (100.0, 100.0),
    }
    first = fresh.updated(resources, 1000.0, five_weights(WEIGHTS, None), 0.9, 5)
    assert (first.max_usage, first.load, first.throughput, first.updated_ms) == (
        0.5,
        0.5,
        1000.0,
        5,
    )
    second = first.updated(
        resources | {"cpu": (100.0, 100.0)}, 2000.0, five_weights(WEIGHTS, None), 0.9, 6
    )
    assert (second.max_usage, second.load, second.throughput) == (
        1.0,
        pytest.approx(0.55),
        pytest.approx(1100.0),
    )
    assert second.cleared() == fresh


def test_heap_memory_counts_only_with_a_weight_and_direct_memory_in_the_plain_maximum_too() -> None:
    resources = {name: (10.0, 100.0) for name in FIVE} | {
        "memory": (80.0, 100.0),
        "direct_memory": (40.0, 100.0),
    }
    assert BrokerLoad().updated(
        resources, 0, five_weights(WEIGHTS, None), 0.9, 1
    ).load == pytest.approx(0.1)
    assert BrokerLoad().updated(
        resources, 0, five_weights(WEIGHTS, 0.5), 0.9, 1
    ).load == pytest.approx(0.4)
    assert BrokerLoad().updated(
        resources, 0, five_weights(WEIGHTS, 0.5), 0.9, 1
    ).max_usage == pytest.approx(0.4)


def test_columns_of_brokers_are_smoothed_as_each_broker_alone() -> None:
    random = Random(1)
    columns, ones = BrokerLoads.unknown(3), [BrokerLoad() for _ in range(3)]
    for _ in range(20):
        rows = np.array([random.random() < 0.7 for _ in ones])
        cleared = np.array([random.random() < 0.1 for _ in ones])
        usage, flow = (np.array([random.choice([0.25, 0.5, 1.5]) for _ in ones]) for _ in range(2))
        columns = columns.cleared(cleared).updated(usage, flow, 0.75, rows)
        for at, broker in enumerate(ones):
            after = broker.cleared() if cleared[at] else broker
            sample = {name: (float(usage[at]), 1.0) for name in FIVE}
            ones[at] = (
                after.updated(sample, float(flow[at]), five_weights(WEIGHTS, None), 0.75, 1)
                if rows[at]
                else after
            )
        assert columns.load.tolist() == [one.load for one in ones]
        assert columns.throughput.tolist() == [one.throughput for one in ones]
        assert columns.known.tolist() == [one.updated_ms != 0 for one in ones]


def rates(*rows: tuple[float, float, float, float]) -> Rates:
    return Rates(*(np.array(column, float) for column in zip(*rows, strict=True)))


def test_halves_are_rounded_up_and_what_is_just_below_a_half_is_not() -> None:
    values = np.array([0.5, 1.5, 2.5, -0.5, -1.5, 0.49999999999999994, 1e300, np.inf, np.nan])
    assert rounded(values).tolist() == [1.0, 2.0, 3.0, 0.0, -1.0, 0.0, 2.0**63, 2.0**63, 0.0]


def test_statistics_are_rounded_to_their_steps_and_averages_are_cut() -> None:
    four = rates((150_000, 149_999, 60, 89), (249_999, 50_000, 0, 50))
    assert [
        key.tolist() for key in sort_keys(four, np.array([499, 500]), np.array([99_999, 100_000]))
    ] == [
        [2.0, 2.0],
        [1.0, 1.0],
        [1.0, 1.0],
        [0, 1],
        [0, 1],
    ]
    assert [key.tolist() for key in order_of_averages(four, four)] == [
        [1.0, 2.0],
        [1.0, 0.0],
        [1.0, 0.0],
    ] * 2


def test_a_broker_reports_its_heaviest_bundles_the_lightest_of_them_first() -> None:
    four = rates((3e6, 0, 0, 0), (1e6, 0, 0, 0), (0, 0, 900, 900), (9e6, 0, 0, 0), (2e6, 0, 0, 0))
    zeros, allowed = np.zeros(5, np.int64), np.array([True, True, True, False, True])
    assert reported_top(four, zeros, zeros, allowed, 2).tolist() == [4, 0]
    assert reported_top(four, zeros, zeros, allowed, 9).tolist() == [1, 4, 0]
    assert reported_top(four, zeros, zeros, allowed, 0).tolist() == []


def test_connections_and_then_the_cache_decide_between_bundles_of_equal_traffic() -> None:
    four, zeros = rates(*[(1e6, 0.0, 0.0, 0.0)] * 3), np.zeros(3, np.int64)
    everybody = np.ones(3, np.bool_)
    assert reported_top(four, np.array([500, 1000, 0]), zeros, everybody, 3).tolist() == [2, 0, 1]
    assert reported_top(four, zeros, np.array([100_000, 0, 300_000]), everybody, 3).tolist() == [
        1,
        0,
        2,
    ]


def test_the_leader_stores_the_heaviest_bundles_first_and_all_of_them_when_no_number_is_set() -> (
    None
):
    short, long = (
        rates((1e6, 0, 0, 0), (1.05e6, 0, 0, 0), (5e6, 0, 0, 0)),
        rates((2e6, 0, 0, 0), (3e6, 0, 0, 0), (0, 0, 0, 0)),
    )
    assert stored_top(short, long, 2).tolist() == [2, 1]
    assert stored_top(short, long, 0).tolist() == stored_top(short, long, -1).tolist() == [0, 1, 2]


BEFORE = ReportFigures(usage=0.5, msgs_per_s=100.0, bytes_per_s=1000.0, bundles=10)


@pytest.mark.parametrize(
    ("now", "elapsed_ms", "needed"),
    [
        (BEFORE, 900_000, False),
        (BEFORE, 900_001, True),
        (ReportFigures(0.625, 100, 1000, 10), 0, True),
        (ReportFigures(0.375, 100, 1000, 10), 0, True),
        (ReportFigures(0.5, 110, 1000, 10), 0, False),
        (ReportFigures(0.5, 111, 1000, 10), 0, True),
        (ReportFigures(0.5, 100, 899, 10), 0, True),
        (ReportFigures(0.5, 100, 1000, 11), 0, False),
        (ReportFigures(0.5, 100, 1000, 12), 0, True),
    ],
)
def test_a_report_is_needed_after_long_enough_or_when_something_changed_by_more_than_a_tenth(
    now: ReportFigures, elapsed_ms: int, needed: bool
) -> None:
    assert report_needed(BEFORE, now, elapsed_ms, ReportConfig()) is needed


def test_traffic_where_there_was_none_is_always_worth_a_report() -> None:
    idle = ReportFigures(0.5, 0.0, 0.0, 0)
    never = ReportConfig(report_threshold_percent=1e300)
    assert not report_needed(idle, idle, 0, ReportConfig(report_threshold_percent=0))
    assert report_needed(idle, ReportFigures(0.5, 0.0, 0.1, 0), 0, never)
