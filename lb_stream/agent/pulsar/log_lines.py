"""Reads lines with a time from logs of Pulsar brokers: text of a log4j pattern, or JSON.

Pulsar 5.0 keeps values beside its messages, in the context data: a pattern with %X writes them
behind a message as `{name=value, …}`, a JSON layout as fields. Its messages about balancing become
the sentences in which earlier releases wrote the same values.
"""

from __future__ import annotations

import gzip
import json
import math
import re
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

SENTENCES = {
    "Unloading bundle from source broker to dest broker": (
        "[{class}] Unloading bundle: {bundle} from broker {sourceBroker} to dest broker "
        "{destBroker}"
    ),
    "Broker is not overloaded, ignoring at this point": (
        "[{broker}] broker is not overloaded, ignoring at this point ({resourceUsage})"
    ),
    "Broker is planning to shed less than minimumThroughputThreshold, skipping bundle unload": (
        "[{broker}] broker is planning to shed throughput {throughputMiB} MByte/s less than "
        "minimumThroughputThreshold {minThroughputThresholdMiB} MByte/s, skipping bundle unload"
    ),
    "Broker has long term message rate": "Broker {broker} has long term message rate {rate}",
    "Brokers being considered for assignment": (
        "{brokerCount} brokers being considered for assignment of {bundle}"
    ),
    "The bundle is considered to be unloaded": "The bundle {bundle} is considered to be unload",
    "Broker score": "broker:{broker}, scores:{score}, throughput:{throughput}",
    "Broker hit counts": (
        "brokerHitCountForHigh:{brokerHitCountForHigh}, brokerHitCountForLow:{brokerHitCountForLow}"
    ),
}
"""Message of 5.0 → the sentence of 4.x, with names of 5.0's values."""

_YEAR_10000_MS = 253_402_300_800_000
_TIME = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)[.,](\d{3})\d*(Z|[+-]\d\d:?\d\d)?")
_CONTEXT = re.compile(r"\s\{(\w+=.*)?\}\s*$")
"""Context data at the end of a line. Without any the pattern writes {}."""
_VALUE = re.compile(r"(?:^|, )(\w+)=")
_JSON = re.compile(r'^[^{"]*(\{\s*".*\})\s*$')
"""A line with a JSON object, with what a collector writes before it."""
_MESSAGES = ("message", "Body", "short_message")
_LOGGERS = ("log.logger", "loggerName", "logger_name", "_logger", "code.namespace")
_TIMES = ("@timestamp", "Timestamp", "timestamp", "time")


@dataclass(frozen=True, slots=True)
class LogLine:
    """One line: its time (ms since the epoch) and its text, in the words of Pulsar 4.x.

    - `is_json`: it came from a JSON layout.
    - `lacks_values`: it is a message of 5.0, and the layout leaves its values out.
    """

    at_ms: int
    text: str
    is_json: bool = False
    lacks_values: bool = False


def read_timed_lines(path: Path) -> Iterator[LogLine]:
    """Yield the lines with a time of a plain or gzipped file.

    Raises OSError, and ValueError for a gzipped file that is not whole.
    """
    opened = gzip.open if path.suffix == ".gz" else open
    try:
        with opened(path, "rt", encoding="utf-8", errors="replace") as file:
            yield from filter(None, map(parse_line, file))
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise ValueError(
            f"{path}: expected a whole gzip file: {error}; copy it again, or unpack what it has"
        ) from None


def parse_line(line: str) -> LogLine | None:
    """Return a line's time and text; None for a line without a time."""
    if (found := _JSON.match(line)) and (parsed := _parse_json(found[1])) is not None:
        return parsed
    at_ms = _find_ms(line[:200])
    if at_ms is None:
        return None
    text, beside = line.rstrip(), ""
    # Without the brace at the end, each brace before it would be tried against the whole line.
    if text.endswith("}") and (context := _CONTEXT.search(text)):
        text, beside = text[: context.start()], context[1] or ""
    head, separator, message = text.rpartition(" - ")
    if message in SENTENCES:
        return _build_line(at_ms, head + separator, message, _parse_context(beside), is_json=False)
    return LogLine(at_ms, f"{text} {{{beside}}}" if beside else text)


