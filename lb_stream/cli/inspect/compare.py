"""`lbctl compare`: moves of Pulsar's own leader beside those of this balancer's dry run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lb_stream.cli.shared.options import parse_time
from lb_stream.cli.shared.output import CommandError, emit
from lb_stream.cli.shared.reading import ReadOptions, with_read_options
from lb_stream.io.messages.times import clock
from lb_stream.query.wording import TO_BE_FOUND

if TYPE_CHECKING:
    from lb_stream.agent.pulsar.leader_log import LeaderLog, LogFile
    from lb_stream.query.leader_comparison import LeaderComparison, MovePair

EPILOG = (
    "Example: lbctl compare --with-log pulsar-broker.log --cluster eu-1 · "
    "Exit codes: 0 all alike or explained, 1 a difference that nothing explains, or nothing to "
    "compare."
)


def register(app: typer.Typer) -> None:
    """Add the command to lbctl."""
    app.command("compare", epilog=EPILOG)(compare)


@with_read_options(watch=False)
def compare(
    with_log: Annotated[
        list[Path],
        typer.Option(
            "--with-log",
            metavar="FILE",
            help="The leader's log, text or JSON, plain or .gz; again for each broker that may "
            "have led.",
        ),
    ],
    since: Annotated[
        str | None,
        typer.Option("--since", metavar="TIME", help="Only moves since then, as 2026-11-21T13:00."),
    ] = None,
    *,
    options: ReadOptions,
) -> None:
    """Compare the unloads in a Pulsar leader's log with the decisions of the job's dry run.

    Each of the leader's moves is compared with ours of the nearest pass: pass, source, bundle and
    destination. The tables explain some differences: a tie, a random choice among equals, older
    reports, a refusal. Nothing is written. With level DEBUG of org.apache.pulsar.broker.loadbalance
    the log also has the leader's candidates.
    """
    from lb_stream.agent.pulsar.leader_log import read_leader_log
    from lb_stream.query.cluster_state import require_single_cluster_in
    from lb_stream.query.leader_comparison import compare_with_leader

    begin = parse_time(since)
    lake = options.open_lake(may_be_stale=True)
    state = require_single_cluster_in(lake, options.cluster)
    try:
        log = read_leader_log(with_log)
    except OSError as error:
        raise CommandError(f"{error.filename}: {error.strerror or error}", 2) from None
    except ValueError as error:
        raise CommandError(str(error), 2) from None
    found = compare_with_leader(
        lake, state, log.passes, 0 if begin is None else int(begin.timestamp() * 1000)
    )
    missing = _describe_missing_moves(log)
    if not options.emit_object(found.to_dict() | {"log": {"moves": log.moves, "advice": missing}}):
        pairs = "".join(f"{_describe_pair(pair)}\n" for pair in found.pairs)
        emit(pairs + _describe_totals(found) + "".join(f"{line}\n" for line in missing))
    if found.unexplained or not found.moves:
        raise typer.Exit(1)


FORMS = (
    "4.x     [SHEDDER] Unloading bundle: BUNDLE from broker A to dest broker B",
    "5.0     Unloading bundle from source broker to dest broker "
    "{bundle=…, destBroker=…, sourceBroker=…}",
    "extensible manager     Unload decision result …[Unload[sourceBroker=…, serviceUnit=…",
)
"""How Pulsar's releases log an unload, in text; in JSON the values are fields."""


def _describe_missing_moves(log: LeaderLog) -> list[str]:
    """Describe what was looked for and where, if the log has no move, or moves without values."""
    lacking = sum(file.without_values for file in log.files)
    lines: list[str] = []
    if not log.moves:
        lines.append("no unload of a leader is in the log; looked for, as text or as JSON:")
        lines += [f"  {form}" for form in FORMS]
        lines += [f"  in {_describe_file(file)}" for file in log.files]
    if lacking:
        lines.append(
            f"{lacking} messages of Pulsar 5.0 are without their values: give the log's pattern "
            "%X behind %msg, or log as JSON with PULSAR_ROUTING_APPENDER_DEFAULT=ConsoleJson"
        )
    elif not log.moves:
        lines.append(
            "so the leader moved nothing, or another broker leads: give the logs of all brokers, "
            "with level INFO for org.apache.pulsar.broker.loadbalance, of a time in which "
            "loadBalancerEnabled and loadBalancerSheddingEnabled were true"
        )
    return lines


def _describe_file(file: LogFile) -> str:
    form = "text"
    if file.json_lines:
        form = "JSON" if file.json_lines == file.timed_lines else "text and JSON"
    return f"{file.path}: {file.timed_lines} lines with a time, {form}"


def _describe_pair(pair: MovePair) -> str:
    """Describe both sides of a move on lines below each other; bundles' names are long."""
    if not pair.differs:
        ours = "the same"
    elif pair.ours is None:
        ours = "no such move" if pair.alike else "no pass that moved anything"
    else:
        ours = _describe_move(pair.ours["bundle"], pair.ours["source"], pair.ours["destination"])
    leader = (
        "no such move"
        if pair.leader is None
        else _describe_move(pair.leader.bundle, pair.leader.source, pair.leader.destination)
    )
    lines = [f"{clock(pair.at_ms)}  leader  {leader}", f"ours    {ours}"]
    if pair.differs:
        lines += [
            f"alike   {', '.join(pair.alike) or 'nothing'}",
            *(f"why     {difference.text}" for difference in pair.why),
        ]
        lines += [] if pair.why else ["why     unknown: neither the log nor the tables say"]
    return f"\n{' ' * (len(clock(pair.at_ms)) + 2)}".join(lines) + "\n"


def _describe_move(bundle: str, source: str, destination: str | None) -> str:
    return f"{bundle}  {source} → {destination or TO_BE_FOUND}"


def _describe_totals(found: LeaderComparison) -> str:
    counts: dict[str, int] = {
        level: found.alike(level) for level in ("pass", "source", "bundle", "destination")
    }
    if not found.moves:
        text = "no move of the leader's in the log while the job watched"
    else:
        text = f"{found.moves} moves of the leader's: alike in " + ", ".join(
            f"{name} {count}" for name, count in counts.items()
        )
    lines = [f"{found.cluster}, sample_mode {found.sample_mode}: {text}"]
    if found.only_ours:
        lines.append(f"{found.only_ours} moves are ours only")
    if found.unexplained:
        lines.append(f"{found.unexplained} differences that neither the log nor the tables explain")
    if found.unwatched:
        lines.append(
            f"{found.unwatched} moves of the leader's are left out: the job had no round at the "
            "time"
        )
    return "\n".join(lines) + "\n"
