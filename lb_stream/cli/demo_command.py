"""`lbctl demo`, whose module is imported when it is called: an installation may lack it."""

from __future__ import annotations

from typing import Any

import typer
from typer.core import TyperCommand

from lb_stream.cli.shared.output import CommandError


def register(app: typer.Typer) -> None:
    """Add the command to lbctl."""
    app.command("demo", cls=_Demo)(demo)


class _Demo(TyperCommand):
    """Stands in for the demo's command."""

    def make_context(
        self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any
    ) -> Any:
        try:
            from lb_stream.cli.demo.command import command
        except ModuleNotFoundError as error:
            if not str(error.name).startswith("lb_stream.cli.demo"):
                raise
            raise CommandError("this installation has no demo") from None
        own = typer.Typer(
            add_completion=False,
            rich_markup_mode="rich",
            context_settings={"help_option_names": ["-h", "--help"]},
        )
        own.command("demo", epilog="Example: lbctl demo --shedder AvgShedder")(command)
        return typer.main.get_command(own).make_context(info_name, args, parent=parent, **extra)


def demo() -> None:
    """Show the whole thing: a real Kafka broker, the job, simulated brokers and one that runs hot, until they are balanced."""
