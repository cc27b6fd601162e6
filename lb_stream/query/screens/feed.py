"""List moves, other decisions and operators' commands together, the newest first."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from lb_stream.contracts.decisions import MOVES
from lb_stream.query.lake import Row, records, run
from lb_stream.query.screens.entries import (
    FOLLOWS,
    build_command_entry,
    build_entry,
    follows_move,
    group_moves,
)

if TYPE_CHECKING:
    from lb_stream.query.lake import Lake

MAX_ENTRIES = 40
MAX_PENDING = 100
ENTRY_KINDS = ("all", "moves", "decisions", "commands")
"""Which entries can be asked for."""
WINDOW = 10 * MAX_ENTRIES
"""Decisions that are read for a page: a move has several."""
LONGEST_MOVE_MS = 3_600_000
"""Assignments are looked for this long after the begin of their move."""

_NAMES = (
    "decision_id",
    "cluster",
    "seq",
    "issued_ms",
    "kind",
    "bundle",
    "source",
    "destination",
    "rule",
    "reason",
    "strategy",
    "dry_run",
    "explain",
    "expires_ms",
    "log_seq",
)
_COLUMNS = ", ".join(_NAMES)
# Ids of one round differ in the number at their end: the longer one is higher.
_NEWEST = "issued_ms DESC, seq DESC, length(decision_id) DESC, decision_id DESC"
# Every scan opens the table's files, so each of these queries has one. Bounds of times and numbers
# are in the text: with parameters no file is left out.
_DECISIONS = f"""
    SELECT {_COLUMNS} FROM decisions WHERE {{where}} ORDER BY {_NEWEST} LIMIT {WINDOW}
"""
_SAME = "cluster, kind, bundle, source, destination, strategy, rule"
_STRUCT = ", ".join(f"{name}: {name}" for name in _NAMES)
_REPEATS = f"""
    SELECT * FROM (
        SELECT unnest(arg_max({{{{{_STRUCT}}}}}, {{{{issued_ms: issued_ms, seq: seq}}}})),
               count(*) AS times, min(issued_ms) AS first_ms
        FROM decisions WHERE dry_run AND {{where}} GROUP BY {_SAME}
    )
    WHERE {{last}} ORDER BY {_NEWEST} LIMIT {WINDOW}
"""
_RELATED = f"""
    SELECT {_COLUMNS} FROM decisions
    SEMI JOIN (SELECT unnest($clusters) AS cluster, unnest($bundles) AS bundle)
    USING (cluster, bundle)
    WHERE issued_ms BETWEEN {{begin_ms}} AND {{end_ms}} AND NOT dry_run
      AND (kind IN {MOVES} OR {FOLLOWS})
"""
_OUTCOMES = """
    SELECT decision_id, outcome, detail, took_ms FROM outcomes
    SEMI JOIN (SELECT unnest($ids) AS decision_id) USING (decision_id)
    WHERE log_seq >= {log_seq}
"""
_CONTAINS = """contains(
    lower(concat_ws(' ', decision_id, bundle, source, destination, rule)), $text
)"""
_OF_BUNDLE = "bundle = $bundle OR coalesce(neighbour = $bundle, false)"
_OF_BROKER = "source = $broker OR destination = $broker"
_NO_OUTCOME: Row = dict.fromkeys(("outcome", "detail", "took_ms"))
_COMMAND = """
    SELECT 'command' AS entry, id, cluster, max(seq) AS seq, any_value(at_ms) AS at_ms,
           any_value(kind) AS kind, NULL AS bundle, NULL AS source, NULL AS destination,
           arg_max(rule, log_seq) AS rule, NULL AS strategy, false AS dry_run,
           arg_max(outcome, log_seq) AS outcome, NULL AS detail, NULL AS took_ms,
           NULL AS expires_ms, any_value("by") AS "by", any_value(arguments) AS arguments,
           arg_max(text, log_seq) AS text
    FROM commands
"""
_COMMANDS = f"""
    {_COMMAND}
    WHERE ($1 IS NULL OR cluster = $1) AND ($2 IS NULL OR at_ms < $2)
      AND ($3 = '' OR contains(lower(concat_ws(' ', id, kind, "by", arguments, text)), $3))
    GROUP BY id, cluster ORDER BY at_ms DESC LIMIT {MAX_ENTRIES}
