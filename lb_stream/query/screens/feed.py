"""List moves, other decisions and operators' commands together, the newest first."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from lb_stream.contracts.decisions import MOVES
from lb_stream.query.lake import Row, records, run
from lb_stream.query.screens.entries import (
    FOLLOWS,
    build_command_entry,
    build_entry,
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

_COLUMNS = """
    decisions.decision_id, decisions.cluster, decisions.seq, issued_ms, kind, decisions.bundle,
    source, destination, rule, reason, strategy, dry_run, explain, expires_ms, outcome, detail,
    took_ms
"""
_NEWEST = "issued_ms DESC, seq DESC, TRY_CAST(string_split(decision_id, ':')[-1] AS INT) DESC"
# The moves of assignments, and decisions that belong to none.
_HEADS = f"""
    WITH about AS (
        SELECT decision_id, cluster, bundle, seq, issued_ms, {FOLLOWS} AS follows FROM decisions
        WHERE ($1 IS NULL OR cluster = $1) AND ($2 IS NULL OR issued_ms < $2 + {LONGEST_MOVE_MS})
          AND ($3 <> 'moves' OR kind IN {MOVES} OR {FOLLOWS}) AND {{where}}
        ORDER BY {_NEWEST} LIMIT {WINDOW}
    ), moves AS (
        SELECT cluster, bundle, seq, decision_id AS move_id
        FROM decisions SEMI JOIN (FROM about WHERE follows) AS about USING (cluster, bundle)
        WHERE kind IN {MOVES}
    ), linked AS (
        SELECT about.decision_id, move_id
        FROM (FROM about WHERE follows) AS about ASOF JOIN moves
        ON about.cluster = moves.cluster AND about.bundle = moves.bundle AND about.seq > moves.seq
    ), heads AS (
        SELECT DISTINCT coalesce(move_id, decision_id) AS decision_id
        FROM about LEFT JOIN linked USING (decision_id)
    )
    SELECT {_COLUMNS} FROM decisions SEMI JOIN heads USING (decision_id)
    LEFT JOIN outcomes USING (decision_id)
    WHERE ($2 IS NULL OR issued_ms < $2) AND ($3 <> 'moves' OR kind IN {MOVES})
      AND issued_ms >= (
          SELECT CASE count(*) WHEN {WINDOW} THEN min(issued_ms) ELSE 0 END FROM about
      )
    ORDER BY {_NEWEST} LIMIT {{limit}}
"""
_PHASES = f"""
    SELECT {_COLUMNS} FROM decisions LEFT JOIN outcomes USING (decision_id)
    WHERE list_contains($1, decisions.cluster) AND list_contains($2, decisions.bundle)
      AND issued_ms BETWEEN $3 AND $4 + {LONGEST_MOVE_MS} AND (kind IN {MOVES} OR {FOLLOWS})
"""
_EVERY = "true"
_CONTAINS = """contains(
    lower(concat_ws(' ', decision_id, bundle, source, destination, rule)), $4
)"""
_OF_BUNDLE = "(bundle = $4 OR coalesce(neighbour = $4, false))"
_OF_BROKER = "(source = $4 OR destination = $4)"
_OF_ROUND = "seq = $4"
_OF_IDS = "list_contains($4, decision_id)"
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
        where = (_CONTAINS, text.lower()) if text else (_EVERY, None)
        found += _list_moves_and_decisions(lake, cluster, where, kinds, before_ms)
    if kinds in ("all", "commands"):
        rows = records(run(lake, _COMMANDS, [cluster, before_ms, text.lower()]))
        found += map(build_command_entry, rows)
    return tuple(sorted(found, key=lambda row: -(row["at_ms"] or 0))[:MAX_ENTRIES])


def list_bundle_entries(lake: Lake, cluster: str, bundle: str) -> tuple[Row, ...]:
    """Return the newest moves of a bundle and decisions about it."""
    return tuple(_list_moves_and_decisions(lake, cluster, (_OF_BUNDLE, bundle)))


def list_broker_entries(lake: Lake, cluster: str, broker: str) -> tuple[Row, ...]:
    """Return the newest moves from or to a broker, and other decisions about it."""
    return tuple(_list_moves_and_decisions(lake, cluster, (_OF_BROKER, broker)))


def list_round_entries(lake: Lake, cluster: str, seq: int) -> tuple[Row, ...]:
    """Return the moves of which a round decided a phase, and its other decisions; all of them."""
    return tuple(_list_moves_and_decisions(lake, cluster, (_OF_ROUND, seq), limit=WINDOW))


def list_pending(lake: Lake, cluster: str, ids: Collection[str]) -> tuple[Row, ...]:
    """Return the moves and decisions with these ids, the oldest first."""
    found = _list_moves_and_decisions(lake, cluster, (_OF_IDS, list(ids)), limit=MAX_PENDING)
    return tuple(row for row in reversed(found) if row["outcome"] is None and not row["dry_run"])


def _list_moves_and_decisions(
    lake: Lake,
    cluster: str | None,
    where: tuple[str, object],
    kinds: str = "all",
    before_ms: int | None = None,
    limit: int = MAX_ENTRIES,
) -> list[Row]:
    """Return the newest rows of which a decision meets a condition (SQL, and its value $4)."""
    condition, value = where
    query = _HEADS.format(where=condition, limit=limit)
    parameters = [cluster, before_ms, kinds] + ([value] if "$4" in condition else [])
    heads = records(run(lake, query, parameters))
    moves = [row for row in heads if row["kind"] in MOVES]
    phases: dict[str, list[Row]] = {}
    if moves:
        clusters, bundles = ({row[name] for row in moves} for name in ("cluster", "bundle"))
        times = [row["issued_ms"] for row in moves]
        parameters = [list(clusters), list(bundles), min(times), max(times)]
        phases = group_moves(records(run(lake, _PHASES, parameters)))
    return [build_entry(row, phases.get(row["decision_id"], ())) for row in heads]


def list_command_entries(lake: Lake, cluster: str, name: str) -> tuple[Row, ...]:
    """Return the entries of a command, or of commands sent together: `name`-1, `name`-2, …"""
    rows = records(run(lake, _SENT_TOGETHER, [cluster, name]))
    return tuple(
        map(build_command_entry, sorted(rows, key=lambda row: (len(row["id"]), row["id"])))
    )
