"""The pages that send a command: a form that says what it does, and then its result."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import cast

from kafka.errors import KafkaError
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from lb_stream.access.refusals import AccessRefusal
from lb_stream.console import address
from lb_stream.console.auth.visitor import (
    NOT_LOGGED_IN,
    Visitor,
    find_visitor,
    read_form,
    require_csrf_token,
)
from lb_stream.console.command_forms import (
    COMMAND_FORMS,
    FORM_QUERIES,
    HOURS,
    CommandFields,
    CommandForm,
    parse_form,
    parse_pin_ms,
)
from lb_stream.console.page import Page, Shown, render_page
from lb_stream.console.queries import (
    MAX_CHARACTERS,
    MAX_ID_CHARACTERS,
    ClusterQuery,
    CommandQuery,
    InvalidField,
    parse_query,
)
from lb_stream.contracts.commands import Command
from lb_stream.contracts.verbs import RequiredRight, find_role
from lb_stream.core.commands.base import BadForm, Operation
from lb_stream.io.kafka.commands import InvalidCommand, build_command
from lb_stream.query.lake import Row
from lb_stream.query.past.undo import Undo, plan_undo
from lb_stream.query.present.plans import add_partners, load_plan_effect
from lb_stream.query.present.proposals import load_waiting_proposals
from lb_stream.query.screens import brokers, feed, load_shares
from lb_stream.query.screens.lists import ListRequest

logger = logging.getLogger(__name__)

SendCommand = Callable[[str, Command], None]
"""Takes a cluster and a command; returns once the topic has it. Raises KafkaError, AccessRefusal.
"""


def form_page(request: Request) -> Response:
    """Show what a command would do, and the form that sends it."""
    name, _ = _require_form(request)
    page = Page(request)
    shown = show_form(name, page, parse_query(request, FORM_QUERIES[name]))
    return render_page(page, "send.html", **shown.values)


def show_form(name: str, page: Page, query: ClusterQuery) -> Shown:
    """Show what a command would do."""
    form, cluster = COMMAND_FORMS[name], query.cluster
    on = {field: str(getattr(query, field)) for field in form.on}
    page.require_cluster_facts(cluster)
    about_rights = on | {"destination": str(getattr(query, "destination", ""))}
    _require_verb(find_visitor(page.request), form, cluster)
    _require_rights(find_visitor(page.request), cluster, form.required_rights(about_rights))
    destinations: tuple[str, ...] = ()
    if "destination" in form.asks:
        destinations = page.ask(
            ("alive", cluster), lambda lake: brokers.list_alive_brokers(lake, cluster)
        )
    about = _load_subjects(page, cluster, on)
    if about.proposals:  # with those that are approved only together with the given ones
        on["proposals"] = " ".join(row["proposal_id"] for row in about.proposals)
    undo = None if about.undo is None else about.undo.to_dict()
    data = {
        "title": form.title,
        "sentence": form.sentence.format(**on),
        "role": form.role,
        "destinations": destinations,
        "about": asdict(replace(about, undo=None)) | {"undo": undo},
    }
    for_page = {
        "name": name,
        "form": form,
        "cluster": cluster,
        "on": on,
        "command_id": str(uuid.uuid4()),  # a form that is sent twice is carried out once
        "hours": HOURS,
        "destination": getattr(query, "destination", ""),
        "about": about,
    }
    return Shown(data, for_page)


@dataclass(frozen=True, slots=True)
class Subjects:
    """What a command is about, with figures: a broker, a bundle, proposals, or what it undoes."""

    broker: Row | None
    bundles: int | None  # of the broker
    bundle: Row | None
    proposals: Sequence[Row]
    effect: Row | None  # of the proposals' moves together
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
    state = page.find_cluster_state(cluster) if proposals else None
    effect = None
    if state is not None:
        ids = tuple(row["proposal_id"] for row in proposals)
        effect = page.ask(
            ("effect", cluster, ids), lambda lake: load_plan_effect(lake, state, proposals)
        )
    return Subjects(broker, bundles, bundle, proposals, effect, undo)


def _require_proposals(page: Page, cluster: str, ids: Collection[str]) -> list[Row]:
    """Return waiting proposals by their ids, with those that belong to them.

    Raises HTTPException(409) if one waits no longer.
    """
    if not ids:
        return []
    waiting = page.ask(("waiting", cluster), lambda lake: load_waiting_proposals(lake, cluster))
    found = add_partners(waiting, ids)
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
    visitor = require_csrf_token(request, given.get("csrf_token", ""))
    name, form = _require_form(request)
    for field in ("cluster", "command_id", *form.on):
        _require_field(given, field)
    await run_in_threadpool(send_commands, request, visitor, name, given)
    return RedirectResponse(find_result(given), 303)


def find_result(given: Mapping[str, str]) -> str:
    """Return the address of the page with the results of a form's commands."""
    return address.link("command", cluster=given["cluster"], id=given["command_id"])


