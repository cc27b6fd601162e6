"""`lbctl leader`: who leads and who stands by, and handing over."""

from __future__ import annotations

import time
from contextlib import closing
from typing import TYPE_CHECKING, Annotated, Any

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
from lb_stream.cli.shared.sending import principal
from lb_stream.io.messages.times import ago, clock

if TYPE_CHECKING:
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
    help="Who leads: the job that began to lead last, its epoch, host and process, and since when; "
    "and who stands by. With a command: "
    "let another one lead.",
    epilog="Example: lbctl leader",
)


@app.callback()
def leader(
    context: typer.Context,
    config: ConfigFile = None,
    broker_conf: BrokerConf = None,
    set_: Set = None,
    json: Json = False,
) -> None:
    """Show who leads, and who stands by where Kafka answers."""
    if context.invoked_subcommand is not None:
        return
    given = load_cli_settings(config, broker_conf, set_)
    from lb_stream.cli.shared.staleness import warn_if_stale
    from lb_stream.query.lake import open_lake, records, run
    from lb_stream.query.status_facts import find_standbys

    lake = open_lake(given.tables)
    rows = records(run(lake, _LEADER))
    if not rows:
        note("no job has been started yet")
        raise typer.Exit(1)
    row, dead = rows[0], warn_if_stale(given, lake)
    standbys = find_standbys(given.settings, given.bootstrap)
    if json:
        emit_json(
            row
            | {"standbys": None if standbys is None else [standby.instance for standby in standbys]}
        )
        return
    who = f"{row['host']} (process {row['pid']})"
    emit_line(
        f"{who} {'led' if dead else 'leads'} {row['pipeline']}, epoch {row['epoch']}, since "
        f"{clock(row['since_ms'])}"
    )
    note(
        f"its last logged round: {ago(row['last_round_ms'])}; lag {row['lag_records'] or 0} records"
    )
    note(
        "who stands by is not known: Kafka doesn't answer"
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
            help="Who is to lead, as `lbctl leader` names it; its host will do. Else: anybody.",
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
    """Have the leader finish its batch and stop, and another job that stands by lead in its
    place."""
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
            epoch = _leading(given, ticks)
            heir = _heir(ticks, to)
            began = time.monotonic()
            sender.send(build_own_record(HandOver, settings, epoch, to=heir, by=principal(given)))
            new = _next_leader(ticks, epoch, timeout)
    took_s = time.monotonic() - began
    if new is None:
        raise CommandError(
            f"nobody else leads after {timeout:g} s: lbctl status, and the leader's log, say more"
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


def _leading(given: CliSettings, ticks: Ticks) -> int:
    """The leader's epoch. Raises CommandError when nobody's clock ticks."""
    from lb_stream.io.leadership.topic import silence_ms

    ticks.last()
    tick = ticks.next(silence_ms(given.settings))
    if tick is None:
        raise CommandError(
            f"nobody leads {given.settings.stream.pipeline_id}: its clock doesn't tick (lbctl "
            "status)"
        )
    return tick.record.epoch


def _heir(ticks: Ticks, to: str) -> str:
    """The instance that is meant; empty: any. Raises CommandError when none is there."""
    standbys = ticks.standby_tracker.active
    if not standbys:
        raise CommandError(
            "nobody stands by: start a second job, lbctl balance --standby, and wait until it is "
            "warm"
        )
    meant = [name for name in standbys if to in (name, name.rpartition(":")[0])]
    if to and len(meant) != 1:
        raise CommandError(f"--to {to}: expected one of {', '.join(standbys)}", 2)
    heirs: list[Any] = [standbys[name] for name in (meant or standbys)]
    if not any(heir.warm for heir in heirs):
        note("it is not warm yet: its first batch takes longer")
    return meant[0] if meant else ""


def _next_leader(ticks: Ticks, epoch: int, timeout_s: float) -> Any:
    """The first tick of a later epoch; None: there was none in time."""
    until = time.monotonic() + timeout_s
    while (left_ms := (until - time.monotonic()) * 1000) > 0:
        tick = ticks.next(left_ms)
        if tick is not None and tick.record.epoch > epoch:
            return tick.record
    return None
