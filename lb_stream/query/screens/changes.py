"""What changed in a cluster in a range of time: commands, settings, versions, brokers, job."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from lb_stream.io.messages.times import clock
from lb_stream.query.health import SUSPENDING
from lb_stream.query.lake import Row, records, run
from lb_stream.query.references import Reference, refer
from lb_stream.query.screens.entries import build_command_entry

if TYPE_CHECKING:
    from lb_stream.query.lake import Lake

MAX_CHANGES = 200
MAX_KEYS = 6
"""Changed settings that a line names."""
SILENT_MS = 5_000
"""A broker that is not active and was heard less than this ago is drained, not silent."""
REPEATED_MS = 900_000
"""A suspension is reported again and again, no longer apart than this (core.observing.liveness)."""
BEFORE_MS = 600_000
"""The state at the begin of a range is looked for this long before it."""

_COMMANDS = f"""
    SELECT id, cluster, any_value(kind) AS kind, any_value(at_ms) AS at_ms,
           any_value("by") AS "by", any_value(arguments) AS arguments,
           arg_max(outcome, log_seq) AS outcome, arg_max(text, log_seq) AS text
    FROM commands WHERE cluster = $1 AND at_ms BETWEEN $2 AND $3
    GROUP BY id, cluster ORDER BY at_ms DESC LIMIT {MAX_CHANGES}
"""
# A broker that is alive is not active while it is silent, or drained by a command.
_BROKERS = f"""
    SELECT broker, now_ms, seq, alive, was_alive, active, seen_ms FROM (
        SELECT *, lag(alive) OVER brokers AS was_alive, lag(active) OVER brokers AS was_active,
               now_ms - seen_ms >= {SILENT_MS} AS is_silent,
               lag(now_ms - seen_ms >= {SILENT_MS}) OVER brokers AS was_silent
        FROM broker_loads WHERE cluster = $1 AND now_ms BETWEEN $2 - {BEFORE_MS} AND $3
        WINDOW brokers AS (PARTITION BY broker ORDER BY log_seq)
    )
    WHERE now_ms >= $2 AND (
        alive <> was_alive
        OR alive AND active <> was_active AND CASE WHEN active THEN was_silent ELSE is_silent END
    )
    ORDER BY now_ms DESC LIMIT {MAX_CHANGES}
"""
_SUSPENSIONS = f"""
    SELECT rule, subjects, "count", seq, now_ms FROM (
        SELECT *, lag(now_ms) OVER (PARTITION BY rule ORDER BY log_seq) AS before_ms
        FROM refusals
        WHERE cluster = $1 AND now_ms BETWEEN $2 - {BEFORE_MS} AND $3
          AND rule IN {tuple(sorted(SUSPENDING))}
    )
    WHERE now_ms >= $2 AND (before_ms IS NULL OR now_ms - before_ms > {REPEATED_MS})
    ORDER BY now_ms DESC LIMIT {MAX_CHANGES}
"""
_ROUNDS = f"""
    SELECT * FROM (
        SELECT seq, now_ms, settings, version,
               lag(settings) OVER (ORDER BY log_seq) AS settings_before,
               lag(version) OVER (ORDER BY log_seq) AS version_before
        FROM (
            SELECT seq, now_ms, log_seq, json_extract(inputs, '$.settings')::VARCHAR AS settings,
                   coalesce(json_extract_string(memory, '$.followed.version'), '') AS version
            FROM rounds WHERE cluster = $1 AND memory <> '' AND inputs <> ''
              AND now_ms BETWEEN $2 - {BEFORE_MS} AND $3
        )
    ) WHERE now_ms >= $2 AND (settings <> settings_before OR version <> version_before)
    ORDER BY now_ms DESC LIMIT {MAX_CHANGES}
"""
_ROLLOUTS = f"""
    SELECT broker, phase, at_ms, text FROM rollouts
    WHERE cluster = $1 AND at_ms BETWEEN $2 AND $3
      AND (broker IS NULL OR phase IN ('down', 'done'))
    ORDER BY at_ms DESC LIMIT {MAX_CHANGES}
"""
_LEADERS = f"""
    SELECT epoch, host, since_ms FROM leaders WHERE since_ms BETWEEN $1 AND $2
    ORDER BY since_ms DESC LIMIT {MAX_CHANGES}
"""
_ENDS = f"""
    SELECT epoch, host, last_ms
    FROM (
        SELECT epoch, max(started_ms) AS last_ms FROM batches WHERE started_ms >= {{begin_ms}}
        GROUP BY epoch
    )
    JOIN (SELECT *, epoch = max(epoch) OVER () AS leads FROM leaders) USING (epoch)
    WHERE last_ms <= $end_ms AND ($has_stopped OR NOT leads)
    ORDER BY last_ms DESC LIMIT {MAX_CHANGES}