def send_commands(
    request: Request, visitor: Visitor, name: str, given: Mapping[str, str]
) -> list[Command]:
    """Send the commands of a form, and return them.

    `given`: `cluster`, `command_id` and the form's own fields. Raises HTTPException.
    """
    form, cluster, command_id = COMMAND_FORMS[name], given["cluster"], given["command_id"]
    page = Page(request)
    page.require_cluster_facts(cluster)
    _require_verb(visitor, form, cluster)
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
    except BadForm as error:
        raise InvalidField("", "", "", str(error)) from None
    except InvalidCommand as error:
        raise InvalidField(error.field, error.value, error.expected, str(error)) from None
    if not commands:
        raise HTTPException(409, "nothing is left to undo")
    for command in commands:
        _require_rights(visitor, cluster, cast("Operation", command).required_rights())
    # a round carries commands out in the order in which the topic has them
    send_command: SendCommand = request.app.state.send
    try:
        for command in commands:
            send_command(cluster, command)
    except (KafkaError, AccessRefusal) as error:
        raise HTTPException(503, f"the command was not sent: {error}") from None
    return commands


def _parse_commands(
    page: Page, cluster: str, name: str, given: Mapping[str, str]
) -> list[CommandFields]:
    """Return the commands that a form sends. Raises BadForm."""
    if name != "undo":
        return [parse_form(name, given)]
    undone, pin_ms = given["id"], parse_pin_ms(given)
    undo = page.ask(("undo", cluster, undone), lambda lake: plan_undo(lake, undone, cluster))
    return [(kind, fields) for kind, several in undo.steps(pin_ms) for fields in several]


def command_page(page: Page, query: CommandQuery) -> Shown:
    """Show the results of a command, or of the commands that were sent together."""
    cluster, command_id = query.cluster, query.id
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
    data = {"results": rows, "drained": broker}
    return Shown(data, {"cluster": cluster, "id": command_id, "rows": rows})


def _require_form(request: Request) -> tuple[str, CommandForm]:
    """Return the name and the form of an address. Raises HTTPException(404)."""
    name = cast("str", request.path_params["name"])
    if name not in COMMAND_FORMS:
        raise HTTPException(
            404, f"there is no command {name}: expected one of {', '.join(COMMAND_FORMS)}"
        )
    return name, COMMAND_FORMS[name]


def _require_verb(visitor: Visitor, form: CommandForm, cluster: str) -> None:
    """Raise HTTPException unless the visitor may send a form's command about something."""
    if not visitor.name:
        raise HTTPException(401, NOT_LOGGED_IN, {"WWW-Authenticate": "Bearer"})
    if not visitor.has_verb(cluster, form.verb):
        if form.verb is None:
            raise HTTPException(403, f"{visitor.name} may send no commands in {cluster}")
        raise _report_missing(visitor, RequiredRight(form.verb), cluster)


def _require_rights(visitor: Visitor, cluster: str, rights: Iterable[RequiredRight]) -> None:
    """Raise MissingRight unless the visitor has these rights in a cluster."""
    if (missing := visitor.find_missing(cluster, rights)) is not None:
        raise _report_missing(visitor, missing, cluster)


def _report_missing(visitor: Visitor, right: RequiredRight, cluster: str) -> MissingRight:
    """Return the error about a missing right, and log it: the audit has only what was sent."""
    error = MissingRight(visitor, right, cluster)
    logger.warning("not sent: %r", error.detail)
    return error


class MissingRight(HTTPException):
    """A visitor lacks a right that a command requires."""

    def __init__(self, visitor: Visitor, right: RequiredRight, cluster: str) -> None:
        super().__init__(
            403,
            f"{visitor.name} may not do this in {cluster}: it requires the right "
            f"{right.describe()}, which the role {find_role(right.verb)} has",
        )
        self.right = right


def _require_field(given: Mapping[str, str], name: str) -> str:
    """Return a field of a form. Raises HTTPException(400) if it is missing or too long."""
    value = given.get(name, "")
    most = MAX_ID_CHARACTERS if name == "proposals" else MAX_CHARACTERS
    if not value or len(value) > most:
        raise HTTPException(400, f"{name}: {len(value)} characters: expected 1 to {most}")
    return value
