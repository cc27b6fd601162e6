"""The option --watch, which readers share: show the same again and again until Ctrl-C."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from functools import wraps
from inspect import Parameter, Signature
from typing import Annotated, Any

import typer

from lb_stream.cli.shared.grouped_options import CliCommand, read_parameters
from lb_stream.cli.shared.output import (
    CommandError,
    ReaderGone,
    clear_before_output,
    note,
)
from lb_stream.io.messages.times import clock
from lb_stream.query import QueryError

Watch = Annotated[
    float | None,
    typer.Option(
        "--watch",
        "-w",
        metavar="S",
        min=0.2,
        help="Read and show anew every S seconds, until Ctrl-C; a terminal is cleared each time.",
    ),
]
_STEP_S = 0.1
"""Longest wait after Ctrl-C."""


def with_watch(command: CliCommand) -> CliCommand:
    """Add the option --watch to a reader's command."""
    parameters = read_parameters(command)

    @wraps(command)
    def watched(*given: Any, watch: float | None = None, **named: Any) -> None:
        if watch is not None and named.get("follow"):
            raise CommandError("--watch and --follow: expected one of them", 2)
        context = named.get("context")
        if watch is not None and context is not None and context.invoked_subcommand:
            raise CommandError("--watch: expected behind the command's whole name", 2)
        repeat(watch, lambda: command(*given, **named))

    option = Parameter("watch", Parameter.KEYWORD_ONLY, default=None, annotation=Watch)
    kept = [*parameters.values(), option]
    watched.__signature__ = Signature(kept)  # type: ignore[attr-defined]
    watched.__annotations__ = {parameter.name: parameter.annotation for parameter in kept}
    return watched


def repeat(every_s: float | None, show: Callable[[], None]) -> None:
    """Call `show` once, or every `every_s` seconds until Ctrl-C or until stdout's reader has ended.

    Only the first call's error is raised: tables may be away for a moment while upkeep replaces
    their files. Exit codes of calls don't count then.
    """
    if every_s is None:
        show()
        return
    from deltalake.exceptions import DeltaError

    from lb_stream.io.local.signals import StopRequest

    with StopRequest() as stop:
        _show_once(every_s, show)
        while not stop:
            due_s = time.monotonic() + every_s
            while not stop and (left_s := due_s - time.monotonic()) > 0:
                time.sleep(min(_STEP_S, left_s))
            if stop:
                return
            try:
                _show_once(every_s, show)
            except (CommandError, QueryError, DeltaError, OSError) as error:
                note(f"the tables can't be read just now: {str(error).splitlines()[0]}")


def _show_once(every_s: float, show: Callable[[], None]) -> None:
    if sys.stdout.isatty():
        now = clock(time.time_ns() // 1_000_000)
        clear_before_output(f"{now}, every {every_s:g} s; Ctrl-C ends it\n")
    try:
        show()
    except ReaderGone:
        raise
    except typer.Exit:
        return
