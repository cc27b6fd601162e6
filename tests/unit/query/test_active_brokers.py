"""What is called even is about the brokers that are to carry load, on every screen alike."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from lb_stream.core.commands.responder import Received
from lb_stream.core.model.memory import Memory
from lb_stream.core.model.view import Floats
from lb_stream.job.metrics.broker_metrics import BrokerMetrics
from lb_stream.job.metrics.round_figures import RoundFigures
from lb_stream.kit.demo.watch import DemoState, throughput_imbalance
from lb_stream.operations.drain_broker import DrainBroker
from lb_stream.query import snapshot
from lb_stream.query.health import Facts, JobFacts
from lb_stream.query.lake import open_lake, query_columns
from lb_stream.query.past.report_figures import load_cluster_figures
from lb_stream.query.screens.over_time import build_cluster_chart
from lb_stream.query.screens.overview import load_overview
from lb_stream.query.status_facts import load_cluster_facts
from lb_stream.sim import build_cluster
from lb_stream.sim.measures.figures import measure_trace
from lb_stream.sim.simulation.prediction import _build_prediction
from lb_stream.store import Store
from tests.support.lbctl_runner import lbctl
from tests.support.recorded_tables import DEMO, START_MS, Recorder
from tests.support.sim_loop import ClosedLoop
from tests.support.small_scenario import event, small_scenario

NO_JOB = Facts(0, JobFacts("p"))


@pytest.fixture(scope="module")
def drained(tmp_path_factory: pytest.TempPathFactory) -> Recorder:
    """Six brokers of which two have been drained; one of them never got a bundle again."""
    settings = json.loads(json.dumps(dict(DEMO) | {"mode": "act"}))
    cluster = build_cluster(6, 48, "hot_spot", 1, START_MS, at_s=5.0)
    loop = ClosedLoop(cluster, settings, START_MS, Memory(epoch=1))
    recorder = Recorder(tmp_path_factory.mktemp("drained") / "tables", loop, settings)
    recorder.run(5)
    names = sorted(cluster.brokers)
    for name in names[1:3]:
        loop.commands.append(Received.from_command(DrainBroker(id=name, broker=name), loop.now_ms))
    recorder.run(40)
    return recorder


def even_parts(recorder: Recorder, column: str) -> Floats:
    """Throughputs or usages that the last round saw, of the brokers that are not drained."""
    view = recorder.loop.view
    assert view is not None
    kept = ~np.isin(view.brokers.names, list(recorder.loop.memory.operator_state.drained))
    values = view.brokers.usage if column == "usage" else view.brokers.latest.throughput
    assert len(values) == 6 and kept.sum() == 4 and values[~kept].max() < values[kept].min()
    return values[kept]


def ratio(values: Floats) -> float:
    return float(values.max() / values.mean())


def test_every_screen_has_the_same_max_over_mean(drained: Recorder) -> None:
    expected = pytest.approx(ratio(even_parts(drained, "throughput")))
    with open_lake(Store.at(drained.root)) as lake:
        (row,) = load_overview(lake, load_cluster_facts(lake))
        assert row["max_over_mean"] == expected and row["alive"] == 6
        usage = even_parts(drained, "usage")
        assert (row["usage_max"], row["usage_mean"]) == pytest.approx((usage.max(), usage.mean()))
        assert snapshot.measure_imbalance(snapshot.read_snapshot(lake, "demo").brokers) == expected
        now_ms = drained.loop.now_ms
        figures = load_cluster_figures(lake, "demo", now_ms, now_ms, 5, NO_JOB)
        assert figures.max_over_mean == [expected]
        chart = build_cluster_chart(lake, "demo", now_ms, now_ms)
        lines = {line.name: line.values[-1] for line in chart.lines}
        assert lines["mean"] == pytest.approx(usage.mean(), rel=0.1)
        assert lines["min"] > 0.3 * lines["mean"], "a drained broker uses next to nothing"
    told = lbctl("brokers", "--set", f"stream.tables={drained.root}", cwd=drained.root)
    assert f"6 of 6 brokers alive, 48 bundles, busiest ÷ mean {expected.expected:.2f}" in told.out


def test_the_demo_and_the_metrics_count_the_same_brokers(drained: Recorder) -> None:
    watch = DemoState(drained.root, "demo", calm_s=10.0)
    for name, broker in drained.loop.brokers.items():
        watch.on_report(name, broker.report())
    watch.refresh()
    parts = [figure.throughput_bytes_per_s for figure in watch.figures() if figure.active]
    assert len(parts) == 4 and throughput_imbalance(watch.figures()) == pytest.approx(
        ratio(np.array(parts))
    )

    figures = RoundFigures(Store.at(drained.root))
    names = drained.loop.view.brokers.names if drained.loop.view is not None else ()
    last = "SELECT * FROM broker_loads WHERE seq = (SELECT max(seq) FROM broker_loads)"
    figures.loads["demo"] = query_columns(open_lake(Store.at(drained.root)), last, {})
    samples = {
        sample.labels["broker"]: sample.value
        for family in BrokerMetrics(figures, dict).registry.collect()
        for sample in family.samples
        if sample.name == "lb_stream_broker_active"
    }
    out = drained.loop.memory.operator_state.drained
    assert samples == {name: float(name not in out) for name in names}


def test_what_if_leaves_drained_and_dead_brokers_out() -> None:
    """A drained broker's load counted in the sum and not in the number: the ratio could be below
    1."""
    scenario = replace(small_scenario([0] * 6 + [1] * 3 + [2]), events=(event(0.0, 0, "drain"),))
    seen = measure_trace(scenario, ())
    figures = _build_prediction(seen, ()).figures
    assert figures["max_over_mean_now"] == figures["max_over_mean_after"] == pytest.approx(1.5)
    assert figures["usage_max_now"] == pytest.approx(0.6), (
        "what a broker is asked for is told of all"
    )
