"""`lbctl proposals`, `approve` and `reject`, for clusters whose mode is approve."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from lb_stream.cli.shared.completion import complete_plans, complete_proposals
from lb_stream.cli.shared.output import (
    CommandError,
    emit_rich,
    note,
    note_whole_id,
    styled,
    table,
)
from lb_stream.cli.shared.prediction import Preview, preview_moves
from lb_stream.cli.shared.reading import ReadOptions, with_read_options
from lb_stream.cli.shared.sending import SendOptions, send_commands, with_send_options
from lb_stream.cli.shared.spans import parse_duration
from lb_stream.io.messages.shown import figure
from lb_stream.io.messages.times import clock

if TYPE_CHECKING:
    import duckdb
    from rich.text import Text

    from lb_stream.query.health import ClusterFacts
    from lb_stream.query.lake import Row

_ID = re.compile(r"(.+):\d+:p\d+")
_COLOURS = {"waiting": "yellow", "approved": "green", "rejected": "red"}
Ids = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[ID]...",
        help="Ids of proposals, from lbctl proposals; of one that waits, its begin is enough.",
        autocompletion=complete_proposals,
    ),
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


@with_read_options()
def proposals(
    last: Annotated[
        int,
        typer.Option(
            "--last", "-n", metavar="N", min=0, help="Also show the last N that no longer wait."
        ),
    ] = 0,
    *,
    options: ReadOptions,
) -> None:
    """Show the proposals that wait for approval: bundle, brokers, reason, and until when."""
    from lb_stream.query.present.proposals import load_ended_proposals, load_waiting_proposals

    lake, cluster = options.open_lake(), options.cluster
    rows = [
        *(load_ended_proposals(lake, cluster, last) if last else ()),
        *load_waiting_proposals(lake, cluster),
    ]
    if options.emit_rows(rows, "proposal_id"):
        return
    if not rows:
        place = f" in {cluster}" if cluster else ""
        why = "only clusters whose mode is approve have proposals: lbctl clusters list"
        if any(facts.mode == "approve" for facts in _load_facts(lake, cluster)):
            why = "no move is worth it now; lbctl explain --why-not BROKER says why"
        note(f"nothing waits for approval{place}; {why}")
    else:
        _show(rows)


def _load_facts(lake: duckdb.DuckDBPyConnection, cluster: str | None) -> list[ClusterFacts]:
    """Return what the last round knows of each cluster, or of the named one."""
    from lb_stream.query.status_facts import load_cluster_facts

    return [facts for facts in load_cluster_facts(lake) if cluster in (None, facts.cluster)]


@with_send_options()
def approve(
    ids: Ids = None,
    plan: Annotated[
        str | None,
        typer.Option(
            "--plan",
            metavar="PLAN",
            help="Approve all moves of this plan that wait; its begin is enough.",
            autocompletion=complete_plans,
        ),
    ] = None,
    every: Annotated[
        bool, typer.Option("--all", help="Show all proposals that wait, ask, and approve them.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="With --all: don't ask.")] = False,
    even_if_worse: Annotated[
        bool,
        typer.Option(
            "--even-if-worse", help="Approve also moves that make the busiest broker busier."
        ),
    ] = False,
    preview: Preview = False,
    *,
    options: SendOptions,
) -> None:
    """Approve proposals: the balancer carries them out.

    Each proposal is checked again first. A move is refused if a rule forbids it now, or if it would
    make the busiest broker busier because earlier steps of its plan are missing. The command waits
    until reports confirm the moves; --no-wait doesn't.
    """
    if bool(ids) + bool(plan) + every != 1:
        raise CommandError("expected one of: IDs of proposals, --plan PLAN, --all", 2)
    ids = _load_plan_ids(options, plan) if plan else _find_whole_ids(options, ids)
    if preview:
        _preview(options, ids)
        return
    if options.json and every and not yes:
        raise CommandError("--json: expected --yes, too: a question is no JSON", 2)
    wanted = _choose_waiting(options, yes) if every else ids or []
    _send(options, "approve-proposals", wanted, {"even_if_worse": True} if even_if_worse else {})


def _load_plan_ids(options: SendOptions, plan: str) -> list[str]:
    """Return the ids of a plan's moves that wait. Raises CommandError (2) if none waits."""
    from lb_stream.query.lake import open_lake
    from lb_stream.query.past.names import choose_by_begin
    from lb_stream.query.present.proposals import load_waiting_proposals, summarise_plans

    with open_lake(options.given.tables) as lake:
        waiting = {
            found["plan"]: found["ids"] for found in summarise_plans(load_waiting_proposals(lake))
        }
    whole = choose_by_begin("plan", plan, waiting)
    if whole is None:
        plans = ", ".join(waiting) or "none"
        raise CommandError(f"--plan {plan}: expected a plan with waiting moves: {plans}", 2)
    note_whole_id(plan, whole)
    return list(waiting[whole])


