"""`lbctl demo`: a real Kafka broker, the real job, and simulated brokers that it balances."""

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
        str, typer.Option("--shedder", metavar="NAME", help="The strategy that sheds load.")
    ] = "LeastMoves",
    brokers: Annotated[
        int, typer.Option("--brokers", min=2, max=100, help="How many brokers to simulate.")
    ] = 6,
    bundles: Annotated[
        int, typer.Option("--bundles", min=1, max=10_000, help="How many bundles they serve.")
    ] = 96,
    workload: Annotated[
        str,
        typer.Option(
            "--workload",
            metavar="NAME",
            help="hot_spot: one broker has three times its share of load; skewed: a few bundles "
            "have most of the load; steady: load doesn't change.",
        ),
    ] = "hot_spot",
    seed: Annotated[
        int, typer.Option("--seed", help="The seed of the cluster's loads; one seed, one cluster.")
    ] = 1,
    max_rounds: Annotated[
        int,
        typer.Option("--max-rounds", min=1, help="End after this many rounds of the balancer."),
    ] = 400,
    max_seconds: Annotated[
        int, typer.Option("--max-seconds", min=10, help="End after this many seconds.")
    ] = 240,
    keep: Annotated[
        bool, typer.Option("--keep", help="Keep everything running until Ctrl-C, to look at it.")
    ] = False,
    set_: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=VALUE",
            help="A setting of the job, which overrides conf/local.toml; may be given several "
            "times.",
        ),
    ] = None,
    json_only: Annotated[
        bool,
        typer.Option(
            "--json",
            help="Print only the figures on stdout, as one JSON object; progress goes to stderr.",
        ),
    ] = False,
) -> None:
    """Balance simulated brokers, one of them hot, with the real job and a real Kafka broker.

    It takes about a minute. Ctrl-C ends it at any time, and leaves nothing running. All its files
    are in .lb/demo.
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
    """Run the demo; return 0 if the brokers are balanced, 1 if not, 130 if it was interrupted.

    `settings` are KEY=VALUE for the job. Raises SettingError and CommandError for wrong arguments
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
        except BrokenPipeError:  # the reader of the output has ended
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
