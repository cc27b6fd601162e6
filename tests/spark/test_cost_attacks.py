"""Records made to cost much: each parser takes or rejects them with bounded work and bounded words.

Work is counted, not timed.
"""

import json
from collections.abc import Callable
from typing import Any

import pytest

from lb_stream.contracts.commands import COMMANDS, LEADERSHIP_RECORDS
from lb_stream.contracts.reports import AGENT_KINDS
from lb_stream.stream.records import MAX_RECORD_BYTES
from tests.support.call_counts import calls
from tests.support.decoding import decoded, record, rejections, report

SMALL, LARGE = 1 << 13, 1 << 14


def stats(count: int) -> dict[str, Any]:
    return {f"a/b/0x{at:08x}_0x{at + 1:08x}": {"msgRateIn": 1.0} for at in range(count)}


def modular(**fields: Any) -> bytes:
    return json.dumps({"loadReportType": "LocalBrokerData", **fields}).encode()


ATTACKS: dict[str, Callable[[int], bytes]] = {
    "lists in lists": lambda n: b"[" * n + b"]" * n,
    "objects in objects": lambda n: b'{"a":' * n + b"1" + b"}" * n,
    "a list in a report": lambda n: (
        modular()[:-1] + b', "protocols": ' + b"[" * n + b"]" * n + b"}"
    ),
    "an integer without end": lambda n: (
        b'{"lastUpdate": ' + b"9" * n + b', "loadReportType": "LocalBrokerData"}'
    ),
    "a fraction without end": lambda n: (
        b'{"msgRateIn": 0.' + b"9" * n + b', "loadReportType": "LocalBrokerData"}'
    ),
    "an exponent without end": lambda n: (
        b'{"msgRateIn": 1e' + b"9" * n + b', "loadReportType": "LocalBrokerData"}'
    ),
    "a small exponent": lambda n: (
        b'{"msgRateIn": 1e-' + b"9" * n + b', "loadReportType": "LocalBrokerData"}'
    ),
    "a text without end": lambda n: modular(webServiceUrl="http://" + "x" * n),
    "escapes": lambda n: (
        b'{"webServiceUrl": "' + b"\\u0041" * n + b'", "loadReportType": "LocalBrokerData"}'
    ),
    "many keys": lambda n: json.dumps({f"k{at}": at for at in range(n)}).encode(),
    "one key many times": lambda n: (
        b"{" + b'"lastStats": {}, ' * n + b'"loadReportType": "LocalBrokerData"}'
    ),
    "one bundle many times": lambda n: (
        b'{"lastStats": {'
        + b'"a/b/0x0_0x1": {}, ' * n
        + b'"c": {}}, "loadReportType": "LocalBrokerData"}'
    ),
    "many bundles": lambda n: modular(lastStats=stats(n)),
    "many wrong bundles": lambda n: modular(lastStats={str(at): {} for at in range(n)}),
    "many wrong numbers": lambda n: modular(
        lastStats={str(at): {"msgRateIn": "x"} for at in range(n)}
    ),
    "many gains": lambda n: modular(lastBundleGains=["x"] * n, bundles=["y"] * n),
    "a simple report": lambda n: json.dumps(
        {"systemResourceUsage": {}, "bundleStats": stats(n)}
    ).encode(),
    "load data": lambda n: json.dumps({"weightedMaxEMA": 1.0, "bundles": [*stats(n)]}).encode(),
    "top bundles": lambda n: json.dumps(
        {"topBundlesLoadData": [{"bundleName": "a", "stats": {}}] * n}
    ).encode(),
    "wrong top bundles": lambda n: json.dumps(
        {"topBundlesLoadData": [{"bundleName": 1, "stats": 3}] * n}
    ).encode(),
    "spaces": lambda n: b" " * n,
}
POLICIES: dict[str, Callable[[int], dict[str, Any]]] = {
    "create-namespace": lambda n: {"namespace": "a/" + "b" * n, "bundles": n},
    "import-namespaces": lambda n: {
        "content": {"namespaces": [{"name": "a/b", "boundaries": [*range(n), 0xFFFFFFFF]}]}
    },
    "set-policies": lambda n: {
        "isolation": [{"name": "p", "namespaces": ["(a+)+$"] * n, "primary": ["(x|x)*"] * n}]
    },
    "set-config": lambda n: {"values": {f"k{at}": at for at in range(n)}},
    "split": lambda n: {"namespace": "a/b", "bundle": "HOT", "boundaries": [*range(n)]},
}


def taken(value: bytes, kind: str | None, topic: str) -> tuple[int, list[int]]:
    """The work on a record, and how long the rejections of it are; a good report behind it is
    taken."""
    raw = [record(b"home/b", value, 0, kind, topic), record(b"home/good", report(), 1)]
    blocks: dict[tuple[str, int], Any] = {}
    count = calls(lambda: blocks.update(decoded(raw)))
    assert "good" in [row["name"] for block in blocks.values() for row in block["reports"]]
    return count, [
        len("".join(words)) for block in blocks.values() for _, *words in rejections(block)
    ]


@pytest.mark.parametrize("attack", ATTACKS)
@pytest.mark.parametrize("kind", [None, *AGENT_KINDS])
def test_a_broker_s_record_costs_no_more_than_its_size(attack: str, kind: str | None) -> None:
    small, _ = taken(ATTACKS[attack](SMALL), kind, "reports")
    large, lengths = taken(ATTACKS[attack](LARGE), kind, "reports")
    assert large <= 2.2 * small + 1_000
    assert all(length <= 600 for length in lengths)


@pytest.mark.parametrize("kind", (*LEADERSHIP_RECORDS, *COMMANDS))
def test_a_command_costs_no_more_than_its_size(kind: str) -> None:
    def worst(n: int) -> bytes:
        own = POLICIES.get(kind, lambda n: {f"unknown{at}": at for at in range(n)})
        return json.dumps({"id": "1", "kind": kind} | own(n)).encode()

    small, _ = taken(worst(SMALL), None, "commands")
    large, lengths = taken(worst(LARGE), None, "commands")
    assert large <= 2.2 * small + 1_000
    assert all(length <= 600 for length in lengths)


def test_a_record_that_is_larger_than_any_is_rejected_before_it_is_looked_into() -> None:
    value = b'{"a": "' + b"x" * MAX_RECORD_BYTES + b'"}'
    count, lengths = taken(value, None, "reports")
    assert len(lengths) == 1
    assert count <= taken(b"{}", None, "reports")[0] + 100
