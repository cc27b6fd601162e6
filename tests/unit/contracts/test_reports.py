"""The two documented forms of a load report: told apart, defaulted, and refused with the field
named."""

import json
from typing import Any

import pytest
from pydantic import ValidationError

from lb_stream.contracts.reports import (
    REPORT_KINDS,
    Ack,
    ModularLoadReport,
    ResourceUsage,
    SimpleLoadReport,
    find_report_kind,
)

STATS = {"msgRateIn": 1.5, "msgThroughputIn": 2048.0, "topics": 3}


@pytest.mark.parametrize(
    ("fields", "kind"),
    [
        ({"loadReportType": "LocalBrokerData"}, "modular"),
        ({"loadReportType": "LoadReport"}, "simple"),
        ({"loadReportType": "LocalBrokerData", "systemResourceUsage": {}}, "modular"),
        ({"systemResourceUsage": {}, "cpu": {}}, "simple"),
        ({"lastStats": {}}, "modular"),
        ({"cpu": {"usage": 1, "limit": 100}}, "modular"),
        ({"cpu": {}, "weightedMaxEMA": 0.1}, "broker_load"),
        ({"topBundlesLoadData": [], "loadReportType": "LoadReport"}, "top_bundles"),
        ({"state": "Owned", "versionId": 3}, "ownership_event"),
        ({"state": "Owned"}, None),
        ({"loadReportType": "Other", "cpu": {}}, None),
        ({"name": "b:8080"}, None),
        ({}, None),
    ],
)
def test_the_first_rule_that_matches_tells_what_a_report_is(
    fields: dict[str, Any], kind: str | None
) -> None:
    assert find_report_kind(fields) == kind


def test_a_modular_report_that_says_nothing_has_every_default() -> None:
    report = ModularLoadReport.model_validate_json("{}")
    assert (report.cpu, report.last_stats, report.bundles, report.last_update) == (
        ResourceUsage(usage=0.0, limit=0.0),
        {},
        [],
        0,
    )
    assert (
        report.persistent_topics_enabled,
        report.web_service_url,
        report.max_resource_usage,
    ) == (True, None, None)


def test_a_simple_reports_unset_resources_are_minus_one() -> None:
    unset = ResourceUsage(usage=-1.0, limit=-1.0)
    given = SimpleLoadReport.model_validate_json(
        json.dumps(
            {"systemResourceUsage": {"cpu": {"usage": -1, "limit": -1}, "memory": {"usage": 5}}}
        )
    )
    assert given.system_resource_usage.cpu == given.system_resource_usage.bandwidth_out == unset
    assert given.system_resource_usage.memory == ResourceUsage(usage=5.0, limit=0.0)
    assert SimpleLoadReport().system_resource_usage.direct_memory == unset


def test_fields_that_nobody_knows_are_ignored() -> None:
    text = json.dumps(
        {
            "lastStats": {"a/b/0x00000000_0xffffffff": STATS | {"new": 1}},
            "loadReportType": "LocalBrokerData",
            "newField": [1],
        }
    )
    report = ModularLoadReport.model_validate_json(text)
    assert report.last_stats["a/b/0x00000000_0xffffffff"].msg_throughput_in == 2048.0
    assert report.last_stats["a/b/0x00000000_0xffffffff"].msg_rate_out == 0.0


BUNDLE = "acme/orders/0x00000000_0x80000000"


@pytest.mark.parametrize(
    ("kind", "text", "field"),
    [
        ("modular", '{"cpu": {"usage": NaN, "limit": 100}}', ("cpu", "usage")),
        ("modular", '{"msgRateIn": Infinity}', ("msgRateIn",)),
        ("modular", '{"msgRateIn": -0.5}', ("msgRateIn",)),
        ("modular", '{"msgThroughputOut": "12"}', ("msgThroughputOut",)),
        ("modular", '{"numTopics": 1.5}', ("numTopics",)),
        ("modular", '{"numTopics": -1}', ("numTopics",)),
        ("modular", '{"lastUpdate": 9223372036854775808}', ("lastUpdate",)),
        ("modular", '{"bundles": {"a": 1}}', ("bundles",)),
        ("modular", '{"bundles": [7]}', ("bundles", 0)),
        ("modular", '{"persistentTopicsEnabled": "yes"}', ("persistentTopicsEnabled",)),
        ("modular", '{"cpu": null}', ("cpu",)),
        (
            "modular",
            json.dumps({"lastStats": {BUNDLE: {"msgRateOut": -1}}}),
            ("lastStats", BUNDLE, "msgRateOut"),
        ),
        ("modular", '{"lastStats": {"%s": 5}}' % BUNDLE, ("lastStats", BUNDLE)),  # noqa: UP031
        (
            "simple",
            '{"systemResourceUsage": {"bandwidthIn": {"limit": "x"}}}',
            ("systemResourceUsage", "bandwidthIn", "limit"),
        ),
        (
            "simple",
            json.dumps({"bundleStats": {BUNDLE: {"topics": float("nan")}}}),
            ("bundleStats", BUNDLE, "topics"),
        ),
        ("simple", '{"overLoaded": 1}', ("overLoaded",)),
        ("simple", '{"allocatedCPU": "much"}', ("allocatedCPU",)),
        ("simple", '{"name": 5}', ("name",)),
    ],
)
def test_a_wrong_value_is_refused_with_its_field_named(
    kind: str, text: str, field: tuple[str | int, ...]
) -> None:
    with pytest.raises(ValidationError) as caught:
        REPORT_KINDS[kind].model_validate_json(text)
    assert [error["loc"] for error in caught.value.errors()] == [field]


def test_an_ack_must_say_which_decision_and_what_came_of_it() -> None:
    with pytest.raises(ValidationError) as caught:
        Ack.model_validate_json('{"outcome": "perhaps"}')
    assert {error["loc"] for error in caught.value.errors()} == {("decision_id",), ("outcome",)}
