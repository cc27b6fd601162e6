"""Settings of a running cluster: `lbctl config set` and its kin, and the same in Pulsar's words
(`brokers update-dynamic-config`)."""

from __future__ import annotations

import json as json_
from typing import Annotated

import typer

from lb_stream.cli.shared.aliases import also
from lb_stream.cli.shared.options import BrokerConf, Cluster, ConfigFile, Json, Set, effective
from lb_stream.cli.shared.outlook import Preview, show_preview
from lb_stream.cli.shared.output import CommandError, emit, emit_json
from lb_stream.cli.shared.sending import Sending, SettingsFile, sends

Pairs = Annotated[
    list[str],
    typer.Argument(
        metavar="KEY VALUE",
        help="The key, under Pulsar's name or ours, and its new value; of several all are set, "
        "or none.",
    ),
]
Key = Annotated[str, typer.Argument(metavar="KEY", help="The key, under Pulsar's name or ours.")]
PulsarKey = Annotated[
    str, typer.Option("--config", metavar="KEY", help="The key, under Pulsar's name or ours.")
]
PulsarValue = Annotated[
    str,
    typer.Option(
        "--value", metavar="VALUE", help="Its new value, as it would stand in broker.conf."
    ),
]


def register_config(app: typer.Typer) -> None:
    """Add the commands to `lbctl config`."""
    prefix = "Example: lbctl config"
    both = "set shedding_strategy AvgShedder placement_strategy AvgShedder"
    app.command("set", epilog=f"{prefix} {both}")(set_value)
    app.command("unset", epilog=f"{prefix} unset loadBalancerSheddingEnabled")(unset)
    app.command("overrides", epilog=f"{prefix} overrides --cluster eu-1")(overrides)
    app.command("settable", epilog=f"{prefix} settable")(settable)


def register(app: typer.Typer) -> None:
    """Add to lbctl what older documents of Pulsar write without `brokers`."""
    also(app, "update-dynamic-config", of="config set KEY VALUE")(update)


def register_brokers(app: typer.Typer) -> None:
    """Add Pulsar's words to `lbctl brokers`."""
    register(app)
    also(app, "delete-dynamic-config", of="config unset KEY")(delete)
    also(app, "get-all-dynamic-config", of="config overrides")(overrides)
    also(app, "list-dynamic-config", of="config settable")(settable)


@sends(all_clusters=True)
def set_value(pairs: Pairs, preview: Preview = False, *, send: Sending) -> None:
    """Change settings of a running cluster, until they are changed or taken back.

    Which ones: lbctl config settable.
    """
    if len(pairs) % 2:
        raise CommandError(f"{pairs[-1]}: expected KEY VALUE, once or more: a value is missing", 2)
    keys = pairs[::2]
    twice = [key for key in dict.fromkeys(keys) if keys.count(key) > 1]
    if twice:
        raise CommandError(f"{', '.join(twice)}: expected each key once", 2)
    _set(dict(zip(keys, pairs[1::2], strict=True)), preview, send)


@sends(all_clusters=True, config=SettingsFile)
def update(key: PulsarKey, value: PulsarValue, preview: Preview = False, *, send: Sending) -> None:
    """Change settings of a running cluster, until they are changed or taken back.

    Which ones: lbctl config settable.
    """
    _set({key: value}, preview, send)


def _set(values: dict[str, str], preview: bool, send: Sending) -> None:
    if preview:
        from lb_stream.sim.simulation.outlook import WhatIf

        show_preview(send, WhatIf(dict(values)))
    else:
        send("set-config", values=values)


@sends(all_clusters=True)
def unset(key: Key, *, send: Sending) -> None:
    """Take a changed setting back: the job's own counts again."""
    send("delete-config", key=key)


@sends(all_clusters=True, config=SettingsFile)
def delete(key: PulsarKey, *, send: Sending) -> None:
    """Take a changed setting back: the job's own counts again."""
    send("delete-config", key=key)


def overrides(
    cluster: Cluster = None,
    config: ConfigFile = None,
    broker_conf: BrokerConf = None,
    set_: Set = None,
    json: Json = False,
) -> None:
    """Show what commands have set, as a JSON object.

    No loadManagerClassName in it: the job's own is in use.
    """
    from lb_stream.query.cluster_state import require_single_cluster

    values = dict(
        require_single_cluster(effective(config, broker_conf, set_).tables, cluster).orders.settings
    )
    if json:
        emit_json(values)
    else:
        emit(json_.dumps(values, indent=2, ensure_ascii=False) + "\n")


def settable(
    config: ConfigFile = None, broker_conf: BrokerConf = None, set_: Set = None, json: Json = False
) -> None:
    """List the settings that can be changed while the job runs; --json tells what each means."""
    effective(config, broker_conf, set_)
    from lb_stream.settings.overrides import dynamic_keys

    if json:
        emit_json(dynamic_keys())
    else:
        emit("".join(f"{key}\n" for key in dynamic_keys()))
