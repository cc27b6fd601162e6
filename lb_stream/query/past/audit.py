"""Whether the chain of each cluster in the audit holds."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

import msgspec

from lb_stream.contracts.audit import BEGIN, CUT, Head, hash_batch, hash_row
from lb_stream.contracts.tables import AUDIT
from lb_stream.query import QueryError
from lb_stream.query.lake import Row, query_columns, records, run

if TYPE_CHECKING:
    from lb_stream.query.lake import Lake

READ_ROWS = 5_000
"""Rows whose bytes are in memory at a time."""
Wrong = Literal["changed", "replaced", "removed", "repeated", "inserted", "cut"]
"""Changed: a row's hash is not that of its content. Replaced: it is, but the next row or an anchor
names another. Removed: numbers are missing. Cut: they are missing at the end."""


class Anchor(msgspec.Struct, frozen=True):
    """The last row of a cluster's chain as it once was, kept elsewhere."""

    cluster: str
    number: int
    hash: str


@dataclass(frozen=True, slots=True)
class Fault:
    """The number of a row from which on a chain doesn't hold, what is wrong, and a description."""

    number: int
    what: Wrong
    text: str


@dataclass(slots=True)
class ChainReport:
    """What was found in a cluster's chain.

    `deleted`: what upkeep has deleted, as its row says; empty: nothing. `unchecked`: anchors of
    rows that it has deleted.
    """

    cluster: str
    rows: int = 0
    first: int | None = None
    last: int | None = None
    hash: str = BEGIN
    at_ms: int | None = None
    deleted: str = ""
    unchecked: int = 0
    faults: list[Fault] = field(default_factory=list)

    @property
    def holds(self) -> bool:
        """Return whether nothing is wrong."""
        return not self.faults


def parse_anchors(text: str, name: str) -> list[Anchor]:
    """Return the anchors of a file. Raises QueryError (exit code 2) for another line."""
    anchors = []
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        try:
            anchors.append(msgspec.json.decode(line, type=Anchor))
        except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
            expected = "expected a line of lbctl audit anchor"
            raise QueryError(f"{name}, line {number}: {error}: {expected}", 2) from None
    return anchors


def verify_audit(
    lake: Lake, anchors: Iterable[Anchor] = (), cluster: str | None = None
) -> list[ChainReport]:
    """Check the chain of each cluster, or of one, also against anchors."""
    wanted = [anchor for anchor in anchors if cluster in (None, anchor.cluster)]
    checks: dict[str, _Check] = {}
    for link in _read_chain(lake, cluster):
        if link.cluster not in checks:
            own = _anchors_of(link.cluster, wanted)
            checks[link.cluster] = _Check(ChainReport(link.cluster), own)
        checks[link.cluster].take(link)
    for missing in {anchor.cluster for anchor in wanted} - checks.keys():
        checks[missing] = _Check(ChainReport(missing), _anchors_of(missing, wanted))
    return [checks[name].finish() for name in sorted(checks)]


def find_audit_heads(lake: Lake, cluster: str | None = None) -> list[Row]:
    """Return the last row of each chain: cluster, number, hash and at_ms, time of its round."""
    query = """
        SELECT cluster, max(number) AS number, arg_max(hash, number) AS hash,
               arg_max(now_ms, number) AS at_ms
        FROM audit WHERE $1 IS NULL OR cluster = $1 GROUP BY cluster ORDER BY cluster
    """
    return records(run(lake, query, [cluster]))


def _anchors_of(cluster: str, anchors: Iterable[Anchor]) -> list[Anchor]:
    return [anchor for anchor in anchors if anchor.cluster == cluster]


@dataclass(frozen=True, slots=True)
class _Link:
    """What a chain needs to know of a row. `computed`: the hash of its content; `row`: of a cut."""

    cluster: str
    number: int | None
    previous_hash: str | None
    hash: str | None
    now_ms: int | None
    computed: str
    row: Row | None


