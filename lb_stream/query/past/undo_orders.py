"""What takes back what an operator's command has laid down: commands that lay down what was in
force before it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from lb_stream.contracts.base import canonical_json
from lb_stream.core.commands.persistent_commands import broker_of
from lb_stream.core.model.operator_state import OperatorState
from lb_stream.settings.names import canonical, our_name

Order = dict[str, Any]
"""A command to send: its kind, and its fields."""


class CannotUndo(Exception):
    """Why a command can't be taken back, and what may be done instead."""


def taken_back_by(
    kind: str, arguments: Mapping[str, Any], before: OperatorState, now_ms: int
) -> list[Order]:
    """The commands that take one back, none if it has changed nothing.

    `before`: what was in force when it came. Raises CannotUndo.

    Moves that it made are not among them.
    """
    if kind not in _BY_KIND:
        raise CannotUndo(_INSTEAD.get(kind, f"nothing takes {kind} back"))
    if "digest" in arguments and "characters" in arguments:
        raise CannotUndo(
            f"its arguments, {arguments['characters']} characters, were too long to be kept"
        )
    return _BY_KIND[kind](arguments, before, now_ms)


def cancel_out(orders: Sequence[Order], now: OperatorState, now_ms: int) -> list[Order]:
    """Reduce the orders that take back several commands, the newest first, to what they come to.

    Of orders about one thing (a broker's drain, a setting, a policy, a bundle's pin, a rejection)
    the last one counts: it lays down what was in force before all of them. One that lays down what
    is in force `now` is left out, as a command and its opposite are.
    """
    kept: dict[tuple[str, str], Order] = {}
    for order in (part for whole in orders for part in _parts(whole)):
        subject = _subject(order)
        kept.pop(subject, None)
        kept[subject] = order
    return _joined([one for one in kept.values() if not _is_in_force(one, now, now_ms)])


def explain_lost(order: Order, now: OperatorState) -> str | None:
    """Say why what an order would lay down can't be laid down any more; None: it can be."""
    if order["kind"] != "reject-proposals" or not order["for_ms"]:
        return None
    held = {rejection.proposal_id for rejection in now.rejections}
    lost = [name for name in order["proposals"] if name not in held]
    if not lost:
        return None
    return f"the rejection of {', '.join(lost)} was ended: reject what is proposed next, or pin"


def may_end_publishing(order: Order, now: OperatorState) -> bool:
    """Whether decisions may stay unpublished once an order is done, where they are published `now`.

    It changes the mode that a command has laid down. What the job's own mode is isn't known here.
    """
    if _mode_in(now.settings) in (None, "observe"):
        return False
    if order["kind"] == "delete-config":
        return our_name(order["key"], "") == "mode"
    return order["kind"] == "set-config" and _mode_in(order["values"]) == "observe"


def _mode_in(settings: Mapping[str, Any]) -> str | None:
    """The mode that these settings give, under whichever name; None: they give none."""
    own = {name: value for name, value in settings.items() if our_name(name, value) == "mode"}
    mode: str | None = canonical(own).get("mode")
    return mode


def cancelled(commands: Sequence[tuple[str, Mapping[str, Any]]]) -> frozenset[int]:
    """The places of commands that others have taken back: kinds and arguments, the newest first.

    Of those that nothing else takes back: a namespace that was made and deleted again, and a bundle
    that was split and merged again.
    """
    found = set[int]()
    for later, (kind, arguments) in enumerate(commands):
        if kind not in _MAKES:
            continue
        for earlier in range(later + 1, len(commands)):
            before, given = commands[earlier]
            is_same = before == _MAKES[kind] and _made(before, given) == _made(kind, arguments)
            if is_same and earlier not in found:
                found |= {later, earlier}
                break
    return frozenset(found)


_MAKES = {"delete-namespace": "create-namespace", "merge": "split"}
"""What a command takes away → the one that has made it."""


def _made(kind: str, arguments: Mapping[str, Any]) -> tuple[str, ...]:
    """What a command makes or takes away: a namespace, or the range of a bundle."""
    namespace = str(arguments["namespace"])
    if kind == "split":
        return namespace, str(arguments.get("bundle")).lower()
    if kind == "merge" and arguments.get("bundles"):
        low, high = sorted(map(str.lower, arguments["bundles"]))
        return namespace, f"{low.partition('_')[0]}_{high.partition('_')[2]}"
    return (namespace,)


