"""What conf/ says of metrics is what the job serves: no name too many, none forgotten."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from docs.tools.metrics_tables import LOOK_INTO, served_metrics
from lb_stream.contracts.settings import StreamSettings
from lb_stream.job.metrics.broker_metrics import BrokerMetrics
from lb_stream.job.metrics.job_metrics import Metrics
from lb_stream.job.metrics.round_figures import RoundFigures
from lb_stream.job.metrics.server import PATHS
from lb_stream.store import Store

PROJECT = Path(__file__).parents[2]
CONF = PROJECT / "conf"
DASHBOARD = json.loads((CONF / "grafana-dashboard.json").read_text())
ALERTS = (CONF / "prometheus-alerts.yml").read_text()
NAME = re.compile(r"\b(?:lb_stream|pulsar_lb|process)_\w+")
ENDINGS = {"counter": ("_total",), "histogram": ("_bucket", "_sum", "_count"), "gauge": ("",)}
UNSEEN = {
    "lb_stream_last_round_timestamp_seconds",
    "lb_stream_self_balancing_brokers",
    "lb_stream_rollout_broker_since_seconds",
}
"""Metrics that the dashboard need not show: there are alerts that name the second and the third."""


METRICS = Metrics("p", "1", 1, dict, RoundFigures(Store.at("nowhere")))
COLLECTED = [
    *METRICS.registry.collect(),
    *BrokerMetrics(RoundFigures(Store.at("nowhere")), dict).registry.collect(),
]
SAMPLES = {family.name + ending: family for family in COLLECTED for ending in ENDINGS[family.type]}
LABELS = {family.name: set(getattr(family, "_labelnames", ())) for family in COLLECTED} | {
    metric._name: set(metric._labelnames)
    for metric in (*vars(METRICS).values(), *METRICS.latencies.values())
    if hasattr(metric, "_labelnames")
}
OURS = {family.name for family in SAMPLES.values() if not family.name.startswith("process_")}
"""Families, under their names without an ending."""


def panels() -> list[dict[str, Any]]:
    return [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]


def dashboard_expressions() -> list[str]:
    variables = [
        one["definition"] for one in DASHBOARD["templating"]["list"] if one["type"] == "query"
    ]
    return [target["expr"] for panel in panels() for target in panel["targets"]] + variables


def alert_expressions() -> list[str]:
    """The text of each `expr`, of one line or folded."""
    folded = re.sub(
        r">-\n((?: {10,}.*\n)+)", lambda found: " ".join(found[1].split()) + "\n", ALERTS
    )
    return re.findall(r"^ +expr: (.+)$", folded, re.MULTILINE)


@pytest.mark.parametrize("expressions", [dashboard_expressions, alert_expressions])
def test_every_metric_of_an_expression_is_one_that_the_job_serves(expressions: Any) -> None:
    names = [name for text in expressions() for name in NAME.findall(text)]
    assert names and [name for name in names if name not in SAMPLES] == []


def test_the_dashboard_shows_every_metric_but_a_few() -> None:
    shown = {SAMPLES[name].name for text in dashboard_expressions() for name in NAME.findall(text)}
    assert OURS - shown == UNSEEN


def test_labels_of_an_expression_are_labels_that_the_metric_has() -> None:
    own = {"instance", "le"}
    for text in [*dashboard_expressions(), *alert_expressions()]:
        for name, selector in re.findall(r"((?:lb_stream|pulsar_lb)_\w+)\{([^}]*)\}", text):
            used = set(re.findall(r"(\w+)\s*(?:=~|!~|!=|=)", selector))
            assert used - own <= LABELS[SAMPLES[name].name], (name, used)


def test_the_dashboard_can_be_imported_and_nothing_lies_upon_anything() -> None:
    assert {"title", "uid", "schemaVersion", "templating", "panels"} <= set(DASHBOARD)
    assert len({panel["id"] for panel in DASHBOARD["panels"]}) == len(DASHBOARD["panels"])
    taken: set[tuple[int, int]] = set()
    for panel in DASHBOARD["panels"]:
        at = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(at["x"], at["x"] + at["w"])
            for y in range(at["y"], at["y"] + at["h"])
        }
        assert at["x"] + at["w"] <= 24 and not cells & taken, panel["title"]
        taken |= cells
    assert [panel["title"] for panel in panels() if not panel["targets"]] == []


def test_what_is_said_to_be_looked_into_is_served() -> None:
    assert set(LOOK_INTO) <= {metric.name for metric in served_metrics()}


def test_the_sample_scrape_asks_where_the_job_serves() -> None:
    scrape = (CONF / "prometheus.yml").read_text()
    assert set(re.findall(r'targets: \["([^"]+)"\]', scrape)) == {StreamSettings().metrics_address}
    assert re.findall(r"metrics_path: (\S+)", scrape) == [PATHS[1]]
    assert re.findall(r"- (\S+\.yml)", scrape) == ["prometheus-alerts.yml"]


def test_there_is_an_alert_for_each_thing_that_must_not_go_unseen() -> None:
    named = re.findall(r"- alert: (\w+)", ALERTS)
    assert {
        "BalancerStuck",
        "BalancerLags",
        "ClusterSuspended",
        "RoundsFail",
        "ReportsRejected",
        "DecisionsExpire",
    } <= set(named)
    assert len(named) == len(set(named)) == len(alert_expressions())
