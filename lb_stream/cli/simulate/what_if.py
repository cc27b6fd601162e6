"""`lbctl what-if`: predicts the effects of other settings, or of a drain."""

from __future__ import annotations

from typing import Annotated

import typer

from lb_stream.cli.shared.broker_names import require_broker_name
from lb_stream.cli.shared.options import (
    BrokerConf,
    Cluster,
    ConfigFile,
    Json,
    Try,
    load_cli_settings,
    split_settings,
)
from lb_stream.cli.shared.output import CommandError
from lb_stream.cli.shared.prediction import MINUTES, show_prediction


def register(app: typer.Typer) -> None:
    """Add the command to lbctl."""
    example = (
        "Example: lbctl what-if --cluster eu-1 --set shedding_strategy=AvgShedder --minutes 60"
    )
    app.command("what-if", epilog=f"{example} · Exit codes: 0 it fits, 1 it doesn't.")(what_if)


def what_if(
    cluster: Cluster = None,
    set_: Try = None,
    drain: Annotated[
        list[str] | None,
        typer.Option("--drain", metavar="BROKER", help="Simulate a drain of this broker."),
    ] = None,
    minutes: Annotated[
        float,
        typer.Option(
            "--minutes", metavar="M", min=1.0, max=1440.0, help="How many minutes are simulated."
        ),
    ] = MINUTES,
    config: ConfigFile = None,
    broker_conf: BrokerConf = None,
    json: Json = False,
) -> None:
    """Simulate a live cluster from now on, with other settings and with its own ones.

    Nothing is sent. Loads stay as they are now. docs/simulation.md describes what is assumed.
    """
    tried, own = split_settings(set_)
    if not tried and not drain:
        raise CommandError(
            "nothing to try: expected --set KEY=VALUE of a balancer's setting, or --drain BROKER", 2
        )
    given = load_cli_settings(config, broker_conf, own)
    from lb_stream.core.commands.base import WhatIf

    drained = [require_broker_name(given, cluster, broker) for broker in drain or ()]
    show_prediction(given, cluster, WhatIf(tried, drained), minutes, json)
