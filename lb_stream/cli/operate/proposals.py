"""`lbctl proposals`, `approve` and `reject`: what balancing wants to do in clusters whose decisions
wait for somebody's approval."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lb_stream.cli.shared.options import (
    BrokerConf,
    Cluster,
    ConfigFile,
    Format,
    Json,
    Output,
    Set,
    load_cli_settings,
)
from lb_stream.cli.shared.output import CommandError, emit_rich, emit_rows, note, styled, table
from lb_stream.cli.shared.prediction import Preview, preview_moves
from lb_stream.cli.shared.sending import SendOptions, send_each, with_send_options
from lb_stream.cli.shared.spans import parse_duration
from lb_stream.io.messages.shown import figure
from lb_stream.io.messages.times import clock

if TYPE_CHECKING:
    from rich.text import Text

_ID = re.compile(r"(.+):\d+:p\d+")
_COLOURS = {"waiting": "yellow", "approved": "green", "rejected": "red"}
Ids = Annotated[
    list[str] | None,
    typer.Argument(metavar="[ID]...", help="Proposals, as lbctl proposals shows them."),
]


def register(app: typer.Typer) -> None:
    """Add the commands to lbctl."""
    app.command("proposals", epilog="Example: lbctl proposals --cluster eu-1")(proposals)
    example = "Example: lbctl approve --plan eu-1:4711 · lbctl approve eu-1:4711:p0"
    app.command(
        "approve",
        epilog=f"{example} · Exit codes: 0 all moved, 1 something was not, 2 wrong usage.",
    )(approve)
    app.command(
        "reject",
        epilog='Example: lbctl reject eu-1:4711:p0 --why "its topics go tonight" --for 12h',
    )(reject)


def proposals(
    last: Annotated[
        int,
        typer.Option(
            "--last", "-n", metavar="N", min=0, help="Show the last N that wait no more, too."
        ),
    ] = 0,
    cluster: Cluster = None,
    config: ConfigFile = None,
    broker_conf: BrokerConf = None,
    set_: Set = None,
    json: Json = False,
    output: Output = Format.table,
) -> None:
    """Show what balancing wants to do and what waits for approval: which bundle, where to, why, and
    until when."""
    given = load_cli_settings(config, broker_conf, set_)
    from lb_stream.cli.shared.staleness import warn_if_stale
    from lb_stream.query.cluster_state import require_cluster
    from lb_stream.query.lake import open_lake
    from lb_stream.query.present.proposals import load_ended_proposals, load_waiting_proposals

    lake = open_lake(given.tables)
    require_cluster(lake, cluster)
    warn_if_stale(given, lake)
    rows = [
        *(load_ended_proposals(lake, cluster, last) if last else ()),
        *load_waiting_proposals(lake, cluster),
    ]
    if emit_rows(rows, output, json):
        return
    if not rows:
        of = f" in {cluster}" if cluster else ""
        note(
            f"nothing waits for approval{of}; clusters whose mode is approve propose: lbctl "
            "clusters list"
        )
    else:
        _show(rows)


@with_send_options()
def approve(
    ids: Ids = None,
    plan: Annotated[
        str | None,
        typer.Option("--plan", metavar="PLAN", help="All moves of this plan that wait now."),
    ] = None,
    every: Annotated[
        bool, typer.Option("--all", help="All that wait now. Shows them and asks.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="With --all: don't ask.")] = False,
    even_if_worse: Annotated[
        bool,
        typer.Option("--even-if-worse", help="Also what would make the busiest broker busier."),
    ] = False,
    preview: Preview = False,
    *,
    send: SendOptions,
) -> None:
    """Have the balancer do what it has proposed.

    Each proposal is looked at again: what can't or must not be any more is refused.

    So is a move that would make the busiest broker busier than it is now, without the steps of its
    plan before it.
    Waits until reports show it, as a move takes its time; --no-wait doesn't.
    """
    if bool(ids) + bool(plan) + every != 1:
        raise CommandError("expected one of: IDs of proposals, --plan PLAN, --all", 2)
    if plan:
        ids = _of_plan(send, plan)
    if preview:
        _preview(send, ids)
        return
    if send.json and every and not yes:
        raise CommandError("--json: expected --yes, too: what is asked is no JSON", 2)
    wanted = _waiting(send, yes) if every else ids or []
    _send(send, "approve-proposals", wanted, {"even_if_worse": True} if even_if_worse else {})


def _of_plan(send: SendOptions, plan: str) -> list[str]:
    """The ids of a plan's moves that wait. Raises CommandError (2) if none of such a plan does."""
    from lb_stream.query.lake import open_lake
    from lb_stream.query.present.proposals import load_waiting_proposals, summarise_plans

    with open_lake(send.given.tables) as lake:
        waiting = {
            found["plan"]: found["ids"] for found in summarise_plans(load_waiting_proposals(lake))
        }
    if plan not in waiting:
        known = ", ".join(waiting) or "none"
        expected = f"no move of such a plan waits; plans that wait: {known}"
        raise CommandError(f"--plan {plan}: {expected}", 2)
    return list(waiting[plan])


