"""Lines of a file of load reports: which broker's they are, when they were captured, and the
report's own bytes.

Three forms, told apart line by line:
- a report as the broker emits it;
- {"capturedAtMs", "broker", "report"}: captured from a broker;
- {"capturedAtMs", "path": "/loadbalance/brokers/<broker>", "data"}: captured from the metadata
  store, where other paths hold other things.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import msgspec

BROKERS_PATH = "/loadbalance/brokers/"


class Unsendable(ValueError):
    """A line that can't be sent; the text says why."""


@dataclass(frozen=True, slots=True)
class Report:
    """What goes on the topic: `value` is the report's JSON exactly as it stands in the line.

    `at_ms` is None when nothing tells.
    """

    broker: str
    value: bytes
    at_ms: float | None
    line: int = 0  # its number in the file, from 1; 0: not from a file


class _Line(msgspec.Struct):
    report: msgspec.Raw = msgspec.Raw()  # empty: there is no such field
    data: msgspec.Raw = msgspec.Raw()
    broker: Any = None
    path: Any = None
    topic: Any = None
    captured_at_ms: Any = msgspec.field(default=None, name="capturedAtMs")
    name: Any = None
    web_service_url: Any = msgspec.field(default=None, name="webServiceUrl")
    web_service_url_tls: Any = msgspec.field(default=None, name="webServiceUrlTls")
    last_update: Any = msgspec.field(default=None, name="lastUpdate")
    timestamp: Any = None


_decoder = msgspec.json.Decoder(_Line)


def read_line(text: bytes, broker: str | None = None) -> Report | None:
    """The report in one line, or None when the line holds something else (another path, a removed
    node, nothing).

    `broker` (host:port) is whose a plain report is that doesn't say itself. Raises Unsendable.
    """
    text = text.strip()
    if not text:
        return None
    try:
        line = _decoder.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Unsendable(f"not a JSON object: {error}") from None
    if line.path is not None:
        return _of_metadata(line)
    if bytes(line.report):
        return _of_capture(line)
    own = (
        line.name
        or _host_and_port(line.web_service_url)
        or _host_and_port(line.web_service_url_tls)
        or broker
    )
    if not isinstance(own, str):
        raise Unsendable(
            "whose report it is can't be told (neither name nor webServiceUrl): give --broker "
            "HOST:PORT"
        )
    return Report(own, text, _time(line.last_update) or _time(line.timestamp))


def _of_metadata(line: _Line) -> Report | None:
    if (
        not isinstance(line.path, str)
        or not line.path.startswith(BROKERS_PATH)
        or not bytes(line.data)
    ):
        return None
    return Report(
        line.path.removeprefix(BROKERS_PATH), bytes(line.data), _time(line.captured_at_ms)
    )


def _of_capture(line: _Line) -> Report:
    if line.topic is not None:
        raise Unsendable(
            f"a record of the extensible load manager ({line.topic}): only modular and simple "
            "reports are read yet"
        )
    if not isinstance(line.broker, str) or not line.broker:
        raise Unsendable("a captured report without its broker")
    if bytes(line.report) == b"null":
        raise Unsendable("the report is null")
    return Report(line.broker, bytes(line.report), _time(line.captured_at_ms))


def _host_and_port(url: Any) -> str | None:
    try:
        return urlsplit(url).netloc or None if isinstance(url, str) else None
    except ValueError:
        return None


def _time(value: Any) -> float | None:
    return (
        float(value)
        if isinstance(value, int | float) and not isinstance(value, bool) and value > 0
        else None
    )