def _find_whole_ids(options: SendOptions, ids: list[str] | None) -> list[str] | None:
    """Return whole ids, in place of begins of those that wait. Whole ones need no tables."""
    if ids is None or all(map(_ID.fullmatch, ids)):
        return ids
    from lb_stream.query.lake import open_lake
    from lb_stream.query.past.names import choose_by_begin
    from lb_stream.query.present.proposals import load_waiting_proposals

    with open_lake(options.given.tables) as lake:
        known = [row["proposal_id"] for row in load_waiting_proposals(lake, options.cluster)]
    whole = [choose_by_begin("proposal", given, known) or given for given in ids]
    for given, found in zip(ids, whole, strict=True):
        note_whole_id(given, found)
    return whole


def _preview(options: SendOptions, ids: Iterable[str] | None) -> None:
    """Print what these proposals would do; None: all that wait.

    Raises CommandError for proposals that can't be simulated together.
    """
    from lb_stream.contracts.decisions import MOVES
    from lb_stream.query.cluster_state import require_cluster
    from lb_stream.query.lake import open_lake
    from lb_stream.query.present.proposals import load_waiting_proposals

    # The proposals, which must wait.
    with open_lake(options.given.tables) as lake:
        require_cluster(lake, options.cluster)
        waiting = {row["proposal_id"]: row for row in load_waiting_proposals(lake, options.cluster)}
    wanted = list(waiting if ids is None else dict.fromkeys(ids))
    if unknown := [proposal for proposal in wanted if proposal not in waiting]:
        raise CommandError(
            f"{unknown[0]}: no proposal with this id waits; lbctl proposals shows those that do", 2
        )
    if not wanted:
        raise CommandError("nothing waits for approval")
    rows = [waiting[proposal] for proposal in wanted]

    # They must be moves of one cluster.
    if len(clusters := sorted({row["cluster"] for row in rows})) > 1:
        raise CommandError(
            f"--preview simulates one cluster, these are of {', '.join(clusters)}: name one with "
            "--cluster",
            2,
        )
    if splits := [row["proposal_id"] for row in rows if row["kind"] not in MOVES]:
        raise CommandError(
            f"{splits[0]} is no move: splits can't be simulated; name the other proposals", 2
        )
    moves = [
        dict(zip(("namespace", "bundle"), row["bundle"].rsplit("/", 1), strict=True))
        | {"destination": row["destination"]}
        for row in rows
    ]
    preview_moves(replace(options, cluster=clusters[0]), "unload", moves, waits=True)


@with_send_options()
def reject(
    ids: Ids = None,
    why: Annotated[
        str, typer.Option("--why", metavar="TEXT", help="The reason, which explanations show.")
    ] = "",
    span: Annotated[
        str,
        typer.Option(
            "--for",
            metavar="TIME",
            help="How long nothing of the kind is proposed for its bundle: 30m, 2h; 0s ends this.",
        ),
    ] = "2h",
    *,
    options: SendOptions,
) -> None:
    """Reject proposals: for a time, nothing of the kind is proposed for their bundles."""
    if not ids:
        raise CommandError("expected the IDs of proposals, as lbctl proposals shows them", 2)
    if not why.strip():
        raise CommandError(
            "--why: expected a reason in a few words: lbctl explain --why-not shows it", 2
        )
    ids = _find_whole_ids(options, ids) or []
    fields = {"why": why.strip(), "for_ms": parse_duration("--for", span)}
    _send(options, "reject-proposals", ids, fields)


