"""What can be ordered on a page: each is a command (docs/commands.md), said in words before it is
sent."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from lb_stream.console.address import link
from lb_stream.console.auth.users import Role
from lb_stream.console.auth.visitor import Visitor
from lb_stream.contracts.commands import LONGEST_PIN_MS, LONGEST_WHY

Step = tuple[str, dict[str, Any]]
"""A command's kind and fields."""
HOURS = (1, 6, 24, 168)
"""How long a pin or a rejection may hold."""
HOUR_MS = 3_600_000


class BadForm(ValueError):
    """A field of a form that can't be. The text names it and what was expected."""


@dataclass(frozen=True, slots=True)
class Act:
    """One thing to order.

    `on`: what it is about, in the address and in the form. `asks`: other fields, which the page
    asks for.
    """

    title: str
    sentence: str  # with the fields of `on`
    role: Role
    on: tuple[str, ...] = ()
    asks: tuple[str, ...] = ()
    kind: str = ""  # of its command; empty: taking back is what was done before


ACTS: dict[str, Act] = {
    "pause": Act(
        "Pause",
        "Shed and split nothing until it is resumed. Bundles that lose their owner still get one.",
        "operator",
        kind="pause-cluster",
    ),
    "resume": Act("Resume", "Shed and split again.", "operator", kind="resume-cluster"),
    "drain": Act(
        "Drain",
        "Unload all bundles of {broker}, and give it none until the drain is ended.",
        "operator",
        ("broker",),
        kind="drain-broker",
    ),
    "undrain": Act(
        "End the drain",
        "Let {broker} take bundles again.",
        "operator",
        ("broker",),
        kind="undrain-broker",
    ),
    "declare-dead": Act(
        "Declare dead",
        "Take {broker}, if it is silent, for dead now: its bundles go to others.",
        "admin",
        ("broker",),
        kind="declare-dead",
    ),
    "unload": Act(
        "Unload",
        "Have {bundle} leave its broker.",
        "operator",
        ("bundle",),
        ("destination",),
        kind="unload",
    ),
    "split": Act("Split", "Split {bundle} in two.", "operator", ("bundle",), kind="split"),
    "pin": Act(
        "Pin",
        "Have balancing leave {bundle} where it is for a while.",
        "operator",
        ("bundle",),
        ("hours",),
        kind="pin-bundles",
    ),
    "undo": Act("Undo", "Take back {id}.", "operator", ("id",), ("hours",)),
    "approve": Act(
        "Approve",
        "Do what {proposals} asks for, if it still can be.",
        "operator",
        ("proposals",),
        kind="approve-proposals",
    ),
    "reject": Act(
        "Reject",
        "Leave undone what {proposals} asks for, and have nothing like it proposed for a while.",
        "operator",
        ("proposals",),
        ("why", "hours"),
        kind="reject-proposals",
    ),
    "publish": Act(
        "Publish decisions",
        "Brokers are told all that is decided; nothing waits for approval.",
        "admin",
        kind="set-config",
    ),
    "ask-first": Act(
        "Ask first",
        "Moves and splits that balancing wants wait for approval; all else is published.",
        "admin",
        kind="set-config",
    ),
    "dry-run": Act(
        "Dry run", "Go on deciding, and tell brokers nothing of it.", "admin", kind="set-config"
    ),
}


MODES = {"observe": "dry-run", "approve": "ask-first", "act": "publish"}
"""A cluster's mode → the act that brings it about."""


def offered(
    visitor: Visitor, cluster: str, names: Iterable[str], /, **on: str
) -> list[tuple[str, str]]:
    """Titles and addresses of those that a visitor may order there."""
    return [
        (ACTS[name].title, link(f"act/{name}", cluster=cluster, **on))
        for name in names
        if visitor.may(ACTS[name].role, cluster)
    ]


def step_of(name: str, given: Mapping[str, str]) -> Step:
    """The command of an act, from the fields of its form. Not of `undo`. Raises BadForm."""
    kind = ACTS[name].kind
    if name in MODES.values():
        return kind, {"values": {"mode": next(mode for mode, act in MODES.items() if act == name)}}
    if name == "approve":
        return kind, {"proposals": given["proposals"].split()}
    if name == "reject":
        return kind, {
            "proposals": given["proposals"].split(),
            "why": _why(given),
            "for_ms": pin_ms(given),
        }
    if name in ("drain", "undrain", "declare-dead"):
        return kind, {"broker": given["broker"]}
    if name == "pin":
        return kind, {"bundles": [given["bundle"]], "for_ms": pin_ms(given)}
    if name in ("unload", "split"):
        namespace, _, bounds = given["bundle"].rpartition("/")
        to = {"destination": given["destination"]} if given.get("destination") else {}
        return kind, {"namespace": namespace, "bundle": bounds, **to}
    return kind, {}


def _why(given: Mapping[str, str]) -> str:
    why = given.get("why", "").strip()
    if not 0 < len(why) <= LONGEST_WHY:
        raise BadForm(
            f"why: {len(why)} characters: expected 1 to {LONGEST_WHY}: it is what others are told"
        )
    return why


def pin_ms(given: Mapping[str, str]) -> int:
    """How long something is to hold; 0: not at all. Raises BadForm."""
    text = given.get("hours", "0")
    if not (text.isascii() and text.isdigit()) or (found := int(text) * HOUR_MS) > LONGEST_PIN_MS:
        raise BadForm(
            f"hours={text}: expected a whole number of hours, {LONGEST_PIN_MS // HOUR_MS} at most"
        )
    return found
