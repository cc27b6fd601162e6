"""What findings and checks are about, and the commands that end them, for screens to lead there."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

ReferenceKind = Literal[
    "cluster",
    "broker",
    "bundle",
    "namespace",
    "decision",
    "round",
    "proposals",
    "rollout",
    "settings",
]
MAX_REFERENCES = 3
"""Things of one kind that a finding leads to."""
LONGEST_IDS = 1_500
"""Characters of the ids of proposals that one command is offered for."""


@dataclass(frozen=True, slots=True)
class Reference:
    """One thing that a finding is about. `name` empty: the kind says all, within the cluster."""

    kind: ReferenceKind
    cluster: str
    name: str = ""


@dataclass(frozen=True, slots=True)
class Remedy:
    """A command that ends a finding: the name of its form, and what it is about.

    `form`: the name of a button (lb_stream/operations). `on`: its fields, besides the cluster.
    """

    form: str
    cluster: str
    on: Mapping[str, str] = field(default_factory=dict)


def refer(kind: ReferenceKind, cluster: str, *names: str) -> tuple[Reference, ...]:
    """Return references to the first of some things; without names, to the one of this kind."""
    return tuple(Reference(kind, cluster, name) for name in (names or ("",))[:MAX_REFERENCES])


def remedy(form: str, cluster: str, **on: str) -> Remedy:
    """Return a command that ends a finding."""
    return Remedy(form, cluster, on)


def remedy_each(form: str, cluster: str, field_name: str, names: Iterable[str]) -> list[Remedy]:
    """Return a command for each of the first of some things."""
    return [Remedy(form, cluster, {field_name: name}) for name in list(names)[:MAX_REFERENCES]]


def approve_remedies(cluster: str, ids: Iterable[str]) -> tuple[Remedy, ...]:
    """Return the command that approves proposals; none if there are none, or too many for it."""
    joined = " ".join(ids)
    if not joined or len(joined) > LONGEST_IDS:
        return ()
    return (Remedy("approve", cluster, {"proposals": joined}),)
