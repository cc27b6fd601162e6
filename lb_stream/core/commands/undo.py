"""What takes back what an operator's command has laid down: commands that lay down what was in force before it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from lb_stream.contracts.base import canonical_json
from lb_stream.core.commands.settings import our_name
from lb_stream.core.model.operator_state import OperatorState

Order = dict[str, Any]
"""A command to send: its kind, and its fields."""


class CannotUndo(Exception):
    """Why a command can't be taken back, and what may be done instead."""


def taken_back_by(kind: str, arguments: Mapping[str, Any], before: OperatorState, now_ms: int) -> list[Order]:
    """The commands that take one back, none if it has changed nothing. `before`: what was in force when it came. Raises CannotUndo.

    Moves that it made are not among them.
    """
    if kind not in _BY_KIND:
        raise CannotUndo(_INSTEAD.get(kind, f"nothing takes {kind} back"))
    if "digest" in arguments and "characters" in arguments:
        raise CannotUndo(f"its arguments, {arguments['characters']} characters, were too long to be kept")
    return _BY_KIND[kind](arguments, before, now_ms)


def cancel_out(orders: Sequence[Order], now: OperatorState, now_ms: int) -> list[Order]:
    """Reduce the orders that take back several commands, the newest first, to what they come to.

    Of orders about one thing (a broker's drain, a setting, a bundle's pin) the last one counts: it
    lays down what was in force before all of them. One that lays down what is in force `now` is
    left out, as a command and its opposite are.
    """
    kept: dict[tuple[str, str], Order] = {}
    for order in (part for whole in orders for part in _parts(whole)):
        subject = _subject(order)
        kept.pop(subject, None)
        kept[subject] = order
    return _joined([one for one in kept.values() if not _is_in_force(one, now, now_ms)])


def _parts(order: Order) -> list[Order]:
    """An order as one for each thing that it is about."""
    if order["kind"] == "set-config":
        return [{"kind": "set-config", "values": {name: value}} for name, value in order["values"].items()]
    if order["kind"] == "pin-bundles":
        return [order | {"bundles": [name]} for name in order["bundles"]]
    return [order]


def _subject(order: Order) -> tuple[str, str]:
    match order["kind"]:
        case "pause-cluster" | "resume-cluster":
            return "paused", ""
        case "drain-broker" | "undrain-broker":
            return "drained", str(order["broker"])
        case "delete-config":
            return "setting", our_name(order["key"], "")
        case "set-config":
            ((name, value),) = order["values"].items()
            return "setting", our_name(name, value)
        case "pin-bundles":
            return "pin", str(order["bundles"][0])
    return str(order["kind"]), canonical_json(order)


def _is_in_force(order: Order, now: OperatorState, now_ms: int) -> bool:
    match order["kind"]:
        case "pause-cluster" | "resume-cluster":
            return now.paused is (order["kind"] == "pause-cluster")
        case "drain-broker" | "undrain-broker":
            return (order["broker"] in now.drained) is (order["kind"] == "drain-broker")
        case "delete-config":
            return _subject(order)[1] not in {our_name(*one) for one in now.settings.items()}
        case "set-config":
            return all(now.settings.get(name) == value for name, value in order["values"].items())
        case "pin-bundles":
            left_ms = max(now.pins.get(order["bundles"][0], 0) - now_ms, 0)
            return bool(left_ms == order["for_ms"])
    return False


def _joined(orders: Sequence[Order]) -> list[Order]:
    """The orders with settings in one command, as they may only go together, and pins by their time."""
    found: list[Order] = []
    for order in orders:
        kind = order["kind"]
        same = [one for one in found if one["kind"] == kind and one.get("for_ms") == order.get("for_ms")]
        if kind == "set-config" and same:
            same[0]["values"] |= order["values"]
        elif kind == "pin-bundles" and same:
            same[0]["bundles"] += order["bundles"]
        else:
            found.append(order)
    return found


def _pause(_: Mapping[str, Any], before: OperatorState, now_ms: int) -> list[Order]:
    return [] if before.paused else [{"kind": "resume-cluster"}]


def _resume(_: Mapping[str, Any], before: OperatorState, now_ms: int) -> list[Order]:
    return [{"kind": "pause-cluster"}] if before.paused else []