def _parts(order: Order) -> list[Order]:
    """An order as one for each thing that it is about."""
    kind = order["kind"]
    if kind == "set-config":
        values = defaultdict[str, dict[str, Any]](dict)  # a setting under two names is one thing
        for name, value in order["values"].items():
            values[our_name(name, value)][name] = value
        return [{"kind": kind, "values": some} for some in values.values()]
    if kind == "set-policies":
        found: list[Order] = []
        for field, several in order.items():
            if isinstance(several, list):
                found += [{"kind": kind, field: [one]} for one in several]
            elif isinstance(several, dict):
                found += [{"kind": kind, field: {name: value}} for name, value in several.items()]
        return found
    if kind in _NAMED:
        return [order | {_NAMED[kind]: [name]} for name in order[_NAMED[kind]]]
    return [order]


_NAMED = {"pin-bundles": "bundles", "reject-proposals": "proposals"}
"""Kinds of orders about several things of one kind, and the field that names these."""
_SEVERAL = {
    "set-config": {"values"},
    "set-policies": {"isolation", "remove_isolation", "anti_affinity", "failure_domains"},
    **{kind: {name} for kind, name in _NAMED.items()},
}
"""Kinds of orders that have several parts, and the fields that hold them."""


def _subject(order: Order) -> tuple[str, str]:
    """What an order with one part is about: the same for orders that take each other's place."""
    kind = order["kind"]
    match kind:
        case "pause-cluster" | "resume-cluster":
            return "paused", ""
        case "drain-broker" | "undrain-broker":
            return "drained", str(order["broker"])
        case "delete-config":
            return "setting", our_name(order["key"], "")
        case "set-config":
            return "setting", our_name(*next(iter(order["values"].items())))
        case "set-policies":
            ((field, (one,)),) = (own for own in order.items() if own[0] != "kind")
            return ("isolation", _policy_name(one)) if "isolation" in field else (field, str(one))
        case "pin-bundles" | "reject-proposals":
            return str(kind), str(order[_NAMED[kind]][0])
    return str(kind), canonical_json(order)


def _policy_name(one: str | Mapping[str, Any]) -> str:
    """Of an isolation policy that is set (its fields) or removed (its name)."""
    return one if isinstance(one, str) else str(one["name"])


def _is_in_force(order: Order, now: OperatorState, now_ms: int) -> bool:
    match order["kind"]:
        case "pause-cluster" | "resume-cluster":
            return now.paused is (order["kind"] == "pause-cluster")
        case "drain-broker" | "undrain-broker":
            return (order["broker"] in now.drained) is (order["kind"] == "drain-broker")
        case "delete-config":
            return _subject(order)[1] not in {our_name(*one) for one in now.settings.items()}
        case "set-config":
            own = _subject(order)[1]
            held = {name: to for name, to in now.settings.items() if our_name(name, to) == own}
            return bool(held == order["values"])
        case "set-policies":
            return _is_policy_in_force(order, now)
        case "pin-bundles":
            left_ms = max(now.pins.get(order["bundles"][0], 0) - now_ms, 0)
            return bool(left_ms == order["for_ms"])
        case "reject-proposals":
            mine = [
                rejection
                for rejection in now.rejections
                if rejection.proposal_id == order["proposals"][0]
            ]
            left = [(max(rejection.until_ms - now_ms, 0), rejection.why) for rejection in mine]
            wanted = [(order["for_ms"], order["why"])] if order["for_ms"] else []
            return bool(left == wanted)
    return False


def _is_policy_in_force(order: Order, now: OperatorState) -> bool:
    """Of an order with one part."""
    match order:
        case {"isolation": [policy]}:
            return bool(now.isolation.get(policy["name"]) == policy)
        case {"remove_isolation": [name]}:
            return name not in now.isolation
        case {"anti_affinity": groups}:
            return all(now.anti_affinity.get(name) == group for name, group in groups.items())
        case {"failure_domains": domains}:
            return all(now.failure_domains.get(name) == domain for name, domain in domains.items())
    return False


def _joined(orders: Sequence[Order]) -> list[Order]:
    """The orders with their parts in as few commands as can be: settings may only go together.

    Pins and rejections go together where they hold for as long, and say the same.
    """
    found: list[Order] = []
    for order in orders:
        several = _SEVERAL.get(order["kind"], ())
        own = {name: value for name, value in order.items() if name not in several}
        same = [one for one in found if several and own.items() <= one.items()]
        if not same:
            found.append({**order})
            continue
        for name in sorted(order.keys() & several):
            value = order[name]
            if isinstance(value, list):
                same[0][name] = [*same[0].get(name, ()), *value]
            else:
                same[0][name] = {**same[0].get(name, {}), **value}
    return found


