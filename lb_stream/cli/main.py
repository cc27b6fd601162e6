"""`lbctl`, the command line. A command's module is imported when the command is called."""

from __future__ import annotations

import gc
import os
import sys
from importlib import import_module
from io import TextIOWrapper
from typing import TYPE_CHECKING

from lb_stream import __version__

if TYPE_CHECKING:
    from pathlib import Path

    import typer

    from lb_stream.cli.shared.options import CliSettings

_PLACES: dict[str, dict[str, tuple[str, ...]]] = {
    "Run": {
        "kit.demo.command": ("demo",),
        "kit.run.command": ("run",),
        "cli.run.balance": ("balance",),
        "cli.run.lookup_server": ("lookup-server",),
        "cli.run.console": ("console",),
        "cli.notify.command": ("notify",),
        "cli.run.agent": ("agent",),
        "cli.run.topics": ("topics",),
        "cli.run.tables": ("tables",),
        "cli.run.reports": ("reports",),
        "kit.kafka_command": ("kafka",),
        "kit.jars_command": ("jars",),
        "cli.operate.context": ("context",),
        "cli.operate.keys": ("keys",),
        "cli.operate.access": ("access",),
    },
    "Look": {
        "cli.inspect.status": ("status",),
        "cli.monitor.command": ("monitor",),
        "cli.inspect.top": ("top",),
        "cli.inspect.load_groups": ("tenants",),
        "cli.inspect.decisions": ("decisions",),
        "cli.inspect.explain": ("explain",),
        "cli.inspect.commands": ("commands",),
        "cli.inspect.audit": ("audit",),
        "cli.inspect.lookup": ("lookup",),
        "cli.report.command": ("report",),
        "cli.report.cost": ("cost",),
        "cli.inspect.sql": ("sql",),
        "cli.inspect.compare": ("compare",),
        "cli.operate.leader": ("leader",),
    },
    "Act": {
        "cli.operate.plan": ("plan",),
        "cli.operate.proposals": ("proposals", "approve", "reject"),
        "cli.operate.undo": ("undo",),
        "cli.operate.clusters": ("clusters",),
        "cli.operate.brokers": ("brokers",),
        "cli.operate.rollout": ("rollout",),
        "cli.operate.namespaces": ("namespaces",),
        "cli.operate.scalable": ("scalable",),
        "cli.operate.config_group": ("config",),
    },
    "Try first": {
        "cli.assess.command": ("assess",),
        "cli.simulate.sim": ("sim",),
        "cli.simulate.what_if": ("what-if",),
        "cli.inspect.shadow": ("shadow",),
        "cli.simulate.command": ("simulate",),
        "cli.backtest.command": ("backtest",),
        "cli.inspect.replay": ("replay",),
        "cli.scenario.command": ("scenario",),
    },
}
"""Panel of --help → module → names of the commands that the module registers."""

_VERSION = f"lbctl {__version__}\n"
_OBJECTS_BETWEEN_COLLECTIONS = 50_000
"""With Python's default, 700, imports cause two hundred collections that find nothing."""


def build_app(wanted: str | None = None) -> typer.Typer:
    """Return lbctl with all its commands, or with only the command `wanted`, if there is one."""
    import typer

    from lb_stream.cli.shared.completion import complete_contexts
    from lb_stream.cli.shared.contexts import CHOICE
    from lb_stream.cli.shared.output import emit

    app = typer.Typer(
        name="lbctl",
        epilog="First steps: lbctl demo · State of the job: lbctl status · Exit codes: 0 done, 1 "
        "failed, 2 wrong usage or settings.",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        rich_markup_mode="rich",
        context_settings={"help_option_names": ["-h", "--help"], "obj": _load_settings},
    )

    def print_version(asked: bool) -> None:
        if asked:
            emit(_VERSION)
            raise typer.Exit

    @app.callback()
    def _all(
        version: bool = typer.Option(
            False, "--version", callback=print_version, is_eager=True, help="Print the version."
        ),
        context: str | None = typer.Option(
            None,
            "--context",
            metavar="NAME",
            autocompletion=complete_contexts,
            help="The context whose files of settings count, or none. Default: lbctl context use.",
        ),
    ) -> None:
        """Run and watch lb_stream, the load balancer for message-broker clusters."""
        if context is not None:
            os.environ[CHOICE] = context

    only = {
        place for modules in _PLACES.values() for place, names in modules.items() if wanted in names
    }
    for panel, modules in _PLACES.items():
        for place in modules:
            if not only or place in only:
                _add(app, place, panel)
    return app


def _load_settings(
    config: Path | None, broker_conf: Path | None, arguments: list[str] | None
) -> CliSettings:
    """Read the settings of a word that the shell completes."""
    from lb_stream.cli.shared.options import load_cli_settings

    return load_cli_settings(config, broker_conf, arguments)


def _add(app: typer.Typer, place: str, panel: str) -> None:
    """Add the commands of one module."""
    module = import_module(f"lb_stream.{place}")
    if hasattr(module, "register"):
        known = len(app.registered_commands)
        module.register(app)
        for command in app.registered_commands[known:]:
            command.rich_help_panel = panel
    else:
        app.add_typer(module.app, rich_help_panel=panel)


def __getattr__(name: str) -> object:
    if name == "app":
        return build_app()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def main() -> None:
    """Run `lbctl`; print known errors as one line, and unknown ones with their traceback."""
    arguments = sys.argv[1:]
    if arguments == ["--version"]:
        print(_VERSION, end="")
        return
    from lb_stream.cli.shared.bash_words import find_wanted_command, whole_words

    with whole_words():
        _run(arguments[0] if arguments else find_wanted_command())


def _run(wanted: str | None) -> None:
    gc.set_threshold(_OBJECTS_BETWEEN_COLLECTIONS)
    from lb_stream.cli.shared.output import ASCII, INTERRUPTED, CommandError, discard_stdout, note
    from lb_stream.io.messages.errors import describe_error
    from lb_stream.query import QueryError

    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors=ASCII)
    try:
        build_app(wanted)(prog_name="lbctl")
    except Exception as error:
        found = (
            (str(error), error.code)
            if isinstance(error, CommandError | QueryError)
            else describe_error(error)
        )
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
        except OSError:  # its reader has ended, or the disk is full: that has been reported
            discard_stdout()


if __name__ == "__main__":
    main()
