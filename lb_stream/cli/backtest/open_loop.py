"""`lbctl backtest --open-loop`: compares policies' decisions in logged rounds."""

from __future__ import annotations

import json as json_
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from typing import TYPE_CHECKING

from lb_stream.cli.shared.output import CommandError, emit_json, emit_rich, note, table
from lb_stream.io.messages.times import utc

if TYPE_CHECKING:
    from lb_stream.backtest.open_loop import RoundWithStart
    from lb_stream.backtest.trial import BacktestRow

HEADS = {
    "moves": "moves",
    "alike": "alike",
    "same_source": "same source",
    "fewer": "only then",
    "more": "only now",
    "assignments": "assignments",
    "assignments_alike": "of them alike",
}
"""Count → head of its column."""


def compare_decisions(
    tables: str,
    checkpoint: str | None,
    clusters: Sequence[str],
    policies: Sequence[str],
    between: tuple[int | None, int | None],
    json: bool,
) -> int:
    """Compare the decisions, append the rows to `backtests`, and show them.

    Returns the exit code, 1 if a policy failed. Raises CommandError when no view is left,
    QueryError for an unknown cluster.
    """
    from lb_stream.backtest.open_loop import run_open_loop
    from lb_stream.backtest.trial import append_backtests
    from lb_stream.contracts.settings import StreamSettings
    from lb_stream.contracts.tables import ROUNDS
    from lb_stream.io.local.progress import progress
    from lb_stream.io.tables.delta import existing_table
    from lb_stream.io.tables.replay import RoundFilter, load_round_starts
    from lb_stream.query.cluster_state import require_cluster
    from lb_stream.query.lake import open_lake
    from lb_stream.sim.simulation import read_policy
    from lb_stream.store import tables_of

    beside = f"{tables.rstrip('/').rpartition('/')[0] or '.'}/checkpoint"
    stream = StreamSettings(tables=tables, checkpoint=checkpoint or beside)
    folder = tables_of(stream)
    if existing_table(folder, ROUNDS) is None:
        raise CommandError(f"{tables} has no log: expected a job's tables in --tables FOLDER", 2)
    with open_lake(folder, require_columns=False) as lake:
        for cluster in clusters:
            require_cluster(lake, cluster)
    begin, end = between
    wanted: Sequence[str | None] = clusters or [None]
    found = [
        load_round_starts(stream, RoundFilter(since_ms=begin, until_ms=end, cluster=cluster))
        for cluster in wanted
    ]
    total = sum(rounds for rounds, _ in found)
    seen: list[bool] = []
    with progress("deciding") as show_progress:
        logged = _note_views(
            chain.from_iterable(rounds for _, rounds in found),
            seen,
            lambda: show_progress("", len(seen), total),
        )
        rows = run_open_loop(logged, [read_policy(policy) for policy in policies])
    gone = (
        f"{seen.count(False)} of {total} rounds have no view any more: stream.keep_views says "
        "for how many batches views stay"
    )
    if not rows:
        raise CommandError(
            f"nothing to decide again: {gone if total else 'no round of this time is in the log'}"
        )
    kept = append_backtests(folder, rows)
    _show(kept, json)
    if not all(seen):
        note(gone)
    return int(any(row["error"] is not None for row in kept))


def _note_views(
    rounds: Iterable[RoundWithStart], seen: list[bool], on_round: Callable[[], None]
) -> Iterator[RoundWithStart]:
    """Yield the same rounds. `seen` gets, for each, whether its view exists."""
    for row, start in rounds:
        yield row, start
        seen.append(start is not None)
        on_round()


def _show(rows: Sequence[BacktestRow], json: bool) -> None:
    if json:
        for row in rows:
            emit_json(
                row | {name: json_.loads(row[name] or "null") for name in ("measures", "settings")}
            )
        return
    heads = tuple(HEADS.values())
    for cluster in dict.fromkeys(row["cluster"] for row in rows):
        mine = [
            (row, json_.loads(row["measures"] or "null"))
            for row in rows
            if row["cluster"] == cluster
        ]
        span = f"{cluster}, {utc(mine[0][0]['from_ms'])} to {utc(mine[0][0]['to_ms'])}"
        then = next(
            (
                f": {counts['rounds']} rounds, {counts['moves_then']} moves and "
                f"{counts['assignments_then']} assignments decided then"
                for _, counts in mine
                if counts
            ),
            "",
        )
        cells = [
            (row["policy"], *("-" if counts is None else str(counts[name]) for name in HEADS))
            for row, counts in mine
        ]
        emit_rich(span + then, table(("policy", *heads), cells, right=heads))
    note(f"run {rows[0]['run']} in the table backtests, loop open")
    for row in rows:
        if row["error"] is not None:
            note(f"{row['policy']}, {row['cluster']}: {row['error'].splitlines()[-1]}")