def _preview(send: SendOptions, ids: Iterable[str] | None) -> None:
    """What would come of these proposals, None: of all that wait.

    Raises CommandError for what can't be played.
    """
    from lb_stream.contracts.decisions import MOVES
    from lb_stream.query.cluster_state import require_cluster
    from lb_stream.query.lake import open_lake
    from lb_stream.query.present.proposals import load_waiting_proposals

    with open_lake(send.given.tables) as lake:
        require_cluster(lake, send.cluster)
        waiting = {row["proposal_id"]: row for row in load_waiting_proposals(lake, send.cluster)}
    wanted = list(waiting if ids is None else dict.fromkeys(ids))
    if unknown := [one for one in wanted if one not in waiting]:
        raise CommandError(
            f"{unknown[0]}: nothing waits under this id; lbctl proposals shows what does", 2
        )
    if not wanted:
        raise CommandError("nothing waits for approval")
    rows = [waiting[one] for one in wanted]
    if len(clusters := sorted({row["cluster"] for row in rows})) > 1:
        raise CommandError(
            f"--preview plays one cluster, these are of {', '.join(clusters)}: name one with "
            "--cluster",
            2,
        )
    if splits := [row["proposal_id"] for row in rows if row["kind"] not in MOVES]:
        raise CommandError(
            f"{splits[0]} is no move: bundles aren't split in a played present; name the others", 2
        )
    moves = [
        dict(zip(("namespace", "bundle"), row["bundle"].rsplit("/", 1), strict=True))
        | {"destination": row["destination"]}
        for row in rows
    ]
    preview_moves(replace(send, cluster=clusters[0]), "unload", moves, waits=True)


@with_send_options()
def reject(
    ids: Ids = None,
    why: Annotated[
        str, typer.Option("--why", metavar="TEXT", help="Why; it is shown whenever somebody asks.")
    ] = "",
    span: Annotated[
        str,
        typer.Option(
            "--for",
            metavar="TIME",
            help="How long nothing of its kind is proposed about its bundle: 30m, 2h, 7d; 0s: not.",
        ),
    ] = "2h",
    *,
    send: SendOptions,
) -> None:
    """Have the balancer not do what it has proposed, nor propose the like again for a while: the
    bundle stays where it is, or whole."""
    if not ids:
        raise CommandError("expected the IDs of proposals, as lbctl proposals shows them", 2)
    if not why.strip():
        raise CommandError(
            "--why: expected why, in a few words: it is what --why-not tells others", 2
        )
    _send(
        send, "reject-proposals", ids, {"why": why.strip(), "for_ms": parse_duration("--for", span)}
    )


def _send(send: SendOptions, kind: str, ids: Iterable[str], fields: Mapping[str, Any]) -> None:
    """One command to each cluster. Raises typer.Exit(1) where something was not done."""
    by_cluster = defaultdict[str, list[str]](list)
    for one in ids:
        found = _ID.fullmatch(one)
        if found is None:
            raise CommandError(
                f"{one}: expected CLUSTER:ROUND:pNUMBER, as lbctl proposals shows it", 2
            )
        if send.cluster not in (None, found[1]):
            raise CommandError(f"{one} is of {found[1]}, not of {send.cluster}", 2)
        by_cluster[found[1]].append(one)
    done = [
        send_each(replace(send, cluster=name), kind, [{"proposals": some, **fields}])
        for name, some in sorted(by_cluster.items())
    ]
    if not all(done):
        raise typer.Exit(1)


