"""`lbctl replay`: does the log still follow from its inputs?"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lb_stream.cli.shared.options import (
    BrokerConf,
    Cluster,
    ConfigFile,
    Json,
    Set,
    effective,
    time_given,
)
from lb_stream.cli.shared.output import CommandError, emit_json, emit_rich, note, styled, table
from lb_stream.io.messages.times import clock

if TYPE_CHECKING:
    from rich.text import Text

LONGEST_SHOWN = 160


def register(app: typer.Typer) -> None:
    """Add the command to lbctl."""
    codes = "Exit codes: 0 all that could be replayed are equal, 1 one differs or none could be."
    app.command("replay", epilog=f"Example: lbctl replay --since 2026-11-21T13:00 · {codes}")(
        replay
    )


def replay(
    batch: Annotated[
        int | None,
        typer.Option(
            "--batch",
            metavar="N",
            help="Only the rounds of this batch (batch_id in rounds).",
            min=0,
        ),
    ] = None,
    since: Annotated[
        str | None,
        typer.Option(
            "--since", metavar="TIME", help="Only rounds since then, as 2026-11-21T13:00."
        ),
    ] = None,
    cluster: Cluster = None,
    config: ConfigFile = None,
    broker_conf: BrokerConf = None,
    set_: Set = None,
    json: Json = False,
) -> None:
    """Decide logged rounds once more and compare, byte for byte, with what was decided then.

    Each round starts from the settings, acknowledgements and memory that the log has, and from its
    view, which stays beside the checkpoint for the last batches (stream.keep_views). Nothing is
    written or published.
    """
    from rich.console import Console
    from rich.progress import track

    from lb_stream.contracts.tables import ROUNDS
    from lb_stream.io.tables.delta import existing_table
    from lb_stream.io.tables.replay import Wanted
    from lb_stream.io.tables.replay import replay as replayed
    from lb_stream.store import tables_of

    stream = effective(config, broker_conf, set_).stream
    if existing_table(tables_of(stream), ROUNDS) is None:
        raise CommandError(
            f"no log in {stream.tables}: name the tables' folder with --set stream.tables=FOLDER"
        )
    at = time_given(since)
    total, each = replayed(
        stream, Wanted(batch, None if at is None else int(at.timestamp() * 1000), cluster)
    )
    rounds = list(track(each, description="replaying", total=total, console=Console(stderr=True)))
    counts = Counter(row.result for row in rounds)
    if json:
        for row in rounds:
            emit_json(_record(row))
    elif rounds:
        emit_rich(
            table(
                ("batch", "round", "at", "decisions", "result"),
                [_row(row) for row in rounds if row.result != "view gone"],
            )
        )
    words = ", ".join(f"{count} {result}" for result, count in sorted(counts.items()))
    note(f"{len(rounds)} rounds: {words or 'none in the log'}")
    if counts["view gone"]:
        note(
            "where the view is gone a round can't be replayed: stream.keep_views says for how many "
            "batches views stay"
        )
    if counts["different"] or not counts["equal"]:
        raise typer.Exit(1)


def _record(value: Any) -> dict[str, Any]:
    names = ("cluster", "seq", "batch_id", "log_seq", "now_ms", "decisions", "result")
    differences = {
        name: {"logged": then, "replayed": now} for name, (then, now) in value.differences.items()
    }
    return {name: getattr(value, name) for name in names} | {"differences": differences}


def _row(value: Any) -> tuple[str | Text, ...]:
    shown = [f"{name}: {_where(then, now)}" for name, (then, now) in value.differences.items()]
    return (
        str(value.batch_id),
        f"{value.cluster}:{value.seq}",
        clock(value.now_ms),
        str(value.decisions),
        styled(value.result, *shown),
    )


def _where(then: str, now: str) -> str:
    """The first place where two texts differ."""
    at = next(
        (at for at, (left, right) in enumerate(zip(then, now, strict=False)) if left != right),
        min(len(then), len(now)),
    )
    begin = max(at - 20, 0)
    return (
        f"…{then[begin : begin + LONGEST_SHOWN // 2]}… is now "
        f"…{now[begin : begin + LONGEST_SHOWN // 2]}…"
    )
