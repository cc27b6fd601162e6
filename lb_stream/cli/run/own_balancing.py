"""`lbctl agent own-balancing`: Pulsar's own shedding and splitting, in all brokers at once."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from lb_stream.cli.shared.admin_access import AdminAccess, AnyAdminUrl, with_admin_access
from lb_stream.cli.shared.options import Json
from lb_stream.cli.shared.output import CommandError, emit, emit_json

if TYPE_CHECKING:
    from collections.abc import Mapping


class Switch(StrEnum):
    """What to do with Pulsar's own balancing."""

    on = "on"
    off = "off"
    show = "show"


@with_admin_access
def own_balancing(
    access: AdminAccess,
    admin_url: AnyAdminUrl,
    switch: Annotated[Switch, typer.Argument(help="on, off, or show.")] = Switch.show,
    json: Json = False,
) -> None:
    """Turn Pulsar's own shedding and splitting off or on, in all brokers at once; or show them.

    Two balancers undo each other's work, so agents act only while Pulsar's is off. It is turned by
    the dynamic settings loadBalancerSheddingEnabled and loadBalancerAutoBundleSplitEnabled.
    """
    from lb_stream.agent.adapter import BrokerError
    from lb_stream.agent.pulsar.guard import read_own_balancing, turn_own_balancing

    client = access.connect(admin_url)
    try:
        if switch is not Switch.show:
            turn_own_balancing(client, switch is Switch.on)
        cluster, found = read_own_balancing(client)
    except BrokerError as error:
        raise CommandError(str(error)) from None
    if json:
        emit_json({"cluster": cluster, **found})
        return
    emit("".join(f"{key} = {str(value).lower()}\n" for key, value in found.items()))
    emit(_describe_next(cluster, found, admin_url))


def _describe_next(cluster: str, found: Mapping[str, bool], url: str) -> str:
    """Return what to do next, as commands."""
    command = f"lbctl agent own-balancing {{}} --admin-url {url}\n"
    if any(found.values()):
        return "Pulsar balances: agents only report. To end that: " + command.format("off")
    return (
        "Pulsar no longer balances by itself; agents tell the balancer within 15 s or so. Then let "
        "moves wait for your approval, or be made at once:"
        f"\n  lbctl clusters mode {cluster} approve\n  lbctl clusters mode {cluster} act\n"
        "Back: " + command.format("on")
    )
