"""`lbctl config overrides` and `settable`: the settings that commands have set, and may set."""

from __future__ import annotations

import json as json_

import typer

from lb_stream.cli.shared.options import (
    BrokerConf,
    Cluster,
    ConfigFile,
    Json,
    Set,
    load_cli_settings,
)
from lb_stream.cli.shared.output import emit, emit_json


def register_config(app: typer.Typer) -> None:
    """Add the commands to `lbctl config`."""
    prefix = "Example: lbctl config"
    app.command("overrides", epilog=f"{prefix} overrides --cluster eu-1")(overrides)
    app.command("settable", epilog=f"{prefix} settable")(settable)


def overrides(
    cluster: Cluster = None,
    config: ConfigFile = None,
    broker_conf: BrokerConf = None,
    set_: Set = None,
    json: Json = False,
) -> None:
    """Show the settings that commands have set in a running cluster, as a JSON object.

    Without loadManagerClassName in it, the job's own load manager is in use.
    """
    from lb_stream.query.cluster_state import require_single_cluster

    values = dict(
        require_single_cluster(
            load_cli_settings(config, broker_conf, set_).tables, cluster
        ).operator_state.settings
    )
    if json:
        emit_json(values)
    else:
        emit(json_.dumps(values, indent=2, ensure_ascii=False) + "\n")


def settable(
    config: ConfigFile = None, broker_conf: BrokerConf = None, set_: Set = None, json: Json = False
) -> None:
    """List the settings that can be changed while the job runs; --json adds what each means."""
    load_cli_settings(config, broker_conf, set_)
    from lb_stream.settings.overrides import dynamic_keys

    if json:
        emit_json(dynamic_keys())
    else:
        emit("".join(f"{key}\n" for key in dynamic_keys()))