def _send(
    options: SendOptions, kind: str, ids: Iterable[str], fields: Mapping[str, object]
) -> None:
    """Send a command to each cluster. Raises typer.Exit(1) if one was not done."""
    by_cluster = defaultdict[str, list[str]](list)
    for proposal in ids:
        found = _ID.fullmatch(proposal)
        if found is None:
            raise CommandError(
                f"{proposal}: expected CLUSTER:ROUND:pNUMBER, as lbctl proposals shows it", 2
            )
        if options.cluster not in (None, found[1]):
            raise CommandError(f"{proposal} is of {found[1]}, not of {options.cluster}", 2)
        by_cluster[found[1]].append(proposal)
    done = [
        send_commands(replace(options, cluster=name), [(kind, {"proposals": proposals, **fields})])
        for name, proposals in sorted(by_cluster.items())
    ]
    if not all(done):
        raise typer.Exit(1)


def _choose_waiting(options: SendOptions, yes: bool) -> list[str]:
    """Show all proposals that wait and return their ids, once the operator agrees.

    Raises typer.Exit if none waits, or the answer is no.
    """
    from lb_stream.query.cluster_state import require_cluster
    from lb_stream.query.lake import open_lake
    from lb_stream.query.present.proposals import load_waiting_proposals

    with open_lake(options.given.tables) as lake:
        require_cluster(lake, options.cluster)
        rows = load_waiting_proposals(lake, options.cluster)
    if not rows:
        note("nothing waits for approval")
        raise typer.Exit
    if not options.json:
        _show(rows)
    if not yes and not typer.confirm(f"Approve {'these' if len(rows) > 1 else 'this'}?", err=True):
        note("nothing was sent")
        raise typer.Exit(1)
    return [row["proposal_id"] for row in rows]


def _show(rows: list[Row]) -> None:
    from lb_stream.query.present.proposals import summarise_plans

    columns = ("proposal", "bundle, from, to", "MB/s", "state", "why")
    emit_rich(table(columns, [_cells(row) for row in rows], right=("MB/s",)))
    for plan in summarise_plans(row for row in rows if row["state"] == "waiting"):
        note(_describe_plan(plan))


def _describe_plan(plan: Row) -> str:
    """Describe what a plan does as a whole, and how to approve it."""
    moves = f"{plan['moves']} move{'s' if plan['moves'] > 1 else ''}"
    to = ""
    if plan["max_usage"] is not None:
        now, after = (figure(plan[name], "ratio") for name in ("max_usage", "usage_after"))
        to = f", the busiest broker from {now} to {after}"
    return f"plan {plan['plan']}: {moves}{to}; lbctl approve --plan {plan['plan']}"


def _cells(row: Row) -> tuple[str | Text, ...]:
    change = f"{row['source']} → {row['destination'] or 'to be found'}"
    if row["kind"] == "split":
        change = "split"
    partner = "" if row["together"] == row["proposal_id"] else f"; together with {row['together']}"
    megabytes = "-" if row["bytes_per_s"] is None else f"{row['bytes_per_s'] / 1e6:.2f}"
    state = styled((row["state"], _COLOURS.get(row["state"], "")), _describe_state(row))
    why = row["explanation"] + partner + _describe_usages(row)
    return (row["proposal_id"], styled(row["bundle"], change), megabytes, state, why)


def _describe_usages(row: Row) -> str:
    """Describe the current usages by which to judge a move that waits; empty: it doesn't wait."""
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


def _describe_state(row: Row) -> str:
    """Describe until when a proposal waits, or who has ended it, and why."""
    if row["state"] == "waiting":
        return f"until {clock(row['expires_ms'])}"
    until = f"until {clock(row['until_ms'])}" if row["until_ms"] else ""
    by = f"by {row['by']}" if row["by"] else ""
    ended = row["outcome"] + (f": {row['outcome_reason']}" if row["outcome_reason"] else "")
    return ", ".join(filter(None, (by, row["why"], until, row["decision_id"], ended)))
