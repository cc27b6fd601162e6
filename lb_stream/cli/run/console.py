"""`lbctl console`: pages of the fleet in a browser, live."""

from __future__ import annotations

import time
from importlib.util import find_spec
from typing import Annotated

import typer

from lb_stream.cli.shared.options import BrokerConf, ConfigFile, Json, Set, effective
from lb_stream.cli.shared.output import CommandError, emit, emit_json, note

STEP_S = 0.2


def register(app: typer.Typer) -> None:
    """Add the command to lbctl."""
    app.command("console", epilog="Example: lbctl console --address 127.0.0.1:8090")(console)


def console(
    address: Annotated[str, typer.Option(metavar="HOST:PORT", help="Where to listen; port 0: any that is free.")] = "127.0.0.1:8090",
    name: Annotated[
        list[str] | None, typer.Option("--name", metavar="HOST", help="A name that browsers reach it by, beside this machine's own.")
    ] = None,
    config: ConfigFile = None,
    broker_conf: BrokerConf = None,
    set_: Set = None,
    json: Json = False,
) -> None:
    """Show all clusters in a browser: loads, decisions as they are made, what holds balancing up, and why. Ctrl-C ends it."""
    if find_spec("starlette") is None or find_spec("uvicorn") is None or find_spec("jinja2") is None:
        raise CommandError("the console needs more packages: pip install 'lb_stream[console]'", 2)
    given = effective(config, broker_conf, set_)
    import logging

    from lb_stream.console.reader import Reader
    from lb_stream.console.serve import Served
    from lb_stream.io.local.signals import StopRequest

    logging.getLogger("kafka").setLevel(logging.CRITICAL)  # the page says whether Kafka answers
    bootstrap, topics = given.bootstrap, given.settings.topics
    reader = Reader(given.tables, given.settings, bootstrap)
    with StopRequest() as stop:
        try:
            follow = (given.client_options(bootstrap), topics.decisions, topics.results)
            served = Served(address, reader, tuple(name or ()), follow)
        except (OSError, ValueError, OverflowError) as error:
            raise CommandError(f"--address {address}: {error}: give another HOST:PORT", 2) from None
        note("Ctrl-C ends it")
        if json:
            emit_json({"url": served.url})
        else:
            emit(f"{served.url}/\n")
        reader.look()  # what is slow for the first time is so before anybody waits for it
        while not stop:
            time.sleep(STEP_S)
        served.stop()