def _build_line(
    at_ms: int, head: str, message: str, values: Mapping[str, str], is_json: bool
) -> LogLine:
    """Return the line of a message of 5.0, as the sentence of 4.x."""
    try:
        return LogLine(at_ms, head + SENTENCES[message].format_map(values), is_json)
    except KeyError:
        return LogLine(at_ms, head + message, is_json, lacks_values=True)


def _parse_context(text: str) -> dict[str, str]:
    """Return name → value of context data as %X writes them."""
    names = list(_VALUE.finditer(text))
    ends = [*(name.start() for name in names[1:]), len(text)]
    return {name[1]: text[name.end() : end] for name, end in zip(names, ends, strict=False)}


def _parse_json(text: str) -> LogLine | None:
    """Return the line of a JSON layout's object; None if it has no message or no time.

    Known are the templates of log4j (ECS, the default of Pulsar's ConsoleJson; Logstash, GELF, its
    own JsonLayout) and Pulsar's OtelLogLayout.
    """
    try:
        fields = json.loads(text)
    except (ValueError, RecursionError):
        return None
    message = next((fields[name] for name in _MESSAGES if name in fields), None)
    at_ms = _find_json_ms(fields)
    if not isinstance(message, str) or at_ms is None:
        return None
    values = dict(_flatten(fields))
    logger = next((values[name] for name in _LOGGERS if name in values), "")
    # Values that are not of the layout: each has a name of letters, and GELF puts _ before it.
    own = {*_MESSAGES, *_TIMES}
    named = {
        name.removeprefix("_"): value
        for name, value in values.items()
        if name not in own and name.removeprefix("_").isidentifier()
    }
    head = f"{logger} - " if logger else ""
    if message in SENTENCES:
        return _build_line(at_ms, head, message, named, is_json=True)
    beside = ", ".join(f"{name}={value}" for name, value in sorted(named.items()))
    return LogLine(at_ms, f"{head}{message} {{{beside}}}" if beside else head + message, True)


def _flatten(fields: Mapping[str, object]) -> Iterator[tuple[str, str]]:
    """Yield name and value of all fields at any depth, an object as Java writes a map, too."""
    for name, value in fields.items():
        if isinstance(value, dict):
            yield name, "{" + ", ".join(f"{key}={value[key]}" for key in value) + "}"
            yield from _flatten(value)
        else:
            yield name, str(value)


def _find_json_ms(fields: Mapping[str, object]) -> int | None:
    instant = fields.get("instant")
    if isinstance(instant, dict):
        seconds, nanos = instant.get("epochSecond"), instant.get("nanoOfSecond", 0)
        if isinstance(seconds, int) and isinstance(nanos, int):
            return _require_date(seconds * 1000 + nanos // 1_000_000)
    for name in _TIMES:
        value = fields.get(name)
        if isinstance(value, str):
            return _find_ms(value)
        if isinstance(value, float):  # of GELF, in seconds
            return _require_date(round(value * 1000)) if math.isfinite(value * 1000) else None
    return None


def _require_date(at_ms: int) -> int | None:
    """Return the ms since the epoch; None where they are no date of this calendar."""
    return at_ms if 0 <= at_ms < _YEAR_10000_MS else None


def _find_ms(text: str) -> int | None:
    """Return ms since the epoch. A time without a zone is local, as log4j writes it.

    None for a text without a time, and for what only looks like one, such as a 13th month.
    """
    if (found := _TIME.search(text)) is None:
        return None
    seconds, millis, zone = found.groups()
    try:
        at = datetime.fromisoformat(seconds + (zone or ""))
        at = at.astimezone(UTC) if zone else at.astimezone()
    except (ValueError, OverflowError):
        return None
    return _require_date(int(at.timestamp()) * 1000 + int(millis))
