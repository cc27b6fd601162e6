"""`lbctl`: what an operator does by hand. Every command's module imports what it needs when it runs, so that lbctl starts at once."""

from __future__ import annotations

import sys
from io import TextIOWrapper
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from lb_stream import __version__
from lb_stream.cli.backtest import command as backtest
from lb_stream.cli.inspect import commands, compare, config, decisions, explain, lookup, replay, shadow, sql, status
from lb_stream.cli.monitor import command as monitor
from lb_stream.cli.notify import command as notify
from lb_stream.cli.operate import brokers, clusters, dry_run, dynamic_config, leader, namespaces, plan, proposals, undo
from lb_stream.cli.report import command as report
from lb_stream.cli.report import cost
from lb_stream.cli.run import agent, balance, console, jars, kafka_broker, lookup_server, reports, tables, topics
from lb_stream.cli.scenario import command as scenario
from lb_stream.cli.shared.output import ASCII, INTERRUPTED, CommandError, emit, hush, note
from lb_stream.cli.simulate import command as simulate
from lb_stream.cli.simulate import what_if
from lb_stream.io.messages.troubles import told
from lb_stream.query import QueryError

app = typer.Typer(
    name="lbctl",
    epilog="Begin with: lbctl demo · How is it: lbctl status · Exit codes: 0 done, 1 failed, 2 wrong usage or settings.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(wanted: bool) -> None:
    if wanted:
        emit(f"lbctl {__version__}\n")
        raise typer.Exit


@app.callback()
def _all(version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")] = False) -> None:
    """Runs and watches lb_stream, the load balancer for message-broker clusters."""


class _Demo(TyperCommand):
    """Stands in for the demo's command, whose module is imported when it is called."""

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> Any:
        try:
            from lb_stream.cli.demo.command import command
        except ModuleNotFoundError as error:
            if not str(error.name).startswith("lb_stream.cli.demo"):
                raise
            raise CommandError("this installation has no demo") from None
        own = typer.Typer(add_completion=False, rich_markup_mode="rich", context_settings={"help_option_names": ["-h", "--help"]})
        own.command("demo", epilog="Example: lbctl demo --shedder AvgShedder")(command)
        return typer.main.get_command(own).make_context(info_name, args, parent=parent, **extra)


@app.command("demo", cls=_Demo, rich_help_panel="Run")
def _demo() -> None:
    """Show the whole thing: a real Kafka broker, the job, simulated brokers and one that runs hot, until they are balanced."""


_COMMANDS = {
    "Run": (balance, lookup_server),
    "Look": (status, monitor, decisions, explain, commands, lookup, report, cost, sql, compare),
    "Act": (plan, proposals, undo, dynamic_config),
    "Try first": (what_if, shadow, simulate, backtest, replay),
}
_GROUPS = {
    "Run": (console, notify, agent, topics, tables, reports, kafka_broker, jars),
    "Look": (leader,),
    "Act": (clusters, brokers, namespaces, config, dry_run),
    "Try first": (scenario,),
}
for panel, modules in _COMMANDS.items():
    for module in modules:
        known = len(app.registered_commands)
        module.register(app)
        for command in app.registered_commands[known:]:
            command.rich_help_panel = panel
dynamic_config.register_config(config.app)
for panel, groups in _GROUPS.items():
    for group in groups:
        app.add_typer(group.app, rich_help_panel=panel)


def main() -> None:
    """The entry point `lbctl`. Every error becomes a line here; only what nobody foresaw keeps its trace."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors=ASCII)
    try:
        app(prog_name="lbctl")
    except Exception as error:
        found = (str(error), error.code) if isinstance(error, CommandError | QueryError) else told(error)
        if found is None:
            raise
        note(f"lbctl: {found[0]}")
        sys.exit(found[1])
    except KeyboardInterrupt:
        note("")
        sys.exit(INTERRUPTED)
    finally:
        try:
            sys.stdout.flush()
        except OSError:  # its reader has gone, or a full disk: that was told
            hush()
