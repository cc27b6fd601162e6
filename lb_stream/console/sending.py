"""The pages that send a command: a form that says what it does, and then its result."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import cast

from kafka.errors import KafkaError
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from lb_stream.access.refusals import AccessRefusal
from lb_stream.console import address
from lb_stream.console.auth.visitor import Visitor, find_visitor, read_form, require_csrf_token
from lb_stream.console.command_forms import (
    COMMAND_FORMS,
    HOURS,
    CommandFields,
    CommandForm,
    parse_form,
    parse_pin_ms,
)
from lb_stream.console.page import Page, render_page
from lb_stream.contracts.commands import Command
from lb_stream.core.commands.base import BadForm
from lb_stream.io.kafka.commands import InvalidCommand, build_command
from lb_stream.query.lake import Row
from lb_stream.query.past.undo import Undo, plan_undo
from lb_stream.query.present.proposals import load_waiting_proposals
from lb_stream.query.screens import brokers, feed, load_shares
from lb_stream.query.screens.lists import ListRequest

SendCommand = Callable[[str, Command], None]
"""Takes a cluster and a command; returns once the topic has it. Raises KafkaError, AccessRefusal.
"""


def form_page(request: Request) -> Response:
    """Show what a command would do, and the form that sends it."""
    name, form = _require_form(request)
    page, cluster = Page(request), address.require_text(request, "cluster")
    on = {field: address.require_text(request, field) for field in form.on}
    page.require_cluster_facts(cluster)
    _require_role(find_visitor(request), form, cluster)
    destinations: tuple[str, ...] = ()
    if "destination" in form.asks:
        destinations = page.ask(
            ("alive", cluster), lambda lake: brokers.list_alive_brokers(lake, cluster)
        )
    return render_page(
        page,
        "send.html",
        name=name,
        form=form,
        cluster=cluster,
        on=on,
        sentence=form.sentence.format(**on),
        command_id=str(uuid.uuid4()),  # a form that is sent twice is carried out once
        hours=HOURS,
        destination=address.read_text(request, "destination"),
        destinations=destinations,
        about=_load_subjects(page, cluster, on),
    )


@dataclass(frozen=True, slots=True)
class Subjects:
    """What a command is about, with figures: a broker, a bundle, proposals, or what it undoes."""

    broker: Row | None
    bundles: int | None  # of the broker
    bundle: Row | None
    proposals: Sequence[Row]
    undo: Undo | None


def _load_subjects(page: Page, cluster: str, on: Mapping[str, str]) -> Subjects:
    broker, bundles, bundle, undo = None, None, None, None
    if name := on.get("broker"):
        broker = page.ask(
            ("broker", cluster, name), lambda lake: brokers.find_broker(lake, cluster, name)
        )
        bundles = page.ask(
            ("bundles of", cluster, name, ListRequest()),
            lambda lake: load_shares.list_bundles(lake, cluster, ListRequest(), owner=name),
        ).total
    if bundle_name := on.get("bundle"):
        bundle = page.ask(
            ("bundle", cluster, bundle_name),
            lambda lake: load_shares.find_bundle_load(lake, cluster, bundle_name),
        )
    if undone := on.get("id"):
        undo = page.ask(("undo", cluster, undone), lambda lake: plan_undo(lake, undone, cluster))
    proposals = _require_proposals(page, cluster, on.get("proposals", "").split())
    return Subjects(broker, bundles, bundle, proposals, undo)


def _require_proposals(page: Page, cluster: str, ids: Collection[str]) -> list[Row]:
    """Return waiting proposals by their ids. Raises HTTPException(409) if one waits no longer."""
    if not ids:
        return []
    waiting = page.ask(("waiting", cluster), lambda lake: load_waiting_proposals(lake, cluster))
    found = [proposal for proposal in waiting if proposal["proposal_id"] in ids]
    missing = set(ids) - {proposal["proposal_id"] for proposal in found}
    if missing:
        raise HTTPException(
            409,
            f"{', '.join(sorted(missing))}: no longer waits for approval: see "
            f"{address.link('proposals', cluster=cluster)}",
        )
    return found


async def send(request: Request) -> Response:
    """Send a form's command, and lead to the page with its result."""
    given = await read_form(request)
    visitor = require_csrf_token(request, given)
    result_address = await run_in_threadpool(_send, request, visitor, given)
    return RedirectResponse(result_address, 303)


