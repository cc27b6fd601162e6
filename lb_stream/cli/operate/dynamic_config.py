"""Dynamic settings: `lbctl brokers update-dynamic-config` and its kin, also without `brokers`, as older documents spell them."""

from __future__ import annotations

import json as json_
from typing import Annotated

import typer

from lb_stream.cli.shared.options import BrokerConf, Cluster, ConfigFile, Json, Set, effective
from lb_stream.cli.shared.outlook import Preview, show_preview
from lb_stream.cli.shared.output import emit, emit_json
from lb_stream.cli.shared.sending import Sending, SettingsFile, sends

Key = Annotated[str, typer.Option("--config", metavar="KEY", help="The key, under Pulsar's name or ours.")]


_UPDATE = "--config loadBalancerSheddingEnabled --value false"


def register(app: typer.Typer) -> None:
    """Add to lbctl what older documents write without `brokers`."""
    app.command("update-dynamic-config", epilog=f"Example: lbctl update-dynamic-config {_UPDATE}")(update)


def register_brokers(app: typer.Typer) -> None:
    """Add the commands to `lbctl brokers`."""
    prefix = "Example: lbctl brokers"
    app.command("update-dynamic-config", epilog=f"{prefix} update-dynamic-config {_UPDATE}")(update)
    app.command("delete-dynamic-config", epilog=f"{prefix} delete-dynamic-config --config loadBalancerSheddingEnabled")(delete)
    app.command("get-all-dynamic-config", epilog=f"{prefix} get-all-dynamic-config --cluster eu-1")(get_all)
    app.command("list-dynamic-config", epilog=f"{prefix} list-dynamic-config")(list_keys)


@sends(all_clusters=True, config=SettingsFile)
def update(
    key: Key,
    value: Annotated[str, typer.Option("--value", metavar="VALUE", help="Its new value, as it would stand in broker.conf.")],
    preview: Preview = False,
    *,
    send: Sending,
) -> None:
    """Change a setting of a running cluster, until it is changed or taken back. Which ones: list-dynamic-config."""
    if preview:
        from lb_stream.sim.play.outlook import Change

        show_preview(send, Change({key: value}))
    else:
        send("set-config", values={key: value})


@sends(all_clusters=True, config=SettingsFile)
def delete(key: Key, *, send: Sending) -> None:
    """Take a changed setting back: the job's own counts again."""
    send("delete-config", key=key)


def get_all(
    cluster: Cluster = None, config: ConfigFile = None, broker_conf: BrokerConf = None, set_: Set = None, json: Json = False
) -> None:
    """Show the dynamic settings that commands have set, as a JSON object. No loadManagerClassName in it: the job's own is in use."""
    from lb_stream.query.cluster_state import the_only

    values = dict(the_only(effective(config, broker_conf, set_).tables, cluster).orders.settings)
    if json:
        emit_json(values)
    else:
        emit(json_.dumps(values, indent=2, ensure_ascii=False) + "\n")


def list_keys(config: ConfigFile = None, broker_conf: BrokerConf = None, set_: Set = None, json: Json = False) -> None:
    """List the settings that can be changed while the job runs; --json tells what each means."""
    effective(config, broker_conf, set_)
    from lb_stream.core.commands.settings import dynamic_keys

    if json:
        emit_json(dynamic_keys())
    else:
        emit("".join(f"{key}\n" for key in dynamic_keys()))
