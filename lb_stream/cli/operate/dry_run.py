"""`lbctl dry-run`, another word for `clusters enable` and `disable`: whether decisions are only
made and logged, or published too."""

from __future__ import annotations

import typer

from lb_stream.cli.shared.outlook import Preview, show_preview
from lb_stream.cli.shared.sending import Sending, sends

app = typer.Typer(
    name="dry-run",
    help="Whether decisions are only made and logged, or published too.",
    hidden=True,
)


@app.callback()
def _group() -> None:
    """Dry runs."""


@app.command("on", epilog="Example: lbctl dry-run on --cluster eu-1")
@sends(all_clusters=True)
def on(send: Sending) -> None:
    """Make and log decisions, and publish none."""
    send("dry-run", on=True)


@app.command("off", epilog="Example: lbctl dry-run off --cluster eu-1")
@sends(all_clusters=True)
def off(preview: Preview = False, *, send: Sending) -> None:
    """Publish decisions, as `lbctl clusters enable` does."""
    if preview:
        from lb_stream.sim.simulation.outlook import WhatIf

        show_preview(send, WhatIf({"dry_run": False}))
    else:
        send("dry-run", on=False)