def _read_chain(lake: Lake, cluster: str | None) -> Iterator[_Link]:
    """Yield the rows in the order of the chain."""
    query = """
        SELECT * FROM audit WHERE $cluster IS NULL OR cluster = $cluster
        ORDER BY cluster, number, hash
    """
    rows = query_columns(lake, query, {"cluster": cluster}).select(AUDIT.schema.names)
    for batch in rows.cast(AUDIT.schema).to_batches(READ_ROWS):
        names = ("cluster", "number", "previous_hash", "hash", "now_ms", "kind")
        columns = (batch[name].to_pylist() for name in names)
        computed = hash_batch(batch)
        rows_of_batch = enumerate(zip(*columns, strict=True))
        for place, (own, number, previous_hash, hash_, now_ms, kind) in rows_of_batch:
            row = batch.slice(place, 1).to_pylist()[0] if kind == CUT else None
            yield _Link(own, number, previous_hash, hash_, now_ms, computed[place], row)


@dataclass(slots=True)
class _Check:
    """Follows one chain. `_end`: its last row that was taken."""

    report: ChainReport
    anchors: list[Anchor]
    _end: Head = field(default_factory=Head)
    _hashes: dict[int, set[str]] = field(init=False)

    def __post_init__(self) -> None:
        self._hashes = {}
        for anchor in self.anchors:
            self._hashes.setdefault(anchor.number, set()).add(anchor.hash)

    def take(self, link: _Link) -> None:
        """Check the next row."""
        report, number, hash_ = self.report, link.number, link.hash
        report.rows += 1
        if number is None or hash_ is None:
            self._add(self._end.number + 1, "inserted", "a row without a number or hash")
            return
        if link.row is not None:
            self._take_cut(link.row, number, hash_)
        elif report.first is not None and number == self._end.number:
            self._add(number, "repeated", "stands there twice")
        else:
            self._check_link(number, link.previous_hash)
            if link.computed != hash_:
                self._add(number, "changed", "its content is not what its hash was made of")
            self._move_to(number, hash_, link.now_ms)

    def _check_link(self, number: int, previous_hash: str | None) -> None:
        """Check that a row follows the one before it."""
        expected = self._end.number + 1
        if number > expected:
            self._add(expected, "removed", f"{_list_numbers(expected, number - 1)} missing")
        elif previous_hash != self._end.hash:
            what = f"row {number} names another hash for it: it was replaced, or the rows up to it"
            self._add(number - 1, "replaced", what)

    def _take_cut(self, row: Row, number: int, hash_: str) -> None:
        """Check a row that stands for deleted ones: it begins the chain."""
        if self.report.first is not None:
            self._add(number, "inserted", "stands for deleted rows amid others")
            return
        if hash_row(row, hash_) != row["previous_hash"]:
            self._add(number, "changed", "stands for deleted rows, and is not as upkeep wrote it")
        self.report.deleted = f"rows {_describe_cut(row['old_value'])} were deleted by upkeep"
        self._move_to(number, hash_, row["now_ms"])

    def _move_to(self, number: int, hash_: str, at_ms: int | None) -> None:
        report = self.report
        report.first = number if report.first is None else report.first
        report.last, report.hash, report.at_ms = number, hash_, at_ms
        self._end = Head(number, hash_)
        if self._hashes.get(number, {hash_}) != {hash_}:
            self._add(number, "replaced", "an anchor has another hash for it")

    def finish(self) -> ChainReport:
        """Check what should come after the last row, and return the report."""
        report, last = self.report, self._end.number
        after = max(self._hashes, default=0)
        if after > last:
            text = f"{_list_numbers(last + 1, after)} missing, by an anchor"
            self._add(last + 1, "cut", text)
        if report.deleted:
            report.unchecked = sum(number < (report.first or 0) for number in self._hashes)
        report.faults.sort(key=lambda fault: fault.number)
        return report

    def _add(self, number: int, what: Wrong, text: str) -> None:
        self.report.faults.append(Fault(number, what, text))


def _list_numbers(first: int, last: int) -> str:
    return f"row {first} is" if first == last else f"rows {first} to {last} are"


def _describe_cut(old_value: str | None) -> str:
    """Return the numbers of deleted rows, as the row that stands for them has them."""
    try:
        numbers: Mapping[str, object] = json.loads(old_value or "{}")
        return f"{numbers['first']} to {numbers['last']}"
    except (ValueError, KeyError, TypeError):
        return "of unknown numbers"
