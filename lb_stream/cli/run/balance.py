"""`lbctl balance`: the job itself."""

from __future__ import annotations

import os
import shlex
import subprocess
import time
from pathlib import Path
from typing import Annotated

import typer

from lb_stream.cli.shared.options import BrokerConf, ConfigFile, Json, Set, load_cli_settings
from lb_stream.cli.shared.output import CommandError, emit, emit_json, note
from lb_stream.settings.secrets import hide

GRACE_S = 50.0
"""How long a running batch may take after a request to stop.

It is less than the 60 s that conf/deploy gives to systemd and Kubernetes.
"""
LOOK_INTERVAL_S = 0.1


def register(app: typer.Typer) -> None:
    """Add the command to lbctl."""
    app.command(
        "balance", epilog="Example: lbctl balance --config conf/default.toml --set dry_run=false"
    )(balance)


def balance(
    once: Annotated[
        bool, typer.Option("--once", help="Process the records that are there now, then end.")
    ] = False,
    show: Annotated[
        bool,
        typer.Option("--print", help="Print the command that starts Spark instead of running it."),
    ] = False,
    driver_memory: Annotated[
        str,
        typer.Option(
            "--driver-memory",
            metavar="SIZE",
            help="Heap of Spark's JVM. The default fits a million bundles; 1g fits 100,000.",
        ),
    ] = "3g",
    take_over: Annotated[
        bool,
        typer.Option(
            "--take-over",
            help="Replace the job that runs this pipeline: fence it, wait until it ends, and "
            "continue where its log ends.",
        ),
    ] = False,
    standby: Annotated[
        bool,
        typer.Option(
            "--standby",
            help="Stand by while another job leads, and take over when its ticks stop. Lead at "
            "once if no job leads.",
        ),
    ] = False,
    config: ConfigFile = None,
    broker_conf: BrokerConf = None,
    set_: Set = None,
    json: Json = False,
) -> None:
    """Run the job until Ctrl-C. Settings are checked before Spark starts.

    --json only changes the output of --print.
    """
    from lb_stream.io.messages.missing_packages import require_extras

    require_extras("lbctl balance", "job")
    from lb_stream.cli.shared.contexts import find_files, note_current
    from lb_stream.job.submit import submit_command

    if standby and (once or take_over):
        raise typer.BadParameter("--standby can't be combined with --once or --take-over")
    note_current(config, broker_conf)
    config, broker_conf = find_files(config, broker_conf)
    given = load_cli_settings(config, broker_conf, set_)
    bootstrap = given.bootstrap
    if bootstrap != given.settings.kafka.bootstrap_servers:
        set_ = [*(set_ or []), f"kafka.bootstrap_servers={bootstrap}"]
    flags = [
        flag
        for flag, wanted in (("--once", once), ("--take-over", take_over), ("--standby", standby))
        if wanted
    ]
    command, environment = submit_command(
        [*_arguments(config, broker_conf, set_), *flags], driver_memory=driver_memory
    )
    if not show:
        _require_kafka(bootstrap)
        raise typer.Exit(_run(command, environment))
    changed = {
        name: hide(value) for name, value in environment.items() if os.environ.get(name) != value
    }
    if json:
        emit_json({"command": [hide(part) for part in command], "environment": changed})
    else:
        emit(
            " ".join(
                [
                    *(f"{name}={shlex.quote(value)}" for name, value in changed.items()),
                    hide(shlex.join(command)),
                ]
            )
            + "\n"
        )


def _require_kafka(bootstrap: str) -> None:
    """Raise CommandError if no Kafka broker answers: this takes less time than Spark's start."""
    from lb_stream.io.kafka.reachable import describe_unreachable

    if (reasons := describe_unreachable(bootstrap)) is not None:
        raise CommandError(
            f"no Kafka broker answers ({reasons}): `lbctl kafka start` starts one; "
            "kafka.bootstrap_servers names another (--set kafka.bootstrap_servers=HOST:PORT)"
        )


def _run(command: list[str], environment: dict[str, str]) -> int:
    """Run the job in a session of its own; return its exit code.

    A request to stop goes only to its Python driver: otherwise Spark's JVM would end before it.
    """
    from lb_stream.io.local.processes import end_with_parent
    from lb_stream.io.local.signals import StopRequest
    from lb_stream.job.process import end_session

    with StopRequest() as stop:
        process = subprocess.Popen(
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
            preexec_fn=end_with_parent,  # noqa: PLW1509 (no threads yet)
        )
        while process.poll() is None and not stop:
            time.sleep(LOOK_INTERVAL_S)
        if stop:
            note(
                "stopping: the running batch is finished, or run again at the next start; a second "
                "Ctrl-C stops at once"
            )
            end_session(process.pid, process.poll, GRACE_S, hurry=lambda: stop.times > 1)
        code = process.wait()
    return code if code >= 0 else 128 - code


def _arguments(config: Path | None, broker_conf: Path | None, set_: list[str] | None) -> list[str]:
    files = [
        part
        for option, file in (("--config", config), ("--broker-conf", broker_conf))
        if file
        for part in (option, str(file))
    ]
    return [*files, *(part for setting in set_ or () for part in ("--set", setting))]
