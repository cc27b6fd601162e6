"""`lbctl plan`: the best next moves, for an operator who wants to do them by hand."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from lb_stream.cli.shared.options import (
    BrokerConf,
    Cluster,
    ConfigFile,
    Json,
    Try,
    load_cli_settings,
    split_settings,
)
from lb_stream.cli.shared.output import (
    CommandError,
    emit_json,
    emit_line,
    emit_rich,
    note,
    styled,
    table,
)
from lb_stream.cli.shared.sending import DEFAULT_TIMEOUT_S, SendOptions, Timeout, send_each
from lb_stream.io.messages.shown import figure
from lb_stream.io.messages.times import clock

if TYPE_CHECKING:
    from rich.text import Text

    from lb_stream.query.present.next_moves import NextMoves

MOVES = 20
_COLUMNS = ("bundle", "from", "to", "cost", "gain", "second best")


def register(app: typer.Typer) -> None:
    """Add the command to lbctl."""
    example = "Example: lbctl plan --cluster eu-1 --moves 20 --apply"
    app.command(
        epilog=f"{example} · Exit codes: 0 shown, or all done; 1 a move was not done; 2 wrong "
        "usage."
    )(plan)


def plan(
    moves: Annotated[
        int, typer.Option("--moves", "-n", metavar="N", min=1, help="The first N at most.")
    ] = MOVES,
    apply: Annotated[
        bool,
        typer.Option(
            "--apply",
            help="Send them as commands, after a question, each when the one before is done.",
        ),
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="With --apply: don't ask.")] = False,
    cluster: Cluster = None,
    set_: Try = None,
    timeout: Timeout = DEFAULT_TIMEOUT_S,
    config: ConfigFile = None,
    broker_conf: BrokerConf = None,
    json: Json = False,
) -> None:
    """Show the best next moves of a live cluster, as LeastMoves sees it now: what each costs and
    gains. Without --apply nothing is sent.

    Another strategy that names destinations: --set shedding_strategy=NAME. It is asked even while
    the cluster's own balancing is off.
    """
    if apply and json and not yes:
        raise CommandError("--apply --json: expected --yes, too: what is asked is no JSON", 2)
    tried, own = split_settings(set_)
    given = load_cli_settings(config, broker_conf, own)
    from lb_stream.cli.shared.staleness import warn_if_stale
    from lb_stream.query.lake import open_lake
    from lb_stream.query.present.next_moves import find_next_moves

    with open_lake(given.tables) as lake:
        stale = warn_if_stale(given, lake)
        found = find_next_moves(lake, cluster, tried, moves)
    if not json:
        _show(found)
    done = 0
    if apply and found.groups:
        if stale:
            raise CommandError("nothing is sent: these are not the loads of now")
        if found.dry_run:
            raise CommandError(
                f"nothing is sent: {found.cluster} is in a dry run, its moves would not be carried "
                "out (dry_run)"
            )
        if not yes and not typer.confirm(
            f"Send {_counted(len(found.moves))} to {found.cluster}?", err=True
        ):
            note("nothing was sent")
            raise typer.Exit(1)
        done = _send(SendOptions(given, found.cluster, False, False, timeout, None, json), found)
    if json:
        emit_json(found.to_dict() | ({"done": done} if apply else {}))
    if apply and done < len(found.moves):
        raise typer.Exit(1)


def _send(how: SendOptions, found: NextMoves) -> int:
    """How many moves are done: the first that isn't, or isn't answered in time, ends it."""
    done = 0
    for group in found.groups:
        try:
            moved = send_each(how, "unload", [_unload(one) for one in group])
        except CommandError as error:
            note(str(error))
            moved = False
        if not moved:
            left = len(found.moves) - done - len(group)
            note(f"{_counted(left)} not sent: they count on this one. Look again: lbctl plan")
            break
        done += len(group)
    return done


def _unload(move: dict[str, Any]) -> dict[str, Any]:
    namespace, _, bundle = str(move["bundle"]).rpartition("/")
    return {"namespace": namespace, "bundle": bundle, "destination": move["to"], "queue": True}


def _counted(moves: int) -> str:
    return "1 move" if moves == 1 else f"{moves} moves"


# --- for people ---


def _show(found: NextMoves) -> None:
    own = (
        "" if found.strategy == found.own_strategy else f" (its own strategy: {found.own_strategy})"
    )
    emit_line(f"{found.cluster} at {clock(found.at_ms)}, by {found.strategy}{own}")
    if found.moves:
        emit_rich(
            table(_COLUMNS, [_cells(move) for move in found.moves], right=("cost", "gain")), ""
        )
    emit_line(_summary(found))
    for reason in found.reasons:
        emit_line(f"- {reason}")
    if found.unsure:
        emit_line(f"{found.strategy} doesn't know this cluster well: {found.unsure}.")


def _cells(move: dict[str, Any]) -> tuple[str | Text, ...]:
    """Below each broker its usage before and after this move, below the second best what it would
    have, below the cost the clients'."""
    with_it = filter(None, (f"{_usage(move['second_usage'])} with it", move["why_not"]))
    second = (
        styled(move["second"], ", ".join(with_it)) if move["second"] else move["why_not"] or "-"
    )
    brokers = (
        styled(
            move[side] or "to be found",
            f"{_usage(move[f'{name}_before'])} → {_usage(move[f'{name}_after'])}"
            if move[side]
            else "",
        )
        for side, name in (("from", "source"), ("to", "destination"))
    )
    clients = (
        "" if move["client_seconds"] is None else figure(round(move["client_seconds"]), "client-s")
    )
    cost = styled("-" if move["cost"] is None else f"{move['cost']:.2f}", clients)
    return (move["bundle"], *brokers, cost, _usage(move["gain"]), second)


def _usage(ratio: float | None) -> str:
    return figure(ratio, "ratio")


def _summary(found: NextMoves) -> str:
    shown = len(found.moves)
    told = _counted(shown) if shown == found.planned else f"{shown} of {_counted(found.planned)}"
    told = told if found.planned else "Nothing to move"
    if found.planned and found.fewest is not None:
        told += f", {found.fewest} at least are needed"
    if found.max_over_even_before is None:
        return f"{told}: no broker carries anything"
    change = (
        f"{found.max_over_even_before:.2f} → {found.max_over_even_after:.2f}"
        if shown
        else f"{found.max_over_even_before:.2f}"
    )
    return f"{told}. Max usage ÷ even load: {change} ({found.fullest})"