def _send(request: Request, visitor: Visitor, given: Mapping[str, str]) -> str:
    """Send the commands of a form. Returns the address of the page with their results."""
    name, form = _require_form(request)
    cluster, command_id = _require_field(given, "cluster"), _require_field(given, "command_id")
    for field in form.on:
        _require_field(given, field)
    page = Page(request)
    page.require_cluster_facts(cluster)
    _require_role(visitor, form, cluster)
    # what to send: undo may take several commands, whose ids are numbered
    try:
        several = _parse_commands(page, cluster, name, given)
        ids = [command_id]
        if len(several) != 1:
            ids = [f"{command_id}-{number}" for number in range(1, len(several) + 1)]
        commands = [
            build_command(kind, fields, visitor.name, command_id)
            for command_id, (kind, fields) in zip(ids, several, strict=True)
        ]
    except (BadForm, InvalidCommand) as error:
        raise HTTPException(400, str(error)) from None
    if not commands:
        raise HTTPException(409, "nothing is left to undo")
    # a round carries commands out in the order in which the topic has them
    send_command: SendCommand = request.app.state.send
    try:
        for command in commands:
            send_command(cluster, command)
    except (KafkaError, AccessRefusal) as error:
        raise HTTPException(503, f"the command was not sent: {error}") from None
    return address.link("command", cluster=cluster, id=command_id)


def _parse_commands(
    page: Page, cluster: str, name: str, given: Mapping[str, str]
) -> list[CommandFields]:
    """Return the commands that a form sends. Raises BadForm."""
    if name != "undo":
        return [parse_form(name, given)]
    undone, pin_ms = given["id"], parse_pin_ms(given)
    undo = page.ask(("undo", cluster, undone), lambda lake: plan_undo(lake, undone, cluster))
    return [(kind, fields) for kind, several in undo.steps(pin_ms) for fields in several]


def command_page(request: Request) -> Response:
    """Show the results of a command, or of the commands that were sent together."""
    page = Page(request)
    cluster = address.require_text(request, "cluster")
    command_id = address.require_text(request, "id")
    page.require_cluster_facts(cluster)
    rows = page.ask(
        ("command", cluster, command_id),
        lambda lake: feed.list_command_entries(lake, cluster, command_id),
    )
    drained = next(
        (row["arguments"]["broker"] for row in rows if row["kind"] == "drain-broker"), None
    )
    broker = None
    if drained:
        broker = page.ask(
            ("broker", cluster, drained), lambda lake: brokers.find_broker(lake, cluster, drained)
        )
    return render_page(
        page, "command.html", cluster=cluster, id=command_id, rows=rows, drained=broker
    )


def _require_form(request: Request) -> tuple[str, CommandForm]:
    """Return the name and the form of an address. Raises HTTPException(404)."""
    name = cast("str", request.path_params["name"])
    if name not in COMMAND_FORMS:
        raise HTTPException(
            404, f"there is no command {name}: expected one of {', '.join(COMMAND_FORMS)}"
        )
    return name, COMMAND_FORMS[name]


def _require_role(visitor: Visitor, form: CommandForm, cluster: str) -> None:
    """Raise HTTPException unless the visitor may send a form's command to a cluster."""
    if not visitor.name:
        raise HTTPException(401, "log in first: a command is recorded with its sender's name")
    if not visitor.may(form.role, cluster):
        raise HTTPException(
            403, f"{visitor.name} may not do this in {cluster}: it requires the role {form.role}"
        )


def _require_field(given: Mapping[str, str], name: str) -> str:
    """Return a field of a form. Raises HTTPException(400) if it is missing or too long."""
    value = given.get(name, "")
    if not value or len(value) > address.MAX_CHARACTERS:
        raise HTTPException(
            400, f"{name}: {len(value)} characters: expected 1 to {address.MAX_CHARACTERS}"
        )
    return value
