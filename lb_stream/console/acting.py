"""Ordering: a page says what will be sent, its form sends it, another page shows what comes of
it."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection, Mapping
from typing import Any

from kafka.errors import KafkaError
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from lb_stream.access.refusals import AccessRefusal
from lb_stream.console import address
from lb_stream.console.acts import COMMAND_FORMS, HOURS, CommandForm, Step, build_step, parse_pin_ms
from lb_stream.console.auth.visitor import Visitor, find_visitor, read_form, require_csrf_token
from lb_stream.console.page import Page, show
from lb_stream.console.pages import require_cluster_facts
from lb_stream.contracts.commands import Command
from lb_stream.core.commands.base import BadForm
from lb_stream.io.kafka.commands import InvalidCommand, build_command
from lb_stream.query.past.undo import Undo, plan_undo
from lb_stream.query.present.proposals import load_waiting_proposals
from lb_stream.query.screens import brokers, feed, load_shares
from lb_stream.query.screens.lists import ListRequest

SendOrder = Callable[[str, Command], None]
"""Cluster and command → on the topic when it returns. Raises KafkaError or Refusal."""


def act_page(request: Request) -> Response:
    """What would be sent, with the form that sends it."""
    name, act = _act(request)
    page, cluster = Page(request), address.require_text(request, "cluster")
    on = {field: address.require_text(request, field) for field in act.on}
    require_cluster_facts(page, cluster)
    who = find_visitor(request)
    _require(who, act, cluster)
    return show(
        page,
        "act.html",
        name=name,
        act=act,
        cluster=cluster,
        on=on,
        sentence=act.sentence.format(**on),
        order_id=str(uuid.uuid4()),  # a form that is sent twice is done once
        hours=HOURS,
        destination=address.read_text(request, "destination"),
        destinations=page.ask(
            ("alive", cluster), lambda lake: brokers.list_alive_brokers(lake, cluster)
        )
        if "destination" in act.asks
        else (),
        **_facts(page, cluster, on),
    )


def _facts(page: Page, cluster: str, on: Mapping[str, str]) -> dict[str, Any]:
    """What whoever orders it should know."""
    broker, bundle, undone = on.get("broker"), on.get("bundle"), on.get("id")
    return {
        "broker": page.ask(
            ("broker", cluster, broker), lambda lake: brokers.find_broker(lake, cluster, broker)
        )
        if broker
        else None,
        "bundles": page.ask(
            ("bundles of", cluster, broker, ListRequest()),
            lambda lake: load_shares.list_bundles(lake, cluster, ListRequest(), owner=broker),
        )
        if broker
        else None,
        "bundle": page.ask(
            ("bundle", cluster, bundle),
            lambda lake: load_shares.find_bundle_load(lake, cluster, bundle),
        )
        if bundle
        else None,
        "proposals": _proposals(page, cluster, on.get("proposals", "").split()),
        "undo": page.ask(("undo", cluster, undone), lambda lake: plan_undo(lake, undone, cluster))
        if undone
        else None,
    }


def _proposals(page: Page, cluster: str, names: Collection[str]) -> list[dict[str, Any]]:
    """Those of these names that wait. Raises HTTPException(409) where one waits no more."""
    waiting = (
        page.ask(("waiting", cluster), lambda lake: load_waiting_proposals(lake, cluster))
        if names
        else []
    )
    found = [proposal for proposal in waiting if proposal["proposal_id"] in names]
    if gone := set(names) - {proposal["proposal_id"] for proposal in found}:
        raise HTTPException(
            409,
            f"{', '.join(sorted(gone))}: waits for nobody any more; see "
            f"{address.link('proposals', cluster=cluster)}",
        )
    return found


async def act(request: Request) -> Response:
    """Send it, and lead to the page of what comes of it."""
    form = await read_form(request)
    who = require_csrf_token(request, form)
    where = await run_in_threadpool(_sent, request, who, form)
    return RedirectResponse(where, 303)


def _sent(request: Request, who: Visitor, form: Mapping[str, str]) -> str:
    """Returns the address of what comes of it."""
    name, act = _act(request)
    cluster, order_id = _field(form, "cluster"), _field(form, "order_id")
    on = {field: _field(form, field) for field in act.on}
    page = Page(request)
    require_cluster_facts(page, cluster)
    _require(who, act, cluster)
    try:
        steps = (
            _undone(page, cluster, on["id"], parse_pin_ms(form))
            if name == "undo"
            else [build_step(name, form)]
        )
        ids = (
            [order_id]
            if len(steps) == 1
            else [f"{order_id}-{number}" for number in range(1, len(steps) + 1)]
        )
        orders = [
            build_command(kind, fields, who.name, command_id)
            for command_id, (kind, fields) in zip(ids, steps, strict=True)
        ]
    except (BadForm, InvalidCommand) as error:
        raise HTTPException(400, str(error)) from None
    if not orders:
        raise HTTPException(409, "there is nothing to take back any more")
    send: SendOrder = request.app.state.send
    try:
        for command in orders:  # in the topic's order, which is that of the round
            send(cluster, command)
    except (KafkaError, AccessRefusal) as error:
        raise HTTPException(503, f"it wasn't sent: {error}") from None
    return address.link("command", cluster=cluster, id=order_id)


def _undone(page: Page, cluster: str, name: str, for_ms: int) -> list[Step]:
    found: Undo = page.ask(("undo", cluster, name), lambda lake: plan_undo(lake, name, cluster))
    return [(kind, fields) for kind, several in found.steps(for_ms) for fields in several]


def command_page(request: Request) -> Response:
    """What has become of a command, or of those that were sent together."""
    page = Page(request)
    cluster, name = address.require_text(request, "cluster"), address.require_text(request, "id")
    require_cluster_facts(page, cluster)
    rows = page.ask(
        ("command", cluster, name), lambda lake: feed.list_command_entries(lake, cluster, name)
    )
    drained = next(
        (row["arguments"]["broker"] for row in rows if row["kind"] == "drain-broker"), None
    )
    left = (
        page.ask(
            ("broker", cluster, drained), lambda lake: brokers.find_broker(lake, cluster, drained)
        )
        if drained
        else None
    )
    return show(
        page, "command.html", cluster=cluster, id=name, rows=rows, drained=drained, left=left
    )


def _act(request: Request) -> tuple[str, CommandForm]:
    name = request.path_params["name"]
    if name not in COMMAND_FORMS:
        raise HTTPException(
            404, f"nothing is called {name}: expected one of {', '.join(COMMAND_FORMS)}"
        )
    return name, COMMAND_FORMS[name]


def _require(who: Visitor, act: CommandForm, cluster: str) -> None:
    if not who.name:
        raise HTTPException(
            401, "log in first: whoever orders something stands beside it in the list of commands"
        )
    if not who.may(act.role, cluster):
        raise HTTPException(
            403, f"{who.name} may not do this in {cluster}: it takes the role {act.role}"
        )


def _field(form: Mapping[str, str], name: str) -> str:
    value = form.get(name, "")
    if not value or len(value) > address.LONGEST:
        raise HTTPException(
            400, f"{name}: {len(value)} characters: expected 1 to {address.LONGEST}"
        )
    return value
