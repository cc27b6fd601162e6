"""Brokers by short names, in whatever command takes one."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lb_stream.cli.shared.broker_names import match_broker
from lb_stream.cli.shared.output import CommandError
from lb_stream.contracts.tables import BROKER_LOADS
from tests.support.lbctl_runner import Result
from tests.support.scripted_kafka import Broker
from tests.support.table_rows import fill
from tests.support.wordings import check_wording

KNOWN = (
    "broker-1.eu.example:8080",
    "broker-2.eu.example:8080",
    "broker-2.us.example:8080",
    "broker-3:8080",
    "broker-3:8081",
    "[fd00::1]:8080",
)


@pytest.mark.parametrize(
    ("given", "whole"),
    [
        ("broker-1", KNOWN[0]),
        ("broker-1.eu.example", KNOWN[0]),
        ("broker-2.us.example", KNOWN[2]),
        ("[fd00::1]", KNOWN[5]),
        ("broker-1.eu.example:8080", KNOWN[0]),
    ],
)
def test_a_host_or_its_first_label_is_the_one_broker_that_it_fits(given: str, whole: str) -> None:
    assert match_broker(given, KNOWN) == whole


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (
            "broker-2",
            "several have this name, expected one of broker-2.eu.example:8080, broker-2.us.example:8080",
        ),
        ("broker-3", "several have this name, expected one of broker-3:8080, broker-3:8081"),
        ("brokr-1", "nearest: broker-1.eu.example:8080"),
        ("broker", "nearest: "),  # a part of a label is no name
        ("xyz", "nearest: broker-1.eu.example:8080, broker-2.eu.example:8080"),
    ],
)
def test_several_that_fit_and_none_are_refused_with_names(given: str, told: str) -> None:
    with pytest.raises(CommandError) as refused:
        match_broker(given, KNOWN)
    assert told in str(refused.value) and refused.value.code == 2


def test_without_tables_a_whole_name_is_needed(call: Callable[..., Result], kafka: Broker) -> None:
    result = call("brokers", "drain", "broker-1")
    assert result.code == 2 and kafka.sent == []
    check_wording(result.err)


@pytest.mark.parametrize(
    ("line", "fields"),
    [
        ("brokers drain broker-1 --cluster eu", {"broker": KNOWN[0]}),
        ("brokers drain http://broker-1 --cluster eu", {"broker": KNOWN[0]}),
        ("brokers undrain broker-1.eu.example --cluster eu", {"broker": KNOWN[0]}),
        ("brokers drain unheard-of:1 --cluster eu", {"broker": "unheard-of:1"}),
        (
            "clusters declare-dead eu --broker broker-2",
            {"broker": KNOWN[1]},
        ),  # the other one is of another cluster
        (
            "namespaces unload t/n -b 0x00000000_0x80000000 -d broker-1 --cluster eu",
            {"destination": KNOWN[0]},
        ),
        (
            "namespaces set-policies --failure-domain broker-1=east --cluster eu",
            {"failure_domains": {KNOWN[0]: "east"}},
        ),
    ],
)
def test_what_is_sent_holds_the_whole_name(
    call: Callable[..., Result], kafka: Broker, tmp_path: Path, line: str, fields: dict[str, Any]
) -> None:
    rows = [("eu", KNOWN[0]), ("eu", KNOWN[1]), ("us", KNOWN[2])]
    loads = [
        {"cluster": cluster, "broker": broker, "seq": 1, "log_seq": 1, "now_ms": 1, "alive": True}
        for cluster, broker in rows
    ]
    fill(tmp_path / "tables", BROKER_LOADS, loads)
    result = call(*line.split(), "--set", f"stream.tables={tmp_path / 'tables'}", "--no-wait")
    assert result.code == 0, result.err
    sent = kafka.sent[0][1]
    assert {name: sent[name] for name in fields} == fields
