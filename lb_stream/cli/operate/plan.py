"""`lbctl plan`: the best next moves, for an operator who wants to make them by hand."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from lb_stream.cli.shared.options import (
    BrokerConf,
    Cluster,
    ConfigFile,
    Format,
    Json,
    Output,
    Try,
    load_cli_settings,
    split_settings,
)
from lb_stream.cli.shared.output import (
    CommandError,
    emit_line,
    emit_object,
    emit_rich,
    note,
    styled,
    table,
)
from lb_stream.cli.shared.sending import DEFAULT_TIMEOUT_S, SendOptions, Timeout, send_commands
from lb_stream.io.messages.shown import figure
from lb_stream.io.messages.times import clock

if TYPE_CHECKING:
    from rich.text import Text

    from lb_stream.query.lake import Row
    from lb_stream.query.present.next_moves import NextMoves

MOVES = 20
EXACT_S = 20.0
_EXACT_COLUMNS = ("", "plan", "best found", "at least (proven)")
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
        int, typer.Option("--moves", "-n", metavar="N", min=1, help="Show or send N moves at most.")
    ] = MOVES,
    apply: Annotated[
        bool,
        typer.Option(
            "--apply",
            help="Ask, then send the moves as commands, each once the one before is done.",
        ),
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="With --apply: don't ask.")] = False,
    exact: Annotated[
        bool,
        typer.Option("--exact", help="Also prove how far the plan is from the best; needs HiGHS."),
    ] = False,
    seconds: Annotated[
        float,
        typer.Option("--seconds", metavar="S", min=1.0, help="With --exact: end after S seconds."),
    ] = EXACT_S,
    cluster: Cluster = None,
    set_: Try = None,
    timeout: Timeout = DEFAULT_TIMEOUT_S,
    config: ConfigFile = None,
    broker_conf: BrokerConf = None,
    json: Json = False,
    output: Output = Format.table,
) -> None:
    """Show the best next moves of a live cluster, and what each costs and gains.

    LeastMoves finds them, or another strategy that names destinations: --set
    shedding_strategy=NAME. It does so even while the cluster's own balancing is off. Without
    --apply nothing is sent.
    """
    form = Format.json if json else output
    json = form is not Format.table
    if apply and json and not yes:
        raise CommandError("--apply for programs: expected --yes, too: a question is no JSON", 2)
    tried, own = split_settings(set_)
    given = load_cli_settings(config, broker_conf, own)
    from lb_stream.cli.shared.staleness import warn_if_stale
    from lb_stream.query.exact_plan import require_solver
    from lb_stream.query.lake import open_lake
    from lb_stream.query.present.next_moves import find_next_moves

    if exact:
        require_solver()

    with open_lake(given.tables) as lake:
        stale = warn_if_stale(given, lake)
        found = find_next_moves(lake, cluster, tried, moves, seconds if exact else None)
    if not json:
        _show(found)
        if exact:
            _show_exact(found)
    done = 0
    if apply and found.groups:
        if stale:
            raise CommandError("nothing is sent: these are not the current loads")
        if found.dry_run:
            raise CommandError(
                f"nothing is sent: {found.cluster} is in a dry run (dry_run), so its moves would "
                "not be carried out"
            )
        if not yes and not typer.confirm(
            f"Send {_count_moves(len(found.moves))} to {found.cluster}?", err=True
        ):
            note("nothing was sent")
            raise typer.Exit(1)
        done = _send(SendOptions(given, found.cluster, False, False, timeout, None, json), found)
    emit_object(found.to_dict() | ({"done": done} if apply else {}), form)
    if apply and done < len(found.moves):
        raise typer.Exit(1)


def _send(options: SendOptions, found: NextMoves) -> int:
    """Send moves until one fails or has no result in time; return how many are done."""
    done = 0
    for group in found.groups:
        try:
            moved = send_commands(options, [("unload", _unload_fields(move)) for move in group])
        except CommandError as error:
            note(str(error))
            moved = False
        if not moved:
            left = len(found.moves) - done - len(group)
            note(f"{_count_moves(left)} not sent: they depend on this one. Run lbctl plan again")
            break
        done += len(group)
    return done


def _unload_fields(move: Row) -> dict[str, object]:
    namespace, _, bundle = str(move["bundle"]).rpartition("/")
    return {"namespace": namespace, "bundle": bundle, "destination": move["to"], "queue": True}


def _count_moves(moves: int) -> str:
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
        emit_line(f"{found.strategy} is unsure about this cluster: {found.unsure}.")


def _show_exact(found: NextMoves) -> None:
    """Show the plan beside the best, or say why nothing is proven."""
    exact = found.exact
    if exact is None:
        emit_line(f"{found.strategy} has sought no moves: there is no plan to compare.")
        return
    if exact.too_large or exact.fewest_moves is None or exact.lowest_max is None:
        reason = (
            f"the cluster is too large for the solver: {exact.variables:,} possible moves"
            if exact.too_large
            else "no bundle may move"
        )
        emit_line(f"Nothing is proven, {reason}. Lower bound: {exact.fewest_moves_at_least} moves.")
        return
    rows = [
        (
            "fewest moves to this max",
            str(exact.moves),
            str(exact.fewest_moves),
            str(exact.fewest_moves_at_least),
        ),
        (
            f"lowest max with {_count_moves(exact.moves)}",
            f"{exact.max:.3f}",
            f"{exact.lowest_max:.3f}",
            f"{exact.lowest_max_at_least:.3f}",
        ),
    ]
    emit_rich(table(_EXACT_COLUMNS, rows, right=_EXACT_COLUMNS[1:]), "")
    if not exact.is_proven:
        emit_line("The solver ran out of time: the best lies between the last two columns.")


def _cells(move: Row) -> tuple[str | Text, ...]:
    """Return the cells of a move.

    Below each broker is its usage before and after, below the second best destination its usage
    with the bundle, below the cost that of clients.
    """
    # The second best destination, and why it is not the best.
    second: str | Text = move["why_not"] or "-"
    if move["second"]:
        usage = f"{_usage(move['second_usage'])} with it"
        second = styled(move["second"], ", ".join(filter(None, (usage, move["why_not"]))))

    # What the move costs.
    clients = ""
    if move["client_seconds"] is not None:
        clients = figure(round(move["client_seconds"]), "client-s")
    cost = styled("-" if move["cost"] is None else f"{move['cost']:.2f}", clients)

    brokers = (_broker_cell(move, "from", "source"), _broker_cell(move, "to", "destination"))
    return (move["bundle"], *brokers, cost, _usage(move["gain"]), second)


def _broker_cell(move: Row, field: str, prefix: str) -> Text:
    """Return a broker with its usage before and after a move."""
    if not move[field]:
        return styled("to be found")
    before, after = move[f"{prefix}_before"], move[f"{prefix}_after"]
    return styled(move[field], f"{_usage(before)} → {_usage(after)}")


def _usage(ratio: float | None) -> str:
    return figure(ratio, "ratio")


def _summary(found: NextMoves) -> str:
    """Return how many moves there are, and how they change max usage."""
    # How many moves.
    shown = len(found.moves)
    moves = _count_moves(found.planned)
    if not found.planned:
        moves = "Nothing to move"
    elif shown != found.planned:
        moves = f"{shown} of {moves}"
    if found.planned and found.fewest is not None:
        moves += f", {found.fewest} at least are needed"

    # What they do.
    if found.max_over_even_before is None:
        return f"{moves}: no broker has load"
    change = f"{found.max_over_even_before:.2f}"
    if shown:
        change += f" → {found.max_over_even_after:.2f}"
    return f"{moves}. Max usage ÷ even load: {change} ({found.fullest})"
