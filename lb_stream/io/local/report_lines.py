"""Reads lines of a file of load reports: broker, time of capture, and the report's own bytes.

A line has one of three forms:
- a report as the broker emits it;
- {"capturedAtMs", "broker", "report"}: captured from a broker;
- {"capturedAtMs", "path": "/loadbalance/brokers/<broker>", "data"}: captured from the metadata
  store, where other paths hold other things.
"""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import urlsplit

import msgspec

BROKERS_PATH = "/loadbalance/brokers/"


class Unsendable(ValueError):
    """A line that can't be sent; the text says why, and what to do."""


@dataclass(frozen=True, slots=True)
class Report:
    """A report for the topic.

    `value`: the report's JSON exactly as in the line; `at_ms`: when it was captured, None if the
    line doesn't say; `line`: its number in the file, from 1; 0: it is from no file.
    """

    broker: str
    value: bytes
    at_ms: float | None
    line: int = 0


class _Line(msgspec.Struct):
    """The fields of all three forms, with values of any type. Raw fields are empty if absent."""

    report: msgspec.Raw = msgspec.Raw()
    data: msgspec.Raw = msgspec.Raw()
    broker: object = None
    path: object = None
    topic: object = None
    captured_at_ms: object = msgspec.field(default=None, name="capturedAtMs")
    name: object = None
    web_service_url: object = msgspec.field(default=None, name="webServiceUrl")
    web_service_url_tls: object = msgspec.field(default=None, name="webServiceUrlTls")
    last_update: object = msgspec.field(default=None, name="lastUpdate")
    timestamp: object = None


_decoder = msgspec.json.Decoder(_Line)


def read_line(text: bytes, broker: str | None = None) -> Report | None:
    """Return the report in a line; None if there is none: another path, a removed node, no text.

    `broker`: host:port, for a plain report that doesn't name its broker. Raises Unsendable.
    """
    text = text.strip()
    if not text:
        return None
    try:
        line = _decoder.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Unsendable(f"not a JSON object: {error}") from None
    if line.path is not None:
        return _parse_metadata(line)
    if bytes(line.report):
        return _parse_capture(line)
    own = (
        line.name
        or _host_and_port(line.web_service_url)
        or _host_and_port(line.web_service_url_tls)
        or broker
    )
    if not isinstance(own, str):
        raise Unsendable(
            "the report names no broker (neither name nor webServiceUrl): give --broker HOST:PORT"
        )
    return Report(own, text, _time(line.last_update) or _time(line.timestamp))


def format_line(broker: str, report: bytes, at_ms: int) -> str:
    """Return the line of a captured report, byte for byte; its own line feeds are spaces."""
    text = " ".join(report.decode("utf-8", "replace").splitlines())
    named = msgspec.json.encode(broker).decode()
    return f'{{"capturedAtMs":{at_ms},"broker":{named},"report":{text}}}\n'


def _parse_metadata(line: _Line) -> Report | None:
    if (
        not isinstance(line.path, str)
        or not line.path.startswith(BROKERS_PATH)
        or not bytes(line.data)
    ):
        return None
    return Report(
        line.path.removeprefix(BROKERS_PATH), bytes(line.data), _time(line.captured_at_ms)
    )


def _parse_capture(line: _Line) -> Report:
    if line.topic is not None:
        raise Unsendable(
            f"a record of the extensible load manager ({line.topic}): only reports of the modular "
            "and simple load managers can be sent"
        )
    if not isinstance(line.broker, str) or not line.broker:
        raise Unsendable("a captured report without its broker: add the field broker")
    if bytes(line.report) == b"null":
        raise Unsendable("the report is null: remove the line")
    return Report(line.broker, bytes(line.report), _time(line.captured_at_ms))


def _host_and_port(url: object) -> str | None:
    try:
        return urlsplit(url).netloc or None if isinstance(url, str) else None
    except ValueError:
        return None


def _time(value: object) -> float | None:
    """Return a time (ms since the epoch); None for anything but a positive number."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if value > 0 else None