"""


def list_changes(
    lake: Lake, cluster: str, begin_ms: int, end_ms: int, has_stopped: bool = False
) -> tuple[Row, ...]:
    """Return the newest changes in a range of time, the newest first.

    `has_stopped`: the job that led last makes no batches any more.

    A row has `at_ms`, `what` (command, broker, restart, settings, version, job), `text`,
    `references`, and of a command its `command_id` and `outcome`.
    """
    within = [cluster, begin_ms, end_ms]
    ended: dict[str, object] = {"end_ms": end_ms, "has_stopped": has_stopped}
    found = [
        *_list_commands(records(run(lake, _COMMANDS, within))),
        *_list_brokers(cluster, records(run(lake, _BROKERS, within))),
        *_list_rounds(cluster, records(run(lake, _ROUNDS, within))),
        *_list_rollouts(cluster, records(run(lake, _ROLLOUTS, within))),
        *_list_suspensions(cluster, records(run(lake, _SUSPENSIONS, within))),
        *_list_leaders(records(run(lake, _LEADERS, within[1:]))),
        *_list_ends(records(run(lake, _ENDS.format(begin_ms=begin_ms), ended))),
    ]
    newest = sorted(found, key=lambda row: -int(row["at_ms"]))
    return tuple(newest[:MAX_CHANGES])


def _build_row(
    at_ms: int, what: str, text: str, references: tuple[Reference, ...] = (), **more: object
) -> Row:
    row = {"at_ms": at_ms, "what": what, "text": text, "references": references}
    return row | {"command_id": None, "outcome": None} | more


def _list_commands(rows: list[Row]) -> Iterator[Row]:
    for row in map(build_command_entry, rows):
        result = f"{row['outcome']}: {row['text']}" if row["text"] else str(row["outcome"])
        text = f"{row['sentence']} ({result})"
        more = {"command_id": row["id"], "outcome": row["outcome"]}
        yield _build_row(row["at_ms"] or 0, "command", text, **more)


def _list_brokers(cluster: str, rows: list[Row]) -> Iterator[Row]:
    for row in rows:
        if row["alive"] != row["was_alive"]:
            text = "is alive again" if row["alive"] else "counts as dead"
        elif row["active"]:
            text = "is heard again"
        else:
            text = "went silent"
        if text != "is heard again" and not (row["alive"] and row["active"]):
            text += f": it was heard last at {clock(row['seen_ms'])}"
        about = refer("broker", cluster, row["broker"])
        yield _build_row(row["now_ms"], "broker", f"{row['broker']} {text}", about)


def _list_rounds(cluster: str, rows: list[Row]) -> Iterator[Row]:
    for row in rows:
        about = refer("round", cluster, str(row["seq"]))
        if row["version"] != row["version_before"]:
            text = f"brokers report {row['version'] or 'no version'} instead of "
            text += row["version_before"] or "none"
            yield _build_row(row["now_ms"], "version", text, about)
        if row["settings"] != row["settings_before"]:
            before, after = (
                json.loads(row[name] or "{}") for name in ("settings_before", "settings")
            )
            text = f"the job's settings changed: {_describe_settings(before, after)}"
            yield _build_row(row["now_ms"], "settings", text, about)


def _describe_settings(before: Mapping[str, object], after: Mapping[str, object]) -> str:
    keys = sorted(key for key in before.keys() | after.keys() if before.get(key) != after.get(key))
    shown = [
        f"{key}: {before.get(key, 'default')} → {after.get(key, 'default')}"
        for key in keys[:MAX_KEYS]
    ]
    return ", ".join(shown) + (f" and {len(keys) - MAX_KEYS} more" if len(keys) > MAX_KEYS else "")


def _list_rollouts(cluster: str, rows: list[Row]) -> Iterator[Row]:
    for row in rows:
        about = refer("broker", cluster, row["broker"]) if row["broker"] else ()
        yield _build_row(row["at_ms"], "restart", row["text"], about or refer("rollout", cluster))


def _list_suspensions(cluster: str, rows: list[Row]) -> Iterator[Row]:
    for row in rows:
        names = list(row["subjects"] or ())[:MAX_KEYS]
        others = (row["count"] or 0) - len(names)
        more = f" and {others} more" if names and others > 0 else ""
        text = f"brokers went silent together: {', '.join(names)}{more}; nothing is decided "
        text += f"({row['rule']})"
        about = (*refer("broker", cluster, *names),) if names else ()
        about += refer("round", cluster, str(row["seq"]))
        yield _build_row(row["now_ms"], "broker", text, about)


def _list_ends(rows: list[Row]) -> Iterator[Row]:
    for row in rows:
        text = f"the job on {row['host']} stopped (epoch {row['epoch']}): its last batch"
        yield _build_row(row["last_ms"], "job", text)


def _list_leaders(rows: list[Row]) -> Iterator[Row]:
    for row in rows:
        text = f"a job began to lead on {row['host']} (epoch {row['epoch']})"
        yield _build_row(row["since_ms"], "job", text)
