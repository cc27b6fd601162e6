"""Where the references of findings lead, and the buttons of their remedies."""

from __future__ import annotations

from lb_stream.console.address import link
from lb_stream.console.auth.visitor import Visitor
from lb_stream.console.command_forms import COMMAND_FORMS
from lb_stream.query.references import Reference, Remedy


def address_of(reference: Reference) -> str:
    """Return the address of the page about a thing."""
    kind, cluster, name = reference.kind, reference.cluster, reference.name
    if kind == "cluster":
        return link("cluster", name=cluster)
    if kind == "decision":
        return link("decision", id=name)
    if kind == "round":
        return link("round", cluster=cluster, seq=name)
    return link(kind, cluster=cluster, name=name)


def title_of(reference: Reference) -> str:
    """Return the text of the link to a thing."""
    if reference.kind == "cluster":
        return reference.cluster
    if reference.kind == "round":
        return f"round {reference.name}"
    return reference.name or reference.kind


def list_remedies(visitor: Visitor, remedies: tuple[Remedy, ...]) -> list[tuple[str, str]]:
    """Return title and address of the form of each remedy that the visitor may send.

    The title names what the command is about where there are several of one form.
    """
    forms = [remedy.form for remedy in remedies]
    found = []
    for remedy in remedies:
        form = COMMAND_FORMS[remedy.form]
        if form.is_offered(visitor, remedy.cluster, remedy.on):
            about = f" {' '.join(remedy.on.values())}" if forms.count(remedy.form) > 1 else ""
            address = link(f"send/{remedy.form}", cluster=remedy.cluster, **remedy.on)
            found.append((form.title + about, address))
    return found
