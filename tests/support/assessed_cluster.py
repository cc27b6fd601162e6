"""Load reports of small clusters, whose figures can be computed by hand."""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from lb_stream.assess.assessment import (
    Assessment,
    ClusterSettings,
    Observation,
    assess,
    observe,
    read_cluster_settings,
)
from lb_stream.assess.recording import Recording, read_recording
from lb_stream.settings.load import load

BEGIN_MS = 1_795_700_040_000  # the begin of a minute
MSGS_PER_CORE = 1_000.0
"""Messages/s, in and out, that take all cpu of a broker, which has one core."""
BYTES = 100
"""Bytes of a message."""
GBIT = 1_000_000.0
"""A limit of bandwidth in kbit/s: 125 MB/s."""


def bundle(number: int, namespace: str = "shop/orders") -> str:
    """One of sixteen bundles of a namespace."""
    lower = number << 28
    return f"{namespace}/0x{lower:08x}_0x{min(lower + (1 << 28), 0xFFFFFFFF):08x}"


def report(name: str, loads: Mapping[str, float], minute: int = 0, **changed: Any) -> str:
    """A line with the report of a broker whose bundles have these messages/s, half of them in.

    `changed`: fields with other values; None: without the field.
    """
    stats = {
        named: {
            "msgRateIn": rate / 2,
            "msgRateOut": rate / 2,
            "msgThroughputIn": rate / 2 * BYTES,
            "msgThroughputOut": rate / 2 * BYTES,
            "topics": 4,
            "producerCount": 2,
            "consumerCount": 2,
        }
        for named, rate in loads.items()
    }
    half = sum(loads.values()) / 2
    kbits = half * BYTES / 125
    at_ms = BEGIN_MS + 60_000 * minute
    fields: dict[str, Any] = {
        "webServiceUrl": f"http://{name}",
        "cpu": {"usage": 100 * sum(loads.values()) / MSGS_PER_CORE, "limit": 100.0},
        "memory": {"usage": 100.0, "limit": 1000.0},
        "directMemory": {"usage": 10.0, "limit": 1000.0},
        "bandwidthIn": {"usage": kbits, "limit": GBIT},
        "bandwidthOut": {"usage": kbits, "limit": GBIT},
        "msgRateIn": half,
        "msgRateOut": half,
        "msgThroughputIn": half * BYTES,
        "msgThroughputOut": half * BYTES,
        "lastStats": stats,
        "bundles": list(stats),
        "numTopics": 4 * len(stats),
        "numBundles": len(stats),
        "lastUpdate": at_ms,
        "startTimestamp": BEGIN_MS - 3_600_000,
        "brokerVersionString": "5.0.1",
        "loadManagerClassName": "org.apache.pulsar.broker.loadbalance.impl.ModularLoadManagerImpl",
    } | changed
    kept = {field: value for field, value in fields.items() if value is not None}
    return json.dumps({"capturedAtMs": at_ms, "broker": name, "report": kept})


def write(path: Path, lines: Iterable[str]) -> Path:
    """A file of these lines."""
    path.write_text("".join(f"{line}\n" for line in lines))
    return path


UNEVEN = {
    "a:8080": {bundle(number): 100.0 for number in range(6)},
    "b:8080": {bundle(number): 100.0 for number in range(6, 8)},
    "c:8080": {bundle(8): 100.0},
}
"""Three alike brokers with 600, 200 and 100 of 900 messages/s: 60, 20 and 10 % of their cpu."""
EVEN = {
    "a:8080": {bundle(number): 100.0 for number in range(3)},
    "b:8080": {bundle(number): 100.0 for number in range(3, 6)},
    "c:8080": {bundle(number): 100.0 for number in range(6, 9)},
}


def minutes(loads: Mapping[str, Mapping[str, float]], count: int = 5, **changed: Any) -> list[str]:
    """The reports of all brokers in each of some minutes, with the same loads."""
    return [
        report(name, own, minute, **changed)
        for minute in range(count)
        for name, own in loads.items()
    ]


def observed(path: Path, lines: Iterable[str], *settings: str) -> Observation:
    """What these reports show. `settings`: key=value, ours or Pulsar's."""
    recording = read_recording(write(path / "reports.jsonl", lines))
    return observe(recording, "eu-1", _settings(recording, settings))


def assessed(path: Path, lines: Iterable[str], *settings: str) -> Assessment:
    """The whole assessment of the same, with its simulations: dear."""
    recording = read_recording(write(path / "reports.jsonl", lines))
    own = _settings(recording, settings)
    return assess(recording, "eu-1", own, lambda text, share: None)


def _settings(recording: Recording, settings: Iterable[str]) -> ClusterSettings:
    given = load(arguments=settings, environment={})
    return read_cluster_settings(recording, given, "eu-1")
