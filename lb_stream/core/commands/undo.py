"""What takes back what an operator's command has laid down: commands that lay down what was in force before it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

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
    "assign": "a bundle that was given an owner had none before",
}