def _pause(_: Mapping[str, Any], before: OperatorState, now_ms: int) -> list[Order]:
    return [] if before.paused else [{"kind": "resume-cluster"}]


def _resume(_: Mapping[str, Any], before: OperatorState, now_ms: int) -> list[Order]:
    return [{"kind": "pause-cluster"}] if before.paused else []


def _drain(arguments: Mapping[str, Any], before: OperatorState, now_ms: int) -> list[Order]:
    broker = broker_of(arguments["broker"])
    return [] if broker in before.drained else [{"kind": "undrain-broker", "broker": broker}]


def _undrain(arguments: Mapping[str, Any], before: OperatorState, now_ms: int) -> list[Order]:
    broker = broker_of(arguments["broker"])
    return [{"kind": "drain-broker", "broker": broker}] if broker in before.drained else []


def _settings(names: Sequence[str], before: OperatorState) -> list[Order]:
    """Each setting as a command had set it before, or no longer set by any."""
    had = defaultdict[str, dict[str, Any]](dict)  # one setting may have been set under two names
    for name, value in before.settings.items():
        had[our_name(name, value)][name] = value
    ours = [our_name(name, "") for name in names]
    again = {name: value for own in ours for name, value in had.get(own, {}).items()}
    deleted = [
        {"kind": "delete-config", "key": name}
        for name, own in zip(names, ours, strict=True)
        if own not in had
    ]
    return ([{"kind": "set-config", "values": again}] if again else []) + deleted


def _policies(arguments: Mapping[str, Any], before: OperatorState, now_ms: int) -> list[Order]:
    named = [
        *(one["name"] for one in arguments.get("isolation", ())),
        *arguments.get("remove_isolation", ()),
    ]
    order: Order = {
        "isolation": [dict(before.isolation[name]) for name in named if name in before.isolation],
        "remove_isolation": [name for name in named if name not in before.isolation],
        "anti_affinity": {
            name: before.anti_affinity.get(name) for name in arguments.get("anti_affinity", ())
        },
        "failure_domains": {
            name: before.failure_domains.get(name)
            for name in map(broker_of, arguments.get("failure_domains", ()))
        },
    }
    return [{"kind": "set-policies"} | {name: value for name, value in order.items() if value}]


def _pins(arguments: Mapping[str, Any], before: OperatorState, now_ms: int) -> list[Order]:
    left_ms = defaultdict[int, list[str]](list)
    for name in arguments["bundles"]:
        left_ms[max(before.pins.get(name, 0) - now_ms, 0)].append(name)
    return [
        {"kind": "pin-bundles", "bundles": names, "for_ms": for_ms}
        for for_ms, names in sorted(left_ms.items())
    ]


def _rejections(arguments: Mapping[str, Any], before: OperatorState, now_ms: int) -> list[Order]:
    """What was rejected may be proposed again, or not before the time that somebody had said
    earlier."""
    left_ms = defaultdict[tuple[int, str], list[str]](list)
    had = {rejection.proposal_id: rejection for rejection in before.rejections}
    for name in arguments["proposals"]:
        one = had.get(name)
        left_ms[
            (max(one.until_ms - now_ms, 0), one.why) if one is not None else (0, "undone")
        ].append(name)
    return [
        {"kind": "reject-proposals", "proposals": names, "why": why, "for_ms": for_ms}
        for (for_ms, why), names in left_ms.items()
    ]


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
    # it lays nothing down: its moves are taken back
    "unload": lambda arguments, before, now_ms: [],
    "approve-proposals": lambda arguments, before, now_ms: [],  # the same
}
_INSTEAD = {
    "split": "a split isn't taken back: lbctl namespaces merge makes one bundle of two, where "
    "agents can",
    "merge": "a merge isn't taken back: lbctl namespaces split cuts a bundle",
    "create-namespace": "a namespace stays: lbctl namespaces delete removes it if it has no topics",
    "delete-namespace": "a namespace isn't brought back: lbctl namespaces create makes one of its "
    "name",
    "import-namespaces": "an import isn't taken back: import what was there before",
    "declare-dead": "bundles of brokers that were declared dead have other owners: balancing fills "
    "a broker that comes back",
    "forget-cluster": "what was forgotten is not brought back: a cluster that reports begins anew",
    "assign": "a bundle that was given an owner had none before",
}
