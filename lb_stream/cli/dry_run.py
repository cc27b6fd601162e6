"""`lbctl dry-run`: whether decisions are only made and logged, or published too."""

from __future__ import annotations

import typer

from lb_stream.cli.command_options import DEFAULT_TIMEOUT_S, AllClusters, Id, NoWait, Sending, Timeout, ToCluster
from lb_stream.cli.options import BrokerConf, ConfigFile, Json, Set, effective

app = typer.Typer(name="dry-run", help="Whether decisions are only made and logged, or published too.", no_args_is_help=True)


@app.callback()
def _group() -> None:
    """Dry runs."""


@app.command("on", epilog="Example: lbctl dry-run on --cluster eu-1")
def on(
    cluster: ToCluster = None, all_clusters: AllClusters = False, no_wait: NoWait = False, timeout: Timeout = DEFAULT_TIMEOUT_S,
    command_id: Id = None, config: ConfigFile = None, broker_conf: BrokerConf = None, set_: Set = None, json: Json = False,
) -> None:  # fmt: skip
    """Make and log decisions, and publish none."""
    Sending(effective(config, broker_conf, set_), cluster, all_clusters, no_wait, timeout, command_id, json)("dry-run", on=True)


@app.command("off", epilog="Example: lbctl dry-run off --cluster eu-1")
def off(
    cluster: ToCluster = None, all_clusters: AllClusters = False, no_wait: NoWait = False, timeout: Timeout = DEFAULT_TIMEOUT_S,
    command_id: Id = None, config: ConfigFile = None, broker_conf: BrokerConf = None, set_: Set = None, json: Json = False,
) -> None:  # fmt: skip
    """Publish decisions, as `lbctl clusters enable` does."""
    Sending(effective(config, broker_conf, set_), cluster, all_clusters, no_wait, timeout, command_id, json)("dry-run", on=False)
