"""`lbctl replay`: decides logged rounds once more, and compares the decisions."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Annotated

import typer

from lb_stream.cli.shared.options import (
    BrokerConf,
    Cluster,
    ConfigFile,
    Json,
    Set,
    load_cli_settings,
    parse_time,
)
from lb_stream.cli.shared.output import CommandError, emit_json, emit_rich, note, styled, table
from lb_stream.io.messages.times import clock

if TYPE_CHECKING:
    from rich.text import Text

    from lb_stream.io.tables.replay import ReplayedRound

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
    """Decide logged rounds once more, and compare the decisions byte for byte.

    Each round starts from its logged settings, acknowledgements and memory, and from its view,
    which is kept beside the checkpoint for the last batches (stream.keep_views). Nothing is written
    or published.
    """
    from rich.console import Console
    from rich.progress import track

    from lb_stream.contracts.tables import ROUNDS
    from lb_stream.io.tables.delta import existing_table
    from lb_stream.io.tables.replay import RoundFilter
    from lb_stream.io.tables.replay import replay as replay_rounds
    from lb_stream.store import tables_of

    stream = load_cli_settings(config, broker_conf, set_).stream
    if existing_table(tables_of(stream), ROUNDS) is None:
        raise CommandError(
            f"no log in {stream.tables}: name the tables' folder with --set stream.tables=FOLDER"
        )
    at = parse_time(since)
    total, replays = replay_rounds(
        stream, RoundFilter(batch, None if at is None else int(at.timestamp() * 1000), cluster)
    )
    rounds = list(
        track(replays, description="replaying", total=total, console=Console(stderr=True))
    )
    counts = Counter(replayed.result for replayed in rounds)
    if json:
        for replayed in rounds:
            emit_json(_build_record(replayed))
    elif rounds:
        emit_rich(
            table(
                ("batch", "round", "at", "decisions", "result"),
                [_build_cells(replayed) for replayed in rounds if replayed.result != "view gone"],
            )
        )
    results = ", ".join(f"{count} {result}" for result, count in sorted(counts.items()))
    note(f"{len(rounds)} rounds: {results or 'none in the log'}")
    if counts["view gone"]:
        note(
            "a round can't be replayed when its view is gone: stream.keep_views is the number of "
            "batches whose views are kept"
        )
    if counts["different"] or not counts["equal"]:
        raise typer.Exit(1)


def _build_record(replayed: ReplayedRound) -> dict[str, object]:
    """Build the JSON object of a replayed round."""
    names = ("cluster", "seq", "batch_id", "log_seq", "now_ms", "decisions", "result")
    differences = {
        name: {"logged": then, "replayed": now}
        for name, (then, now) in replayed.differences.items()
    }
    return {name: getattr(replayed, name) for name in names} | {"differences": differences}


def _build_cells(replayed: ReplayedRound) -> tuple[str | Text, ...]:
    shown = [
        f"{name}: {_describe_difference(then, now)}"
        for name, (then, now) in replayed.differences.items()
    ]
    return (
        str(replayed.batch_id),
        f"{replayed.cluster}:{replayed.seq}",
        clock(replayed.now_ms),
        str(replayed.decisions),
        styled(replayed.result, *shown),
    )


def _describe_difference(then: str, now: str) -> str:
    """Describe the first place where two texts differ."""
    at = next(
        (at for at, (left, right) in enumerate(zip(then, now, strict=False)) if left != right),
        min(len(then), len(now)),
    )
    begin = max(at - 20, 0)
    return (
        f"…{then[begin : begin + LONGEST_SHOWN // 2]}… is now "
        f"…{now[begin : begin + LONGEST_SHOWN // 2]}…"
    )
