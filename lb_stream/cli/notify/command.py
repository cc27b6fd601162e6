"""`lbctl notify`: notifies people of what `lbctl status` finds, and of moves and loads."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lb_stream.cli.shared.options import (
    BrokerConf,
    CliSettings,
    ConfigFile,
    Json,
    Set,
    load_cli_settings,
)
from lb_stream.cli.shared.output import (
    CommandError,
    emit,
    emit_json,
    emit_line,
    emit_rich,
    note,
    table,
)
from lb_stream.cli.shared.reading import ReadOptions, with_read_options
from lb_stream.io.messages.missing_packages import require_extras

if TYPE_CHECKING:
    from lb_stream.notify.state_file import WatcherState
    from lb_stream.notify.targets import Answer, Target

app = typer.Typer(
    name="notify",
    no_args_is_help=True,
    help="Notify people of events by webhook, mail, chat or on-call. It runs beside the job, which "
    "never waits for it. "
    "First `lbctl notify test`, then `lbctl notify watch` under a supervisor that restarts it.",
)

STEP_S = 1.0
_WATCH_CODES = (
    "Exit codes: 0 ended, 1 with --once: tables can't be read or a target refused, 2 wrong settings"
)


@app.callback()
def _group() -> None:
    """Notify people of events."""


@app.command(epilog=f"Example: lbctl notify watch --config lb.toml · {_WATCH_CODES}")
def watch(
    once: Annotated[
        bool,
        typer.Option(
            "--once", help="Look once, send what is due and end, for a scheduler such as cron."
        ),
    ] = False,
    config: ConfigFile = None,
    broker_conf: BrokerConf = None,
    set_: Set = None,
    json: Json = False,
) -> None:
    """Look for events, and notify each target of them and of their end. Ctrl-C ends it.

    Notifications are grouped, and sent at a limited pace.
    """
    given = load_cli_settings(config, broker_conf, set_)
    targets = _build_targets(given)
    import logging

    from lb_stream.io.local.signals import StopRequest
    from lb_stream.io.messages.logs import set_up
    from lb_stream.notify import state_file
    from lb_stream.notify.watcher import Watcher
    from lb_stream.query.screens.health_events import read_health_events

    set_up(logging.WARNING)
    settings, path = given.settings, Path(given.settings.notify.state_file)
    pipeline, tables, bootstrap = settings.stream.pipeline_id, given.tables, given.bootstrap
    failed: list[str] = []
    with ExitStack() as held:
        state = _read_state(path, pipeline, held)
        watcher = Watcher(
            pipeline,
            settings.notify,
            targets,
            partial(read_health_events, tables, settings, bootstrap),
            partial(state_file.write_state, path, pipeline),
            partial(_show_answer, failed=failed, json=json),
            state,
        )
        held.callback(watcher.close)
        stop = held.enter_context(StopRequest())
        if not once:
            note(f"notifying {', '.join(target.name for target in targets)}; Ctrl-C ends it")
        while not stop:
            watcher.run_once(_now_ms())
            if not once:
                watcher.wait_for_answers(STEP_S)
            elif not watcher.finish_sending(_now_ms()):
                break
        watcher.finish_sending(_now_ms())
    if once and (failed or watcher.last_reading_failed):
        raise typer.Exit(1)


def _read_state(path: Path, pipeline: str, held: ExitStack) -> WatcherState:
    """Return the state of notifications, locked until `held` ends. Raises CommandError."""
    from lb_stream.io.local.processes import locked
    from lb_stream.notify import state_file

    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        held.enter_context(locked(path.with_name(f"{path.name}.lock"), wait=False))
        return state_file.read_state(path, pipeline)
    except BlockingIOError:
        raise CommandError(
            f"notify.state_file = {path}: another lbctl notify watch uses it: end that one, or "
            "give this one a file of its own"
        ) from None
    except OSError as error:
        raise CommandError(
            f"notify.state_file = {path}: expected a file that can be written ({error})", 2
        ) from None


@app.command(
    epilog="Example: lbctl notify test --config lb.toml --target ops · Exit codes: 0 all targets "
    "accepted, 1 a target refused, 2 a wrong setting"
)
def test(
    target: Annotated[
        list[str] | None,
        typer.Option("--target", metavar="NAME", help="Only this target; may be given again."),
    ] = None,
    config: ConfigFile = None,
    broker_conf: BrokerConf = None,
    set_: Set = None,
    json: Json = False,
) -> None:
    """Send a test message to each target, and show the answers."""
    given = load_cli_settings(config, broker_conf, set_)
    targets = _build_targets(given)
    known = [found.name for found in targets]
    for name in target or ():
        if name not in known:
            raise CommandError(f"--target {name}: expected one of {', '.join(known)}", 2)
    chosen = [found for found in targets if not target or found.name in target]
    title = f"{given.settings.stream.pipeline_id}: a test"
    body = "Sent by `lbctl notify test`. Events of this pipeline would be sent here."
    timeout_s = given.settings.notify.timeout_ms / 1000
    with ThreadPoolExecutor(max_workers=len(chosen)) as pool:
        answers = list(pool.map(lambda found: found.send(title, body, False, timeout_s), chosen))
    if json:
        for tested, answer in zip(chosen, answers, strict=True):
            emit_json({"target": tested.name, "service": tested.service} | _answer_fields(answer))
    else:
        rows = [
            (tested.name, tested.service, f"{answer.took_ms / 1000:.1f} s", answer.text)
            for tested, answer in zip(chosen, answers, strict=True)
        ]
        emit_rich(table(("target", "service", "took", "answer"), rows, right=("took",)))
    if not all(answer.is_accepted for answer in answers):
        raise typer.Exit(1)


@app.command(epilog="Example: lbctl notify now --config lb.toml")
@with_read_options(cluster=False)
def now(options: ReadOptions) -> None:
    """Show current events, and what to do about them. No notification is sent."""
    from dataclasses import asdict

    from lb_stream.query.screens.health_events import read_health_events

    given = options.given
    events = read_health_events(given.tables, given.settings, given.bootstrap).events
    if options.emit_rows(map(asdict, events), "name"):
        return
    emit("" if events else "no events\n")
    for event in events:
        emit_line(f"{event.name}: {event.description}: {event.advice}")


def _build_targets(given: CliSettings) -> tuple[Target, ...]:
    require_extras("lbctl notify", "notify")
    from lb_stream.notify.targets import build_targets

    targets = build_targets(given.settings.notify)
    if not targets:
        raise CommandError(
            "there is no target: give one, as --set notify.targets.NAME=ADDRESS, or in "
            "[notify.targets] of --config",
            2,
        )
    return targets


def _show_answer(target: Target, title: str, answer: Answer, failed: list[str], json: bool) -> None:
    """Print a line for an answer; append the target's name to `failed` if it refused."""
    if not answer.is_accepted:
        failed.append(target.name)
    if json:
        emit_json({"target": target.name, "title": title} | _answer_fields(answer))
    else:
        emit_line(f"{target.name}: {title}: {answer.text}")


def _answer_fields(answer: Answer) -> dict[str, object]:
    """Return the fields of an answer for --json."""
    return {"accepted": answer.is_accepted, "answer": answer.text, "took_ms": answer.took_ms}


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
