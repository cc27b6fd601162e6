"""`lbctl access`: who may send which commands, as the file of rights says."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from lb_stream.cli.shared.output import (
    CommandError,
    emit_line,
    emit_rich,
    note,
    table,
)
from lb_stream.cli.shared.reading import ReadOptions, with_read_options

if TYPE_CHECKING:
    from lb_stream.access.rights import Grant, Principal, Rights
    from lb_stream.contracts.verbs import RequiredRight

app = typer.Typer(
    name="access",
    no_args_is_help=True,
    help="Show who may send which commands, as the file of rights says (security.rights).",
)

As = Annotated[
    str, typer.Option("--as", metavar="NAME", help="The user, as in a command's field `by`.")
]
Groups = Annotated[
    list[str] | None,
    typer.Option("--group", metavar="NAME", help="A group of the user; several may be given."),
]
Key = Annotated[
    str | None,
    typer.Option("--key", metavar="KEY", help="The id of the key that signs the commands."),
]


@app.callback()
def _group() -> None:
    """Show who may send which commands, as the file of rights says."""


@app.command(
    "can-i", epilog="Example: lbctl access can-i drain broker-3.eu:8080 --cluster eu-1 --as alice"
)
@with_read_options(watch=False)
def can_i(
    verb: Annotated[
        str, typer.Argument(metavar="VERB", help="What to do: lbctl access verbs has them all.")
    ],
    name: As,
    objects: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[OBJECT]...",
            help="On what: a broker (HOST:PORT), a namespace (TENANT/NAMESPACE), or both. Without: "
            "on the whole cluster.",
        ),
    ] = None,
    group: Groups = None,
    key: Key = None,
    *,
    options: ReadOptions,
) -> None:
    """Say whether somebody may do something, and which line says so. Exit code 1: no."""
    from lb_stream.access.rights import Principal

    options.check_settings()
    right = parse_right(verb, objects or [])
    if options.cluster is None:
        raise CommandError("--cluster: expected a cluster: rights are those in one", 2)
    rights = _load_rights(options)
    principal = Principal(name, key, frozenset(group or ()))
    grant = rights.find_grant(principal, options.cluster, right)
    answer = {
        "allowed": grant is not None,
        "right": right.describe(),
        "cluster": options.cluster,
        "name": name,
        "place": None if grant is None else grant.place,
        "grant": None if grant is None else grant.describe(),
    }
    if not options.emit_object(answer):
        if grant is not None:
            emit_line(f"yes: {grant.place}: {grant.describe()}")
        else:
            where = f"in {options.cluster}"
            emit_line(f"no: no grant of {rights.source} gives {name} {right.describe()} {where}")
            for line in _list_nearest(rights, principal, right):
                note(line)
    if grant is None:
        raise typer.Exit(1)


@app.command("list", epilog="Example: lbctl access list --as alice --cluster eu-1")
@with_read_options(watch=False)
def list_(
    name: Annotated[
        str | None, typer.Option("--as", metavar="NAME", help="Only grants to this user.")
    ] = None,
    group: Groups = None,
    key: Key = None,
    *,
    options: ReadOptions,
) -> None:
    """Show the grants, each with its line in the file."""
    from lb_stream.access.rights import Principal

    rights = _load_rights(options)
    principal = Principal(name or "", key, frozenset(group or ()))
    is_limited = bool(name or group or key)
    rows = [
        _describe(grant)
        for grant in rights.grants
        if (not is_limited or grant.is_to(principal))
        and (options.cluster is None or grant.is_in(options.cluster))
    ]
    if options.emit_rows(rows):
        return
    if not rows:
        note(f"no such grant in {rights.source}")
        return
    titles = ("place", "to", "role or verbs", "clusters", "brokers", "namespaces")
    shown = [{**row, "verbs": row["role"] or row["verbs"]} for row in rows]
    emit_rich(
        table(
            titles,
            [[_show(value) for key, value in row.items() if key != "role"] for row in shown],
        )
    )


@app.command(epilog="Example: lbctl access verbs")
@with_read_options(cluster=False, watch=False)
def verbs(options: ReadOptions) -> None:
    """Show the verbs: what each allows, with which commands, and the first role that has it."""
    from lb_stream.contracts.verbs import VERBS, find_role
    from lb_stream.core.commands.base import operations

    options.check_settings()
    rows = [
        {
            "verb": verb,
            "allows": text,
            "commands": [model.spec.kind for model in operations() if model.spec.verb == verb],
            "role": find_role(verb),
        }
        for verb, text in VERBS.items()
    ]
    if not options.emit_rows(rows):
        titles = ("verb", "what it allows", "commands", "first role that has it")
        emit_rich(table(titles, [[_show(value) for value in row.values()] for row in rows]))


def parse_right(verb: str, objects: Sequence[str]) -> RequiredRight:
    """Return the right that words name. Raises CommandError."""
    from lb_stream.contracts.verbs import ALL, VERBS, RequiredRight
    from lb_stream.core.commands.base import broker_of

    if verb not in VERBS:
        raise CommandError(f"VERB {verb!r}: expected one of {', '.join(VERBS)}", 2)
    named = [broker_of(name) for name in objects]
    brokers = [name for name in named if "/" not in name]
    namespaces = [name for name in named if "/" in name]
    if len(brokers) > 1 or len(namespaces) > 1:
        raise CommandError(
            f"OBJECT {' '.join(objects)}: expected one broker, one namespace, or both", 2
        )
    (broker,), (namespace,) = brokers or [ALL], namespaces or [ALL]
    return RequiredRight(verb, broker, namespace)


def _load_rights(options: ReadOptions) -> Rights:
    """Read the file of rights. Raises CommandError, SettingError."""
    from lb_stream.settings.rights import load_rights

    file = load_rights(options.given.settings.security)
    if file is None:
        raise CommandError(
            "security.rights names no file: whoever may send commands may send all", 2
        )
    return file.rights()


def _list_nearest(rights: Rights, principal: Principal, right: RequiredRight) -> list[str]:
    """Return the grants of the verb to the principal, which are on something else."""
    return [
        f"{grant.place}: {grant.describe()}"
        for grant in rights.grants
        if grant.is_to(principal) and right.verb in grant.verbs
    ]


def _describe(grant: Grant) -> dict[str, object]:
    """Return the fields of a grant for the list."""
    return {
        "place": grant.place,
        "to": list(grant.to),
        "role": grant.role,
        "verbs": sorted(grant.verbs),
        "clusters": list(grant.clusters),
        "brokers": list(grant.brokers),
        "namespaces": list(grant.namespaces),
    }


def _show(value: object) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value or "-")
