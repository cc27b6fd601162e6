"""`lbctl demo`: from nothing to a balanced cluster, with a real Kafka broker, the real job and
simulated brokers."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Annotated

import typer

from lb_stream.cli.shared.output import INTERRUPTED, CommandError, discard_stdout
from lb_stream.io.local.processes import locked
from lb_stream.io.messages.missing_packages import require_extras


def register(app: typer.Typer) -> None:
    """Add the command to lbctl."""
    app.command("demo", epilog="Example: lbctl demo --shedder AvgShedder")(command)


def command(
    shedder: Annotated[
        str, typer.Option("--shedder", metavar="NAME", help="Which strategy unloads hot brokers.")
    ] = "LeastMoves",
    brokers: Annotated[
        int, typer.Option("--brokers", min=2, max=100, help="Simulated brokers.")
    ] = 6,
    bundles: Annotated[
        int, typer.Option("--bundles", min=1, max=10_000, help="Bundles that they serve.")
    ] = 96,
    workload: Annotated[
        str,
        typer.Option(
            "--workload",
            metavar="NAME",
            help="hot_spot: one broker carries three times its load; skewed: few bundles carry "
            "much; steady.",
        ),
    ] = "hot_spot",
    seed: Annotated[int, typer.Option("--seed", help="The same seed gives the same cluster.")] = 1,
    max_rounds: Annotated[
        int,
        typer.Option("--max-rounds", min=1, help="Give up after so many rounds of the balancer."),
    ] = 400,
    max_seconds: Annotated[
        int, typer.Option("--max-seconds", min=10, help="Give up after so long.")
    ] = 240,
    keep: Annotated[
        bool, typer.Option("--keep", help="Leave everything running until Ctrl-C, to be looked at.")
    ] = False,
    set_: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=VALUE",
            help="A setting of the job, over conf/local.toml; may be given again.",
        ),
    ] = None,
    json_only: Annotated[
        bool,
        typer.Option(
            "--json",
            help="Only the figures on stdout, as one JSON object; progress goes to stderr.",
        ),
    ] = False,
) -> None:
    """Show the whole thing: a real Kafka broker, the real job, simulated brokers of which one runs
    hot, until they are balanced.

    Takes about a minute. Ctrl-C ends it at any time and leaves nothing running. Everything it
    writes is in .lb/demo.
    """
    raise typer.Exit(
        demo(
            shedder,
            brokers,
            bundles,
            workload,
            seed,
            max_rounds,
            max_seconds,
            keep,
            json_only,
            set_ or (),
        )
    )


def demo(
    shedder: str = "LeastMoves",
    brokers: int = 6,
    bundles: int = 96,
    workload: str = "hot_spot",
    seed: int = 1,
    most_rounds: int = 400,
    most_seconds: float = 240,
    keep: bool = False,
    json_only: bool = False,
    settings: Sequence[str] = (),
) -> int:
    """Run the demo.

    Returns the exit code: 0 balanced and everything confirmed or ended, 1 not, 130 interrupted.

    `settings` are KEY=VALUE for the job. Raises SettingError and CommandError for what can't be,
    before anything is started.
    """
    started = time.monotonic()
    require_extras("lbctl demo", "job", "cli")
    from lb_stream.io.local.signals import StopRequest
    from lb_stream.kit.demo.run import FOLDER, DemoPlan, DemoRun, Interrupted
    from lb_stream.sim.workload import WORKLOADS

    if workload not in WORKLOADS:
        raise CommandError(f"--workload {workload}: expected one of {', '.join(WORKLOADS)}", code=2)
    plan = DemoPlan(
        shedder,
        brokers,
        bundles,
        workload,
        seed,
        most_rounds,
        most_seconds,
        keep,
        json_only,
        tuple(settings),
    )
    with StopRequest() as stop, _only_one(FOLDER):
        try:
            return DemoRun(plan, stop, started).run()
        except Interrupted:
            print("\nstopped; nothing is left running", file=sys.stderr)
            return INTERRUPTED
        except BrokenPipeError:  # whoever read our output has gone: it had enough
            discard_stdout()
            return 1


@contextmanager
def _only_one(folder: Path) -> Iterator[None]:
    """Hold the demo's folder. Raises CommandError when another demo does."""
    folder.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        try:
            stack.enter_context(locked(folder / "lock", wait=False))
        except BlockingIOError:
            raise CommandError(
                f"another demo runs in {folder.resolve()}: wait for it, or run this one in another "
                "folder"
            ) from None
        yield
