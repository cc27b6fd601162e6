"""What conf/ says of metrics is what the job serves: no name too many, none forgotten."""

import inspect
import json
import re
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import pytest
import yaml
from promql_parser import MatchOp

from docs.tools.metrics_tables import LOOK_INTO, served_metrics
from lb_stream.cli.run.console import console as run_console
from lb_stream.console.routes import SCREENS
from lb_stream.contracts.settings import StreamSettings
from lb_stream.job.metrics.server import PATHS
from tests.support.headings import anchor_of, anchors
from tests.support.promql import find_labels, list_selectors, parse_promql, require

PROJECT = Path(__file__).parents[2]
CONF = PROJECT / "conf"
DASHBOARD = json.loads((CONF / "grafana-dashboard.json").read_text())
ALERTS = (CONF / "prometheus-alerts.yml").read_text()
RULES = [rule for group in yaml.safe_load(ALERTS)["groups"] for rule in group["rules"]]
VALUES = re.compile(r"label_values\((.+), (\w+)\)")
"""Grafana's question for the values of a label; the rest of what it asks is PromQL."""
CHOSEN = frozenset({"instance", "cluster", "broker"})
"""Labels whose values are chosen by variables."""
UNSEEN = {
    "lb_stream_last_round_timestamp_seconds",
    "lb_stream_self_balancing_brokers",
    "lb_stream_standby_warm",
    "lb_stream_leader_silent_seconds",
    "lb_stream_telemetry_lost_total",
}
"""Metrics that the dashboard need not show: an alert names the second one, the next two are of
standbys, whose `/ready` says the same, and the last one counts only where telemetry is sent."""

METRICS = served_metrics(with_process=True)
FAMILIES = {name: metric.name for metric in METRICS for name in metric.series}
"""Name of a series → its metric."""
LABELS = {
    name: labels | {"instance", "job"}
    for metric in METRICS
    for name, labels in metric.series.items()
}
"""Name of a series → its labels, with those that Prometheus adds."""
OURS = {metric.name for metric in served_metrics()}


def panels() -> list[dict[str, Any]]:
    return [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]


def targets() -> list[dict[str, Any]]:
    return [target for panel in panels() for target in panel["targets"]]


def values_of_variables() -> list[tuple[str, str]]:
    """What is asked for each variable: a selector, and the label whose values are listed."""
    asked = [one["definition"] for one in DASHBOARD["templating"]["list"] if "definition" in one]
    return [VALUES.fullmatch(text).groups() for text in asked]  # type: ignore[union-attr]


def dashboard_expressions() -> list[str]:
    asked = [*targets(), *DASHBOARD["annotations"]["list"]]
    return [one["expr"] for one in asked] + [text for text, _ in values_of_variables()]


def alert_expressions() -> list[str]:
    return [rule["expr"] for rule in RULES]


EVERY = [*dashboard_expressions(), *alert_expressions()]


@pytest.mark.parametrize("text", EVERY)
def test_an_expression_is_promql_of_metrics_and_labels_that_the_job_serves(text: str) -> None:
    expression = parse_promql(text)
    names = [selector.name for selector in list_selectors(expression)]
    assert names and [name for name in names if name not in LABELS] == []
    find_labels(expression, LABELS)


@pytest.mark.parametrize(
    "text",
    [
        "sum by (colour) (lb_stream_rounds_total)",
        'lb_stream_rounds_total{colour="red"}',
        "lb_stream_rounds_total / on (le) lb_stream_round_errors_total",
        "sum(lb_stream_batch_seconds_sum) by (le)",
        "sum by (broker) (topk(3, lb_stream_bundles))",
    ],
)
def test_a_label_that_a_metric_does_not_have_is_found(text: str) -> None:
    with pytest.raises(ValueError, match="no labels"):
        find_labels(parse_promql(text), LABELS)


def test_what_is_no_promql_is_found() -> None:
    with pytest.raises(ValueError, match="unclosed"):
        parse_promql("sum(rate(lb_stream_rounds_total[5m])")


def test_variables_list_values_of_labels_that_their_metric_has() -> None:
    asked = values_of_variables()
    assert {label for _, label in asked} == CHOSEN
    for text, label in asked:
        require(find_labels(parse_promql(text), LABELS), [label])