def _drain(arguments: Mapping[str, Any], before: OperatorState, now_ms: int) -> list[Order]:
    return [] if arguments["broker"] in before.drained else [{"kind": "undrain-broker", "broker": arguments["broker"]}]


def _undrain(arguments: Mapping[str, Any], before: OperatorState, now_ms: int) -> list[Order]:
    return [{"kind": "drain-broker", "broker": arguments["broker"]}] if arguments["broker"] in before.drained else []


def _settings(names: Sequence[str], before: OperatorState) -> list[Order]:
    """Each setting as a command had set it before, or no longer set by any."""
    had = defaultdict[str, dict[str, Any]](dict)  # one setting may have been set under two names
    for name, value in before.settings.items():
        had[our_name(name, value)][name] = value
    ours = [our_name(name, "") for name in names]
    again = {name: value for own in ours for name, value in had.get(own, {}).items()}
    deleted = [{"kind": "delete-config", "key": name} for name, own in zip(names, ours, strict=True) if own not in had]
    return ([{"kind": "set-config", "values": again}] if again else []) + deleted


def _policies(arguments: Mapping[str, Any], before: OperatorState, now_ms: int) -> list[Order]:
    named = [*(one["name"] for one in arguments.get("isolation", ())), *arguments.get("remove_isolation", ())]
    order: Order = {
        "isolation": [dict(before.isolation[name]) for name in named if name in before.isolation],
        "remove_isolation": [name for name in named if name not in before.isolation],
        "anti_affinity": {name: before.anti_affinity.get(name) for name in arguments.get("anti_affinity", ())},
        "failure_domains": {name: before.failure_domains.get(name) for name in arguments.get("failure_domains", ())},
    }
    return [{"kind": "set-policies"} | {name: value for name, value in order.items() if value}]


def _pins(arguments: Mapping[str, Any], before: OperatorState, now_ms: int) -> list[Order]:
    left_ms = defaultdict[int, list[str]](list)
    for name in arguments["bundles"]:
        left_ms[max(before.pins.get(name, 0) - now_ms, 0)].append(name)
    return [{"kind": "pin-bundles", "bundles": names, "for_ms": for_ms} for for_ms, names in sorted(left_ms.items())]


def _rejections(arguments: Mapping[str, Any], before: OperatorState, now_ms: int) -> list[Order]:
    """What was rejected may be proposed again, or not before the time that somebody had said earlier."""
    left_ms = defaultdict[tuple[int, str], list[str]](list)
    had = {one.proposal_id: one for one in before.rejections}
    for name in arguments["proposals"]:
        one = had.get(name)
        left_ms[(max(one.until_ms - now_ms, 0), one.why) if one is not None else (0, "undone")].append(name)
    return [{"kind": "reject-proposals", "proposals": names, "why": why, "for_ms": for_ms} for (for_ms, why), names in left_ms.items()]


_BY_KIND: dict[str, Callable[[Mapping[str, Any], OperatorState, int], list[Order]]] = {
    "pause-cluster": _pause,
    "resume-cluster": _resume,
    "drain-broker": _drain,
    "undrain-broker": _undrain,
    "dry-run": lambda _, before, now_ms: _settings(["dry_run"], before),
    "set-config": lambda arguments, before, now_ms: _settings(list(arguments["values"]), before),
    "delete-config": lambda arguments, before, now_ms: _settings([arguments["key"]], before),
    "set-policies": _policies,
    "pin-bundles": _pins,
    "reject-proposals": _rejections,
    "unload": lambda arguments, before, now_ms: [],  # it lays nothing down: its moves are taken back
    "approve-proposals": lambda arguments, before, now_ms: [],  # the same
}
_INSTEAD = {
    "split": "a split isn't taken back: lbctl namespaces merge makes one bundle of two, where agents can",
    "merge": "a merge isn't taken back: lbctl namespaces split cuts a bundle",
    "create-namespace": "a namespace stays: lbctl namespaces delete removes it if it has no topics",
    "delete-namespace": "a namespace isn't brought back: lbctl namespaces create makes one of its name",
    "import-namespaces": "an import isn't taken back: import what was there before",
    "declare-dead": "bundles of brokers that were declared dead have other owners: balancing fills a broker that comes back",
    "forget-cluster": "what was forgotten is not brought back: a cluster that reports begins anew",
    "assign": "a bundle that was given an owner had none before",
}
