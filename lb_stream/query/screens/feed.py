"""List decisions and operators' commands together, the newest first; and pending decisions."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from lb_stream.query.lake import Row, records, run
from lb_stream.query.wording import explain_outcome, explain_rule

if TYPE_CHECKING:
    from lb_stream.query.lake import Lake

MAX_ENTRIES = 40
MAX_PENDING = 100
ENTRY_KINDS = ("all", "moves", "decisions", "commands")
"""Which entries can be asked for."""

_DECISIONS = f"""
    SELECT 'decision' AS entry, decision_id AS id, decisions.cluster, decisions.seq,
           issued_ms AS at_ms, kind, decisions.bundle, source,
           destination, rule, strategy, dry_run, explain, outcome, detail, took_ms,
           expires_ms, NULL AS "by", NULL AS arguments, NULL AS text
    FROM decisions LEFT JOIN outcomes USING (decision_id)
    WHERE ($1 IS NULL OR decisions.cluster = $1) AND ($2 IS NULL OR issued_ms < $2)
      AND ($3 <> 'moves' OR kind IN ('unload', 'transfer')) AND $3 <> 'commands'
      AND ($4 = '' OR contains(
          lower(concat_ws(' ', decision_id, decisions.bundle, source, destination, rule)), $4
      ))
    ORDER BY issued_ms DESC, decisions.seq DESC,
        TRY_CAST(string_split(decision_id, ':')[-1] AS INT) DESC LIMIT {MAX_ENTRIES}
"""
_COMMAND = """
    SELECT 'command' AS entry, id, cluster, max(seq) AS seq, any_value(at_ms) AS at_ms,
           any_value(kind) AS kind, NULL AS bundle, NULL AS source, NULL AS destination,
           arg_max(rule, log_seq) AS rule, NULL AS strategy, false AS dry_run, NULL AS explain,
           arg_max(outcome, log_seq) AS outcome, NULL AS detail, NULL AS took_ms,
           NULL AS expires_ms, any_value("by") AS "by", any_value(arguments) AS arguments,
           arg_max(text, log_seq) AS text
    FROM commands
"""
_COMMANDS = f"""
    {_COMMAND}
    WHERE ($1 IS NULL OR cluster = $1) AND ($2 IS NULL OR at_ms < $2) AND $3 IN ('all', 'commands')
      AND ($4 = '' OR contains(lower(concat_ws(' ', id, kind, "by", arguments, text)), $4))
    GROUP BY id, cluster ORDER BY at_ms DESC LIMIT {MAX_ENTRIES}
"""
_SENT_TOGETHER = f"""
    {_COMMAND} WHERE cluster = $1 AND (id = $2 OR regexp_replace(id, '-[0-9]+$', '') = $2)
    GROUP BY id, cluster
"""
_PENDING = f"""
    SELECT decision_id AS id, cluster, seq, kind, bundle, source, destination, rule, issued_ms,
           expires_ms, explain
    FROM decisions ANTI JOIN outcomes USING (decision_id)
    WHERE NOT dry_run AND cluster = $1 AND list_contains($2, decision_id)
    ORDER BY issued_ms, decision_id LIMIT {MAX_PENDING}
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

    An entry whose `entry` is decision has `why` (a text) and `outcome_reason` (why it was not
    carried out); a command has `by`, `arguments` and `text`. `outcome` is None while a decision is
    pending. `kinds`: one of ENTRY_KINDS. `text`: only entries that contain it.
    """
    parameters = [cluster, before_ms, kinds, text.lower()]
    rows = [
        row for query in (_DECISIONS, _COMMANDS) for row in records(run(lake, query, parameters))
    ]
    newest = sorted(rows, key=lambda row: -(row["at_ms"] or 0))[:MAX_ENTRIES]
    return tuple(map(_complete_entry, newest))


def _complete_entry(row: Row) -> Row:
    if row["entry"] == "command":
        return row | {"arguments": json.loads(row["arguments"] or "{}")}
    return add_explanation(row)


def add_explanation(row: Row) -> Row:
    """Return a decision with `why` and `outcome_reason` in place of `explain` (JSON, or a dict)."""
    explain = row["explain"] or {}
    if isinstance(explain, str):
        explain = json.loads(explain)
    fields = {name: value for name, value in row.items() if name != "explain"}
    reason = explain_outcome(row) if "outcome" in row else ""
    why = explain_rule(row["rule"], row["source"], explain)
    return fields | {"why": why, "outcome_reason": reason}


def list_command_entries(lake: Lake, cluster: str, name: str) -> tuple[Row, ...]:
    """Return the entries of a command, or of commands sent together: `name`-1, `name`-2, …"""
    rows = records(run(lake, _SENT_TOGETHER, [cluster, name]))
    return tuple(map(_complete_entry, sorted(rows, key=lambda row: (len(row["id"]), row["id"]))))


def list_pending(lake: Lake, cluster: str, ids: list[str]) -> tuple[Row, ...]:
    """Return those of these decisions that are pending, the oldest first."""
    return tuple(map(add_explanation, records(run(lake, _PENDING, [cluster, ids]))))