"""
_SENT_TOGETHER = f"""
    {_COMMAND} WHERE cluster = $1 AND (id = $2 OR regexp_replace(id, '-[0-9]+$', '') = $2)
    GROUP BY id, cluster
"""


@dataclass(frozen=True, slots=True)
class _Wanted:
    """Which decisions a list is of. A move is in it if one of its decisions meets `condition`.

    `condition`: SQL, with its parameters in `values`; empty: all decisions do.
    """

    cluster: str | None
    condition: str = ""
    values: Mapping[str, object] = field(default_factory=dict)
    kinds: str = "all"
    before_ms: int | None = None

    @property
    def parameters(self) -> dict[str, object]:
        """Return the parameters of `build_where`."""
        return dict(self.values) | ({"cluster": self.cluster} if self.cluster else {})

    def build_where(self, *more: str) -> str:
        """Return the condition of a query for the decisions, all of it in parentheses."""
        parts = [*more, "cluster = $cluster" if self.cluster else "", self.condition]
        if self.kinds == "moves":
            parts.append(f"kind IN {MOVES} OR {FOLLOWS}")
        return " AND ".join(f"({part})" for part in parts if part) or "true"

    @property
    def end(self) -> str:
        """Return the condition that leaves out decisions that are too late to matter (SQL).

        Later phases of a move tell whether it is meant, where not all are.
        """
        if self.before_ms is None:
            return ""
        return f"issued_ms < {self.before_ms + (LONGEST_MOVE_MS if self.condition else 0)}"

    def takes(self, head: Row) -> bool:
        """Return whether the list has a decision, or a move, that began as this row says."""
        is_early = self.before_ms is None or head["issued_ms"] < self.before_ms
        return is_early and (self.kinds != "moves" or head["kind"] in MOVES)


def list_entries(
    lake: Lake,
    cluster: str | None,
    *,
    before_ms: int | None = None,
    kinds: str = "all",
    text: str = "",
) -> tuple[Row, ...]:
    """Return the newest entries, before a time if one is given.

    Entries of moves and decisions are those of `entries.build_entry`; a command has `by`,
    `arguments` and `text`. `outcome` is None while an entry is pending. `kinds`: one of
    ENTRY_KINDS. `text`: only entries that contain it.
    """
    found: list[Row] = []
    if kinds != "commands":
        where = (_CONTAINS, {"text": text.lower()}) if text else ("", {})
        found += _list_moves_and_decisions(lake, _Wanted(cluster, *where, kinds, before_ms))
    if kinds in ("all", "commands"):
        rows = records(run(lake, _COMMANDS, [cluster, before_ms, text.lower()]))
        found += map(build_command_entry, rows)
    return tuple(sorted(found, key=lambda row: -(row["at_ms"] or 0))[:MAX_ENTRIES])


def list_bundle_entries(lake: Lake, cluster: str, bundle: str) -> tuple[Row, ...]:
    """Return the newest moves of a bundle and decisions about it."""
    wanted = _Wanted(cluster, _OF_BUNDLE, {"bundle": bundle})
    return tuple(_list_moves_and_decisions(lake, wanted))


def list_broker_entries(lake: Lake, cluster: str, broker: str) -> tuple[Row, ...]:
    """Return the newest moves from or to a broker, and other decisions about it."""
    wanted = _Wanted(cluster, _OF_BROKER, {"broker": broker})
    return tuple(_list_moves_and_decisions(lake, wanted))


def list_round_entries(lake: Lake, cluster: str, seq: int) -> tuple[Row, ...]:
    """Return the moves of which a round decided a phase, and its other decisions; all of them."""
    wanted = _Wanted(cluster, f"seq = {seq}")
    return tuple(_list_moves_and_decisions(lake, wanted, limit=WINDOW))


def list_pending(
    lake: Lake, cluster: str, ids: Collection[str], since_ms: int = 0
) -> tuple[Row, ...]:
    """Return the moves and decisions with these ids, the oldest first.

    `since_ms`: none of them is older.
    """
    if not ids:
        return ()
    condition = f"issued_ms >= {since_ms} AND decision_id IN (SELECT unnest($ids))"
    wanted = _Wanted(cluster, condition, {"ids": list(ids)})
    found = _list_moves_and_decisions(lake, wanted, limit=MAX_PENDING)
    return tuple(row for row in reversed(found) if row["outcome"] is None and not row["dry_run"])


def _list_moves_and_decisions(lake: Lake, wanted: _Wanted, limit: int = MAX_ENTRIES) -> list[Row]:
    """Return the newest moves and decisions that are wanted, as entries."""
    rows = _load_newest(lake, wanted)
    related = []
    if wanted.condition or wanted.before_ms is not None:
        related = _load_related(lake, rows)
    known = {row["decision_id"]: row for row in (*related, *rows)}
    phases = group_moves(row for row in known.values() if not row["dry_run"])
    move_of = {
        phase["decision_id"]: move for move, followers in phases.items() for phase in followers
    }
    # The begin of what has been read. Moves from before it may lack phases, and their order.
    begin_ms = rows[-1]["issued_ms"] if len(rows) == WINDOW else None
    names = dict.fromkeys(move_of.get(row["decision_id"], row["decision_id"]) for row in rows)
    heads = [head for head in map(known.__getitem__, names) if wanted.takes(head)]
    if begin_ms is not None:
        heads = [head for head in heads if head["issued_ms"] >= begin_ms and not follows_move(head)]
    heads = sorted(heads, key=_place, reverse=True)[:limit]
    return _build_entries(lake, heads, phases)


def _place(decision: Row) -> tuple[int, int, int, str]:
    """Return the place of a decision among others, as _NEWEST sorts them."""
    name = decision["decision_id"]
    return decision["issued_ms"], decision["seq"], len(name), name


def _load_newest(lake: Lake, wanted: _Wanted) -> list[Row]:
    """Return the newest decisions that meet the condition, WINDOW at most.

    A dry run decides the same anew in each round. Of equal ones the newest is returned, with
    `times`, their number, and `first_ms`.
    """
    parameters = wanted.parameters
    query = _DECISIONS.format(where=wanted.build_where(wanted.end))
    rows = records(run(lake, query, parameters))
    if not any(row["dry_run"] for row in rows):
        return rows
    query = _DECISIONS.format(where=wanted.build_where(wanted.end, "NOT dry_run"))
    rows = records(run(lake, query, parameters))
    last = wanted.end or "true"
    query = _REPEATS.format(where=wanted.build_where("dry_run"), last=last)
    rows += records(run(lake, query, parameters))
    return sorted(rows, key=_place, reverse=True)[:WINDOW]


def _load_related(lake: Lake, rows: Iterable[Row]) -> list[Row]:
    """Return all decisions of the moves that these decisions are of."""
    of_moves = [
        row for row in rows if not row["dry_run"] and (row["kind"] in MOVES or follows_move(row))
    ]
    if not of_moves:
        return []
    begin_ms = min(row["issued_ms"] for row in of_moves)
    if any(map(follows_move, of_moves)):
        begin_ms -= LONGEST_MOVE_MS
    end_ms = max(row["issued_ms"] for row in of_moves) + LONGEST_MOVE_MS
    bundles = sorted({(row["cluster"], row["bundle"]) for row in of_moves})
    names: dict[str, object] = {
        "clusters": [cluster for cluster, _ in bundles],
        "bundles": [bundle for _, bundle in bundles],
    }
    return records(run(lake, _RELATED.format(begin_ms=begin_ms, end_ms=end_ms), names))


def _build_entries(lake: Lake, heads: Iterable[Row], phases: Mapping[str, list[Row]]) -> list[Row]:
    """Return decisions, or moves with their phases, as entries with their outcomes."""
    moves = [(head, phases.get(head["decision_id"], [])) for head in heads]
    published = [row for head, more in moves for row in (head, *more) if not row["dry_run"]]
    outcomes: dict[str, Row] = {}
    if published:
        # A decision ends in its own round or in a later one.
        query = _OUTCOMES.format(log_seq=min(row["log_seq"] for row in published))
        ids = [row["decision_id"] for row in published]
        outcomes = {row["decision_id"]: row for row in records(run(lake, query, {"ids": ids}))}
    return [
        build_entry(
            _NO_OUTCOME | head | outcomes.get(head["decision_id"], {}),
            [_NO_OUTCOME | row | outcomes.get(row["decision_id"], {}) for row in more],
        )
        for head, more in moves
    ]


def list_command_entries(lake: Lake, cluster: str, name: str) -> tuple[Row, ...]:
    """Return the entries of a command, or of commands sent together: `name`-1, `name`-2, …"""
    rows = records(run(lake, _SENT_TOGETHER, [cluster, name]))
    return tuple(
        map(build_command_entry, sorted(rows, key=lambda row: (len(row["id"]), row["id"])))
    )