def test_every_selector_of_the_dashboard_takes_what_is_chosen() -> None:
    """A variable's own question takes the choices before it, so that it can be asked at all."""
    for text in [one["expr"] for one in [*targets(), *DASHBOARD["annotations"]["list"]]]:
        for selector in list_selectors(parse_promql(text)):
            taken = {
                matcher.name
                for matcher in selector.matchers.matchers
                if matcher.op == MatchOp.Re and matcher.value == f"${matcher.name}"
            }
            assert taken == CHOSEN & LABELS[str(selector.name)], text


def test_an_annotation_names_labels_that_its_expression_has() -> None:
    for annotation in DASHBOARD["annotations"]["list"]:
        labels = find_labels(parse_promql(annotation["expr"]), LABELS)
        text = annotation["titleFormat"] + annotation["textFormat"]
        require(labels, re.findall(r"\{\{(\w+)\}\}", text))
        require(labels, annotation["tagKeys"].split(","))


def console_addresses() -> list[str]:
    of_panels = [link["url"] for panel in panels() for link in panel.get("links", ())]
    return [link["url"] for link in DASHBOARD["links"]] + of_panels


def test_every_link_leads_to_a_page_of_the_console() -> None:
    pages = {screen.path: screen.query for screen in SCREENS if screen.template}
    by_series = [link["url"] for _, link in links_of_series()]
    assert by_series
    for url in [*console_addresses(), *by_series]:
        address, _, values = url.partition("?")
        given = parse_qs(values, strict_parsing=bool(values))
        assert address.startswith("${console}/"), url
        pages[address.removeprefix("${console}")].model_validate(
            {name: value for name, (value,) in given.items()}
        )


def test_the_console_is_looked_for_where_it_serves_by_default() -> None:
    (console,) = (one for one in DASHBOARD["templating"]["list"] if one["name"] == "console")
    address = inspect.signature(run_console).parameters["address"].default
    assert console["query"] == f"http://{address}"


def links_of_series() -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """Each link of a panel's series, with the panel."""
    return [
        (panel, link)
        for panel in panels()
        for link in panel["fieldConfig"]["defaults"].get("links", ())
    ]


def test_a_link_of_a_series_names_labels_that_the_series_has() -> None:
    for panel, link in links_of_series():
        for target in panel["targets"]:
            labels = find_labels(parse_promql(target["expr"]), LABELS)
            require(labels, re.findall(r"__field\.labels\.(\w+)", link["url"]))


def test_a_legend_names_labels_that_its_expression_has() -> None:
    for target in targets():
        labels = find_labels(parse_promql(target["expr"]), LABELS)
        require(labels, re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]))


def test_an_alert_names_labels_that_its_expression_has() -> None:
    for rule in RULES:
        labels = find_labels(parse_promql(rule["expr"]), LABELS)
        text = " ".join(rule["annotations"].values())
        require(labels, re.findall(r"\$labels\.(\w+)", text))


def test_no_part_of_the_program_serves_metrics_but_those_that_are_compared_here() -> None:
    """`served_metrics` reads the registries of these modules."""
    makers = {
        str(path.relative_to(PROJECT / "lb_stream"))
        for path in (PROJECT / "lb_stream").rglob("*.py")
        if "CollectorRegistry(" in path.read_text()
    }
    assert makers == {
        f"job/metrics/{name}.py" for name in ("job_metrics", "broker_metrics", "standby")
    }


def test_the_dashboard_shows_every_metric_but_a_few() -> None:
    parsed = [parse_promql(text) for text in dashboard_expressions()]
    names = {str(selector.name) for each in parsed for selector in list_selectors(each)}
    assert OURS - {FAMILIES[name] for name in names} == UNSEEN


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
    named = [rule["alert"] for rule in RULES]
    assert {
        "BalancerStuck",
        "BalancerLags",
        "ClusterSuspended",
        "RoundsFail",
        "ReportsRejected",
        "DecisionsExpire",
    } <= set(named)
    assert len(named) == len(set(named))


def test_every_alert_names_a_part_of_the_runbooks() -> None:
    for rule in RULES:
        page, _, anchor = rule["annotations"]["runbook_url"].partition("#")
        assert page == "docs/runbooks.md" and anchor in anchors(PROJECT / page), rule["alert"]


def test_the_part_of_the_runbooks_names_the_alert() -> None:
    text = (PROJECT / "docs" / "runbooks.md").read_text()
    parts = {anchor_of(part.partition("\n")[0]): part for part in text.split("\n## ")[1:]}
    for rule in RULES:
        part = parts[rule["annotations"]["runbook_url"].partition("#")[2]]
        assert f"`{rule['alert']}`" in part
