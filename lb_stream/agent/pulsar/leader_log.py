"""Reads shedding passes from the log of a Pulsar cluster's leader: what it saw and what it moved.

Lines are in the words of Pulsar 4.x (`log_lines`). Moves, overloaded brokers, scores and hit counts
of AvgShedder are logged at level INFO, rates of candidates at DEBUG of
`org.apache.pulsar.broker.loadbalance`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from lb_stream.agent.pulsar.log_lines import read_timed_lines

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
    - `scores`: AvgShedder's score of a broker, 100 x usage.
    - `hits`: broker → rounds that AvgShedder has counted beyond its low and its high threshold,
      this one included. Brokers without a count have none.
    - `partners`: broker → the broker with which AvgShedder levels it.
    - `reported_ms`: when a broker last wrote a report; None where no log has it.
    """

    at_ms: int
    splitting: frozenset[str]
    hot: dict[str, tuple[float, float]] = field(default_factory=dict)
    calm: set[str] = field(default_factory=set)
    too_little: set[str] = field(default_factory=set)
    scores: dict[str, float] = field(default_factory=dict)
    hits: dict[str, tuple[int, int]] | None = None
    partners: dict[str, str] = field(default_factory=dict)
    moves: list[LeaderMove] = field(default_factory=list)
    last_ms: int = 0
    reported_ms: int | None = None


@dataclass(frozen=True, slots=True)
class LogFile:
    """What was read of a log file.

    - `timed_lines`: its lines with a time; of these `json_lines` are of a JSON layout.
    - `without_values`: messages of Pulsar 5.0 about balancing whose values the layout leaves out.
    """

    path: Path
    timed_lines: int
    json_lines: int
    without_values: int


@dataclass(frozen=True, slots=True)
class LeaderLog:
    """The shedding passes in log files, in the order of their times."""

    passes: list[LeaderPass]
    files: list[LogFile]

    @property
    def moves(self) -> int:
        """Return the number of bundles that the leader unloaded."""
        return sum(len(leader_pass.moves) for leader_pass in self.passes)


# Lines may be of any program, and of any length: no pattern takes quadratic time.
_NUMBER = r"(-?[0-9]+(?:\.[0-9]+)?(?:E-?[0-9]+)?)"
"""A number as Java writes it, such as 1.0E-4."""
_CALM = re.compile(r"Shedder - \[(\S+)\] broker is not overloaded")
_TOO_LITTLE = re.compile(
    r"Shedder - \[(\S+)\] broker is planning to shed throughput .{0,200} less than "
    r"minimumThroughputThreshold"
)
_HOT = re.compile(
    r"Attempting to shed load on (\S+), which has .{0,200}? "
    rf"{_NUMBER}% > {_NUMBER}% \+ {_NUMBER}%"
)
_RATE = re.compile(rf"Broker (?:https?://)?(\S+) has long term message rate {_NUMBER}")
_PLACING = re.compile(r"\d brokers being considered for assignment of ")
_UNLOAD = re.compile(
    r"\[\w+\] Unloading bundle: (\S+) from broker (\S+?)(?: to dest broker (\S+?))?"
    r"(?:\s+\{\w+=.*\})?\s*$"
)
_TRANSFERS = re.compile(r"Unload decision result(?:: | \{(?:.*, )?result=)\[")
_TRANSFER = re.compile(
    r"Unload\[sourceBroker=([^,]{1,300}), serviceUnit=([^,]{1,600}), "
    r"destBroker=Optional(?:\[([^\]]+)\]|\.empty)"
)
_REPORT = re.compile(r"Writing local data to metadata store because ")
_SPLIT = re.compile(r"The bundle (\S+) is considered to be unload")
_SCORE = re.compile(rf"Shedder - broker:(\S+), scores:{_NUMBER}, throughput:")
_HITS = re.compile(r"brokerHitCountForHigh:\{([^{}]*)\}, brokerHitCountForLow:\{([^{}]*)\}")
_HIT = re.compile(r"(?<![^\s,])([^\s,=]+)=([0-9]{1,9})")
_PAIR = re.compile(
    r"Shedder - broker:\[(\S+)\] is planning to shed bundles to broker:\[([^\]\s]+)\](,but)?"
)


def read_leader_log(paths: Iterable[Path]) -> LeaderLog:
    """Read plain or gzipped log files; text and JSON may stand side by side.

    Give the logs of all brokers if the leader has changed. Raises OSError, and ValueError for a
    file without a line that has a time, and for a gzipped file that is not whole.
    """
    lines: list[tuple[int, str]] = []
    files: list[LogFile] = []
    for path in paths:
        found = list(read_timed_lines(path))
        if not found:
            raise ValueError(
                f"{path}: no line with a time as 2026-11-21T08:24:21.333Z or "
                "2026-11-21T08:24:21,333+0000, and no JSON object with @timestamp and message, "
                "Timestamp and Body, or instant and message, on a line"
            )
        as_json = sum(line.is_json for line in found)
        lacking = sum(line.lacks_values for line in found)
        files.append(LogFile(path, len(found), as_json, lacking))
        lines += [(line.at_ms, line.text) for line in found]
    return LeaderLog(parse_passes(sorted(lines, key=lambda line: line[0])), files)


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
        elif found := _UNLOAD.search(line):
            current().moves.append(LeaderMove(at_ms, found[1], found[2], found[3], rates))
            rates = {}
        elif _TRANSFERS.search(line):
            moves = [
                LeaderMove(at_ms, unit, source, to or None, {})
                for source, unit, to in _TRANSFER.findall(line)
            ]
            current().moves += moves
        elif "Shedder - " in line:
            _read_shedder_line(line, current)
    return passes


def _read_shedder_line(line: str, current: Callable[[], LeaderPass]) -> None:
    """Add what a shedder has logged of a broker to the pass. `current` begins it if need be."""
    if found := _CALM.search(line):
        current().calm.add(found[1])
    elif found := _TOO_LITTLE.search(line):
        current().too_little.add(found[1])
    elif found := _HOT.search(line):
        current().hot[found[1]] = (float(found[2]) / 100, float(found[3]) / 100)
    elif found := _SCORE.search(line):
        current().scores[found[1]] = float(found[2])
    elif found := _HITS.search(line):
        high, low = (
            {name: int(hits) for name, hits in _HIT.findall(counts)} for counts in found.groups()
        )
        names = [*low, *(name for name in high if name not in low)]
        current().hits = {name: (low.get(name, 0), high.get(name, 0)) for name in names}
    elif found := _PAIR.search(line):
        current().partners[found[1]] = found[2]
        if found[3]:
            current().too_little.add(found[1])


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