def _waiting(send: SendOptions, yes: bool) -> list[str]:
    """The ids of all that wait, as they are shown to whoever is asked.

    Raises typer.Exit where there is none, or the answer is no.
    """
    from lb_stream.query.cluster_state import require_cluster
    from lb_stream.query.lake import open_lake
    from lb_stream.query.present.proposals import load_waiting_proposals

    with open_lake(send.given.tables) as lake:
        require_cluster(lake, send.cluster)
        rows = load_waiting_proposals(lake, send.cluster)
    if not rows:
        note("nothing waits for approval")
        raise typer.Exit
    if not send.json:
        _show(rows)
    if not yes and not typer.confirm(f"Approve {'these' if len(rows) > 1 else 'this'}?", err=True):
        note("nothing was sent")
        raise typer.Exit(1)
    return [row["proposal_id"] for row in rows]


def _show(rows: list[dict[str, Any]]) -> None:
    from lb_stream.query.present.proposals import summarise_plans

    columns = ("proposal", "bundle, from, to", "MB/s", "state", "why")
    emit_rich(table(columns, [_cells(row) for row in rows], right=("MB/s",)))
    for plan in summarise_plans(row for row in rows if row["state"] == "waiting"):
        note(_describe_plan(plan))


def _describe_plan(plan: dict[str, Any]) -> str:
    """What a plan comes to as a whole, and how it is approved."""
    moves = f"{plan['moves']} move{'s' if plan['moves'] > 1 else ''}"
    to = ""
    if plan["max_usage"] is not None:
        now, after = (figure(plan[name], "ratio") for name in ("max_usage", "usage_after"))
        to = f", the busiest broker from {now} to {after}"
    return f"plan {plan['plan']}: {moves}{to}; lbctl approve --plan {plan['plan']}"


def _cells(row: dict[str, Any]) -> tuple[str | Text, ...]:
    way = (
        "split"
        if row["kind"] == "split"
        else f"{row['source']} → {row['destination'] or 'to be found'}"
    )
    with_ = "" if row["together"] == row["proposal_id"] else f"; together with {row['together']}"
    megabytes = "-" if row["bytes_per_s"] is None else f"{row['bytes_per_s'] / 1e6:.2f}"
    state = styled((row["state"], _COLOURS.get(row["state"], "")), _state(row))
    why = row["explanation"] + with_ + _usages(row)
    return (row["proposal_id"], styled(row["bundle"], way), megabytes, state, why)


def _usages(row: dict[str, Any]) -> str:
    """The usages that a move that waits is to be judged by, as they are now."""
    from lb_stream.query.present.proposals import is_worse_alone

    if row["state"] != "waiting" or row["max_usage"] is None:
        return ""
    there = ""
    if row["destination_usage"] is not None:
        there = f", {row['destination']} at {figure(row['destination_usage'], 'ratio')}"
    now = f"; now {row['source']} is at {figure(row['source_usage'], 'ratio')}{there}"
    if not is_worse_alone(row):
        return now
    most = f"{figure(row['max_usage'], 'ratio')} to {figure(row['usage_alone'], 'ratio')}"
    return f"{now}; not alone: that takes the busiest broker from {most}"


def _state(row: dict[str, Any]) -> str:
    """What is to be said of its state: until when it waits; who has ended it, and why."""
    if row["state"] == "waiting":
        return f"until {clock(row['expires_ms'])}"
    until = f"until {clock(row['until_ms'])}" if row["until_ms"] else ""
    by = f"by {row['by']}" if row["by"] else ""
    ended = row["outcome"] + (f": {row['outcome_reason']}" if row["outcome_reason"] else "")
    return ", ".join(filter(None, (by, row["why"], until, row["decision_id"], ended)))
