"""`lbctl leader`: which job leads, which stand by, and handing over."""

from __future__ import annotations

import time
from contextlib import closing
from typing import TYPE_CHECKING, Annotated

import typer

from lb_stream.cli.inspect.status import describe_standbys
from lb_stream.cli.shared.options import (
    BrokerConf,
    CliSettings,
    ConfigFile,
    Json,
    Set,
    load_cli_settings,
    require_kafka,
    require_topics,
)
from lb_stream.cli.shared.output import CommandError, emit_json, emit_line, note
from lb_stream.cli.shared.reading import ReadOptions, with_read_options
from lb_stream.cli.shared.sending import principal
from lb_stream.io.messages.times import ago, clock

if TYPE_CHECKING:
    from lb_stream.contracts.commands import LeadershipRecord
    from lb_stream.io.leadership.liveness import Ticks

_LEADER = """
    SELECT pipeline, epoch, host, pid, since_ms, (SELECT max(now_ms) FROM rounds) AS last_round_ms,
           (SELECT arg_max(lag_records, started_ms) FROM batches) AS lag_records
    FROM leaders ORDER BY epoch DESC, since_ms DESC LIMIT 1
"""
DEFAULT_TIMEOUT_S = 120.0

app = typer.Typer(
    name="leader",
    invoke_without_command=True,
    help="Show which job leads: its epoch, host and process, and since when; and which jobs stand "
    "by. The command hand-over makes another job lead.",
    epilog="Example: lbctl leader",
)


@app.callback()
@with_read_options(cluster=False)
def leader(context: typer.Context, options: ReadOptions) -> None:
    """Without a command: show which job leads; and which stand by, if Kafka answers."""
    if context.invoked_subcommand is not None:
        return
    given = options.given
    from lb_stream.cli.shared.staleness import warn_if_stale
    from lb_stream.query.lake import open_lake, records, run
    from lb_stream.query.status_facts import find_standbys

    lake = open_lake(given.tables)
    rows = records(run(lake, _LEADER))
    if not rows:
        note("no job has been started yet")
        raise typer.Exit(1)
    row = rows[0]
    is_stale = bool(warn_if_stale(given, lake))
    standbys = find_standbys(given.settings, given.bootstrap)
    names = None if standbys is None else [standby.instance for standby in standbys]
    if options.emit_rows([row | {"standbys": names}], "host"):
        return
    emit_line(
        f"{row['host']} (process {row['pid']}) {'led' if is_stale else 'leads'} {row['pipeline']}, "
        f"epoch {row['epoch']}, since {clock(row['since_ms'])}"
    )
    note(
        f"its last logged round: {ago(row['last_round_ms'])}; lag {row['lag_records'] or 0} records"
    )
    note(
        "which jobs stand by is unknown: Kafka doesn't answer"
        if standbys is None
        else f"standing by: {describe_standbys(standbys)}"
    )


@app.command("hand-over", epilog="Example: lbctl leader hand-over --to lb-2.example:4711")
def hand_over(
    to: Annotated[
        str,
        typer.Option(
            "--to",
            metavar="HOST:PID",
            help="The job that is to lead, as `lbctl leader` names it, or its host. Default: any "
            "job that stands by.",
        ),
    ] = "",
    timeout: Annotated[
        float,
        typer.Option("--timeout", metavar="S", min=0.1, help="Seconds to wait for the new leader."),
    ] = DEFAULT_TIMEOUT_S,
    config: ConfigFile = None,
    broker_conf: BrokerConf = None,
    set_: Set = None,
    json: Json = False,
) -> None:
    """Have the leader finish its batch and stop; a job that stands by leads in its place."""
    given = load_cli_settings(config, broker_conf, set_)
    from lb_stream.contracts.commands import HandOver
    from lb_stream.io.leadership.liveness import Ticks
    from lb_stream.io.leadership.topic import LeadershipSender, build_own_record

    bootstrap = given.bootstrap
    settings = given.settings.model_copy(
        update={"kafka": given.settings.kafka.model_copy(update={"bootstrap_servers": bootstrap})}
    )
    commands = settings.topics.commands
    with require_kafka(bootstrap, given):
        require_topics(
            bootstrap, given, [*given.rights("Read", commands), *given.rights("Write", commands)]
        )
        with closing(Ticks(settings)) as ticks, closing(LeadershipSender(settings)) as sender:
            epoch = _require_leader(given, ticks)
            heir = _choose_heir(ticks, to)
            began = time.monotonic()
            sender.send(build_own_record(HandOver, settings, epoch, to=heir, by=principal(given)))
            new = _wait_for_leader(ticks, epoch, timeout)
    took_s = time.monotonic() - began
    if new is None:
        raise CommandError(
            f"no other job leads after {timeout:g} s: lbctl status, and the leader's log, say more"
        )
    if json:
        emit_json(
            {
                "pipeline": new.pipeline,
                "epoch": new.epoch,
                "host": new.host,
                "pid": new.pid,
                "seconds": round(took_s, 3),
            }
        )
    else:
        emit_line(
            f"{new.host} (process {new.pid}) leads {new.pipeline}, epoch {new.epoch}, after "
            f"{took_s:.1f} s"
        )


def _require_leader(given: CliSettings, ticks: Ticks) -> int:
    """Return the leader's epoch. Raises CommandError if no job sends ticks."""
    from lb_stream.io.leadership.topic import silence_ms

    ticks.last()
    tick = ticks.next(silence_ms(given.settings))
    if tick is None:
        raise CommandError(
            f"no job leads {given.settings.stream.pipeline_id}: none sends ticks (lbctl status)"
        )
    return tick.record.epoch


def _choose_heir(ticks: Ticks, to: str) -> str:
    """Return the instance that is to lead; empty: any. Raises CommandError if none stands by."""
    standbys = ticks.standby_tracker.active
    if not standbys:
        raise CommandError(
            "no job stands by: start a second one, lbctl balance --standby, and wait until it is "
            "warm"
        )
    meant = [name for name in standbys if to in (name, name.rpartition(":")[0])]
    if to and len(meant) != 1:
        raise CommandError(f"--to {to}: expected one of {', '.join(standbys)}", 2)
    if not any(standbys[name].warm for name in (meant or standbys)):
        note("it is not warm yet: its first batch takes longer")
    return meant[0] if meant else ""


def _wait_for_leader(ticks: Ticks, epoch: int, timeout_s: float) -> LeadershipRecord | None:
    """Return the first record of a later epoch; None: none came in time."""
    until = time.monotonic() + timeout_s
    while (left_ms := (until - time.monotonic()) * 1000) > 0:
        tick = ticks.next(left_ms)
        if tick is not None and tick.record.epoch > epoch:
            return tick.record
    return None
