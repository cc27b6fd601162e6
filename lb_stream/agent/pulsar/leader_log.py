"""Reads shedding passes from the log of a Pulsar cluster's leader: what it saw and what it moved.

Lines are in Pulsar's log4j patterns, with any text before the time (`kubectl logs --prefix`). Moves
and overloaded brokers are logged at level INFO, rates of candidates at DEBUG of
`org.apache.pulsar.broker.loadbalance`.
"""

from __future__ import annotations

import gzip
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

PAUSE_MS = 20_000
"""Lines farther apart than this belong to two passes: Pulsar's shortest interval is a minute."""
SPLIT_LASTS_MS = 1_000
"""How long after it has requested a split the leader knows no load of the bundle."""


@dataclass(frozen=True, slots=True)
class LeaderMove:
    """One bundle that the leader unloaded.

    `rates` are long-term messages/s of the brokers that it ranked; empty without level DEBUG.
    """

    at_ms: int
    bundle: str
    source: str
    destination: str | None
    rates: Mapping[str, float]


@dataclass(slots=True)
class LeaderPass:
    """One shedding pass.

    - `splitting`: bundles that were being split.
    - `hot`: overloaded broker → (usage, mean usage), ratios.
    - `calm`: brokers that were not overloaded (level DEBUG).
    - `too_little`: overloaded brokers from which too little throughput would have moved.
    - `reported_ms`: when a broker last wrote a report; None where no log has it.
    """

    at_ms: int
    splitting: frozenset[str]
    hot: dict[str, tuple[float, float]] = field(default_factory=dict)
    calm: set[str] = field(default_factory=set)
    too_little: set[str] = field(default_factory=set)
    moves: list[LeaderMove] = field(default_factory=list)
    last_ms: int = 0
    reported_ms: int | None = None


_TIME = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)[.,](\d{3})\d*(Z|[+-]\d\d:?\d\d)?")
_CALM = re.compile(r"Shedder - \[(\S+)\] broker is not overloaded")
_TOO_LITTLE = re.compile(
    r"Shedder - \[(\S+)\] broker is planning to shed throughput .* less than "
    r"minimumThroughputThreshold"
)
_HOT = re.compile(
    r"Attempting to shed load on (\S+), which has .*? ([\d.]+)% > ([\d.]+)% \+ [\d.]+%"
)
_RATE = re.compile(r"Broker (?:https?://)?(\S+) has long term message rate ([\d.E]+)")
_PLACING = re.compile(r"\d+ brokers being considered for assignment of ")
_UNLOAD = re.compile(
    r"\[\w+\] Unloading bundle: (\S+) from broker (\S+?)(?: to dest broker (\S+))?\s*$"
)
_TRANSFERS = re.compile(r"Unload decision result: \[")
_TRANSFER = re.compile(
    r"Unload\[sourceBroker=([^,]+), serviceUnit=([^,]+), "
    r"destBroker=Optional(?:\[([^\]]+)\]|\.empty)"
)
_REPORT = re.compile(r"Writing local data to metadata store because ")
_SPLIT = re.compile(r"BundleSplitStrategy - The bundle (\S+) is considered to be unload")


def read_passes(paths: Iterable[Path]) -> list[LeaderPass]:
    """Return the passes in plain or gzipped log files, in the order of their times.

    Give the logs of all brokers if the leader has changed. Raises OSError, and ValueError for a
    file without a line that has a time.
    """
    lines: list[tuple[int, str]] = []
    for path in paths:
        found = list(_read_timed_lines(path))
        if not found:
            raise ValueError(
                f"{path}: no line with a time as 2026-11-21T08:24:21.333Z or "
                "2026-11-21T08:24:21,333+0000"
            )
        lines += found
    return parse_passes(sorted(lines, key=lambda line: line[0]))


def parse_passes(lines: Iterable[tuple[int, str]]) -> list[LeaderPass]:
    """Return the passes in lines, (ms since the epoch, text), which are sorted by time."""
    passes: list[LeaderPass] = []
    splits: dict[str, int] = {}
    rates: dict[str, float] = {}
    reported_ms: int | None = None

    def current() -> LeaderPass:
        return _pass_at(passes, at_ms, splits, reported_ms)

    for at_ms, line in lines:
        if _PLACING.search(line):
            rates = {}
        elif found := _RATE.search(line):
            rates[found[1]] = float(found[2])
        elif _REPORT.search(line):
            reported_ms = at_ms
        elif found := _SPLIT.search(line):
            splits[found[1]] = at_ms
        elif found := _CALM.search(line):
            current().calm.add(found[1])
        elif found := _TOO_LITTLE.search(line):
            current().too_little.add(found[1])
        elif found := _HOT.search(line):
            current().hot[found[1]] = (float(found[2]) / 100, float(found[3]) / 100)
        elif found := _UNLOAD.search(line):
            current().moves.append(LeaderMove(at_ms, found[1], found[2], found[3], rates))
            rates = {}
        elif _TRANSFERS.search(line):
            moves = [
                LeaderMove(at_ms, unit, source, to or None, {})
                for source, unit, to in _TRANSFER.findall(line)
            ]
            current().moves += moves
    return passes


def _pass_at(
    passes: list[LeaderPass], at_ms: int, splits: Mapping[str, int], reported_ms: int | None
) -> LeaderPass:
    """Return the pass that a line of this time belongs to: the last one, or a new one."""
    if not passes or at_ms - passes[-1].last_ms > PAUSE_MS:
        splitting = frozenset(
            bundle for bundle, since_ms in splits.items() if at_ms - since_ms <= SPLIT_LASTS_MS
        )
        passes.append(LeaderPass(at_ms, splitting, reported_ms=reported_ms))
    passes[-1].last_ms = at_ms
    return passes[-1]


def _read_timed_lines(path: Path) -> Iterator[tuple[int, str]]:
    opened = gzip.open if path.suffix == ".gz" else open
    with opened(path, "rt", encoding="utf-8", errors="replace") as file:
        for line in file:
            found = _TIME.search(line[:200])
            if found:
                yield _parse_ms(*found.groups()), line


def _parse_ms(seconds: str, millis: str, zone: str | None) -> int:
    """Return ms since the epoch. A time without a zone is local, as log4j writes it."""
    at = datetime.fromisoformat(seconds + (zone or ""))
    at = at.astimezone(UTC) if zone else at.astimezone()
    return int(at.timestamp()) * 1000 + int(millis)
