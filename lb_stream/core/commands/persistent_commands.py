"""Commands whose effect stays: pauses, drained brokers, namespaces, policies.

See docs/commands.md "How a command is answered".
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

import pyarrow as pa

from lb_stream.contracts.commands import (
    MOST_PINS,
    CreateNamespace,
    DeclareDead,
    DeleteNamespace,
    DrainBroker,
    ForgetCluster,
    ImportNamespaces,
    PauseCluster,
    PinBundles,
    RejectProposals,
    ResumeCluster,
    SetPolicies,
    UndrainBroker,
)
from lb_stream.contracts.decisions import Decision
from lb_stream.core.commands.proposals import reject
from lb_stream.core.commands.responder import CommandResponder, Received, named
from lb_stream.core.config.cluster_config import ClusterConfig
from lb_stream.core.model.memory import Pending, bound_for
from lb_stream.core.model.names import is_system_bundle, namespace_of
from lb_stream.core.model.operator_state import OperatorState, Waiting, isolation_policy
from lb_stream.core.model.policies import describe_matches, host_of
from lb_stream.core.model.view import ClusterView
from lb_stream.core.observing.gone import topics_of
from lb_stream.core.observing.known_bundles import compact, missing, with_bundles
from lb_stream.core.observing.liveness import silent


def obey_standing(
    desk: CommandResponder, view: ClusterView, commands: Iterable[Received], config: ClusterConfig
) -> tuple[Received, ...]:
    """Do the commands whose effect stays. Returns the others, which are still to be done."""
    rest = []
    for received in desk.new(commands):
        command = received.command
        action = _ACTIONS.get(type(command))
        if action is None:
            rest.append(received)
        else:
            action(desk, received, command, view, config)
    return tuple(rest)


def apply_operator_state(
    view: ClusterView, orders: OperatorState, wanted: bool = True
) -> ClusterView:
    """The view with the orders' policies, and with the bundles of their namespaces that it lacks,
    if these are wanted."""
    view = with_bundles(view, missing(view, orders.namespaces)) if wanted else view
    return (
        view
        if orders == OperatorState()
        else replace(view, policies=orders.policies(view.policies))
    )


def forget_ended(desk: CommandResponder, view: ClusterView) -> None:
    """Forget deleted namespaces that nothing is left of, pins and rejections whose time is over.

    A bundle that is not known yet may be on its way to its first owner.
    """
    left = tuple(
        name
        for name in desk.orders.deleted
        if _size(view, name) or about_namespace(name, desk.pending)
    )
    if left != desk.orders.deleted:
        desk.change(deleted=left)
    if any(until_ms <= view.now_ms for until_ms in desk.orders.pins.values()):
        desk.change(
            pins={
                name: until_ms
                for name, until_ms in desk.orders.pins.items()
                if until_ms > view.now_ms
            }
        )
    if any(rejection.until_ms <= view.now_ms for rejection in desk.orders.rejections):
        desk.change(
            rejections=tuple(
                rejection
                for rejection in desk.orders.rejections
                if rejection.until_ms > view.now_ms
            )
        )


def broker_of(given: str) -> str:
    """A broker's name as reports have it: a scheme before it, and what follows the port, are left
    out."""
    return given.rpartition("://")[2].strip("/")


def destination_of(waiting: Waiting) -> str | None:
    """The broker that is to have a command's bundles, as its reports name it; None: any."""
    given = waiting.command["arguments"].get("destination")
    return None if given is None else broker_of(given)


def served_by(view: ClusterView, broker: int) -> list[str]:
    """List the bundles of the broker in that row, without those that stay (heartbeats)."""
    mine = (view.bundles.owner == broker) & ~view.bundles.system
    names: list[str] = view.bundles.names.filter(pa.array(mine)).to_pylist()
    return names


def served_of(view: ClusterView, namespace: str) -> set[str]:
    """Find the bundles of a namespace that have an owner."""
    rows = view.bundles.rows_of_namespace(namespace)
    return set(view.bundles.names[rows].filter(pa.array(view.bundles.owner[rows] >= 0)).to_pylist())


def about_namespace(namespace: str, decisions: Iterable[Pending | Decision]) -> set[str]:
    """Find the bundles of a namespace that decisions under way are about."""
    return {
        name
        for decision in decisions
        for name in decision.bundles
        if namespace_of(name) == namespace
    }


def _size(view: ClusterView, namespace: str) -> int:
    rows = view.bundles.rows_of_namespace(namespace)
    return int(rows.stop - rows.start)


def _pause(
    desk: CommandResponder,
    received: Received,
    command: PauseCluster,
    view: ClusterView,
    config: ClusterConfig,
) -> None:
    text = "paused: nothing is shed or split until it is resumed"
    text = "paused already" if desk.orders.paused else text
    desk.answer(received, "done", text + desk.still_under_way() + desk.still_queued())
    desk.change(paused=True)


def _resume(
    desk: CommandResponder,
    received: Received,
    command: ResumeCluster,
    view: ClusterView,
    config: ClusterConfig,
) -> None:
    desk.answer(received, "done", "resumed" if desk.orders.paused else "was not paused")
    desk.change(paused=False)


def _drain(
    desk: CommandResponder,
    received: Received,
    command: DrainBroker,
    view: ClusterView,
    config: ClusterConfig,
) -> None:
    broker = broker_of(command.broker)
    if broker not in view.brokers.names:
        desk.answer(
            received,
            "refused",
            f"no broker {broker} has reported; there are {named(view.brokers.names)}",
            "unknown_broker",
        )
        return
    begun = broker in desk.orders.drained
    desk.change(drained=tuple(sorted({*desk.orders.drained, broker})))
    row = view.brokers.names.index(broker)
    serves = served_by(view, row)
    arriving = bound_for(broker, desk.pending).difference(serves)
    if config.balancer.dry_run:
        stay = f"its {len(serves)} stay because decisions aren't published"
        desk.answer(received, "done", f"dry run: {broker} takes no bundle, and {stay}")
    elif not serves and not arriving:
        text = f"{broker} has no bundle, and takes none from now on"
        text = f"{broker} is being drained already, and has no bundle" if begun else text
        desk.answer(received, "done", text)
    else:
        text = f"{broker} takes none from now on"
        if serves:
            text = f"{len(serves)} bundles leave {broker}, and it takes none from now on"
        if arriving:
            text += f"; {len(arriving)} on their way to it leave it again"
        text = f"{broker} is being drained already; {text}" if begun else text
        desk.answer(received, "accepted", text)
        desk.change(waiting=(*desk.orders.waiting, Waiting(received.head, text, broker=broker)))


def _undrain(
    desk: CommandResponder,
    received: Received,
    command: UndrainBroker,
    view: ClusterView,
    config: ClusterConfig,
) -> None:
    broker = broker_of(command.broker)
    if broker not in desk.orders.drained:
        text = f"{broker} is not being drained; those that are: {named(desk.orders.drained)}"
        desk.answer(
            received,
            "refused",
            text,
            "unknown_broker" if broker not in view.brokers.names else "not_drained",
        )
        return
    desk.change(drained=tuple(name for name in desk.orders.drained if name != broker))
    desk.undrained |= {broker}
    desk.answer(received, "done", f"{broker} may take bundles again")


def _pin(
    desk: CommandResponder,
    received: Received,
    command: PinBundles,
    view: ClusterView,
    config: ClusterConfig,
) -> None:
    unknown = [
        name
        for name, row in zip(
            command.bundles, view.bundles.rows_of(command.bundles).tolist(), strict=True
        )
        if row < 0
    ]
    if not command.for_ms:
        free = [name for name in dict.fromkeys(command.bundles) if name in desk.orders.pins]
        desk.change(
            pins={name: until_ms for name, until_ms in desk.orders.pins.items() if name not in free}
        )
        desk.answer(received, "done", f"no longer pinned: {named(free)}")
        return
    pins = {**desk.orders.pins, **dict.fromkeys(command.bundles, view.now_ms + command.for_ms)}
    if unknown:
        text = (
            f"no report names {named(unknown)}: lbctl namespaces bundles TENANT/NAMESPACE shows "
            "those that are known"
        )
        desk.answer(received, "refused", text, "unknown_bundle")
    elif len(pins) > MOST_PINS:
        text = (
            f"{len(desk.orders.pins)} bundles are pinned, {MOST_PINS} at most: exclude a "
            "namespace (shedding_excluded_namespaces)"
        )
        desk.answer(received, "refused", text, "too_many_pins")
    else:
        desk.change(pins=dict(sorted(pins.items())))
        desk.answer(
            received,
            "done",
            f"balancing leaves where they are for {command.for_ms / 60_000:g} min: "
            f"{named(command.bundles)}",
        )


def _declare_dead(
    desk: CommandResponder,
    received: Received,
    command: DeclareDead,
    view: ClusterView,
    config: ClusterConfig,
) -> None:
    overdue = silent(view, config.balancer)
    names = [name for name, late in zip(view.brokers.names, overdue.tolist(), strict=True) if late]
    broker = None if command.broker is None else broker_of(command.broker)
    if broker is not None and broker not in view.brokers.names:
        desk.answer(
            received,
            "refused",
            f"no broker {broker} has reported; there are {named(view.brokers.names)}",
            "unknown_broker",
        )
    elif not names or broker not in (None, *names):
        text = (
            f"{broker or 'every broker'} has been heard lately; silent for too long are "
            f"{named(names)}: drain a broker that speaks"
        )
        desk.answer(received, "refused", text, "speaks")
    else:
        desk.declared |= frozenset(names if broker is None else [broker])
        desk.answer(
            received,
            "done",
            f"taken for dead: {named(sorted(desk.declared))}; their bundles go to others",
        )


def _forget(
    desk: CommandResponder,
    received: Received,
    command: ForgetCluster,
    view: ClusterView,
    config: ClusterConfig,
) -> None:
    """Answer it; the job forgets the cluster in its next batch, by this answer in the log."""
    speaks = ~(silent(view, config.balancer) | view.brokers.left)
    names = [name for name, heard in zip(view.brokers.names, speaks.tolist(), strict=True) if heard]
    if names:
        have = "have" if len(names) > 1 else "has"
        text = (
            f"{named(names)} of it {have} been heard lately: a cluster "
            "that reports would be known again at once. Stop its agents, or give them the right "
            "cluster's name; wait until their brokers are silent, then try again"
        )
        desk.answer(received, "refused", text, "reports")
        return
    brokers, bundles = len(view.brokers), len(view.bundles)
    text = f"forgotten with {brokers} brokers, {bundles} bundles, and all that was ordered"
    desk.answer(received, "done", text)


def _create(
    desk: CommandResponder,
    received: Received,
    command: CreateNamespace,
    view: ClusterView,
    config: ClusterConfig,
) -> None:
    name, orders = command.namespace, desk.orders
    if is_system_bundle(f"{name}/0x00000000_0xffffffff"):
        desk.answer(
            received,
            "refused",
            f"{name} would be a heartbeat or SLA-monitor namespace: brokers make those",
            "system_namespace",
        )
    elif name in orders.deleted:
        desk.answer(
            received,
            "refused",
            f"{name} is being deleted: try again when none of its bundles is known any more",
            "being_deleted",
        )
    elif name in orders.namespaces or _size(view, name):
        desk.answer(received, "refused", f"there is a namespace {name} already", "namespace_exists")
    else:
        count = command.bundles or config.splitting.namespace_default_bundles
        desk.change(namespaces={**orders.namespaces, name: count})
        desk.answer(received, "done", f"{name} has {count} bundle{'s' if count > 1 else ''}")


def _delete(
    desk: CommandResponder,
    received: Received,
    command: DeleteNamespace,
    view: ClusterView,
    config: ClusterConfig,
) -> None:
    name, orders = command.namespace, desk.orders
    rows = view.bundles.rows_of_namespace(name)
    topics = topics_of(view, rows)
    if name not in orders.namespaces and rows.start == rows.stop:
        desk.answer(received, "refused", f"there is no namespace {name}", "unknown_namespace")
    elif topics:
        desk.answer(
            received,
            "refused",
            f"{name} has {topics} topics: delete these first",
            "namespace_not_empty",
        )
    else:
        kept = {other: cut for other, cut in orders.namespaces.items() if other != name}
        left = served_of(view, name) | about_namespace(name, desk.pending)
        desk.change(namespaces=kept, deleted=tuple(sorted({*orders.deleted, name})))
        text = f"{name} is deleted"
        text += f"; its {len(left)} bundles leave their brokers" if left else ""
        if not left or config.balancer.dry_run:
            desk.answer(received, "done", text)
        else:
            desk.answer(received, "accepted", text)
            desk.change(waiting=(*desk.orders.waiting, Waiting(received.head, text)))


def _import(
    desk: CommandResponder,
    received: Received,
    command: ImportNamespaces,
    view: ClusterView,
    config: ClusterConfig,
) -> None:
    content, orders = command.content, desk.orders
    isolation = {policy.name: policy.model_dump(mode="json") for policy in content.isolation}
    if _malformed(desk, received, isolation):
        return
    groups = {
        name: group
        for name, group in orders.anti_affinity.items()
        if name not in {namespace.name for namespace in content.namespaces}
    }
    desk.change(
        namespaces={
            **orders.namespaces,
            **{namespace.name: compact(namespace.boundaries) for namespace in content.namespaces},
        },
        anti_affinity=groups
        | {
            namespace.name: namespace.anti_affinity_group
            for namespace in content.namespaces
            if namespace.anti_affinity_group
        },
        isolation=isolation,
        failure_domains=content.failure_domains,
        deleted=tuple(
            name
            for name in orders.deleted
            if name not in {namespace.name for namespace in content.namespaces}
        ),
    )
    bundles = sum(len(namespace.boundaries) - 1 for namespace in content.namespaces)
    text = (
        f"{len(content.namespaces)} namespaces with {bundles} bundles, {len(isolation)} "
        "isolation policies, "
    )
    text += f"{len(content.failure_domains)} brokers in failure domains"
    text += _describe_matches(desk, view, config, isolation, content.failure_domains)
    desk.answer(received, "done", text)


def _set_policies(
    desk: CommandResponder,
    received: Received,
    command: SetPolicies,
    view: ClusterView,
    config: ClusterConfig,
) -> None:
    orders = desk.orders
    unknown = [name for name in command.remove_isolation if name not in orders.isolation]
    if unknown:
        text = f"there is no isolation policy {named(unknown)}; there are {named(orders.isolation)}"
        desk.answer(received, "refused", text, "unknown_policy")
        return
    given = {policy.name: policy.model_dump(mode="json") for policy in command.isolation}
    if _malformed(desk, received, given):
        return
    isolation = {
        name: policy
        for name, policy in orders.isolation.items()
        if name not in command.remove_isolation
    } | given
    desk.change(
        isolation=isolation,
        anti_affinity=_changed(orders.anti_affinity, command.anti_affinity),
        failure_domains=_changed(
            orders.failure_domains,
            {broker_of(name): domain for name, domain in command.failure_domains.items()},
        ),
    )
    after = desk.orders
    text = (
        f"in force: isolation policies {named(after.isolation)}; {len(after.anti_affinity)} "
        "namespaces in anti-affinity groups"
    )
    note = (
        ""
        if not after.failure_domains or config.balancer.failure_domains_enabled
        else ", which count only with failureDomainsEnabled"
    )
    text += f"; {len(after.failure_domains)} brokers in failure domains{note}"
    text += _describe_matches(desk, view, config, given, command.failure_domains)
    desk.answer(received, "done", text)


def _describe_matches(
    desk: CommandResponder,
    view: ClusterView,
    config: ClusterConfig,
    isolation: Iterable[str],
    domains: Mapping[str, str | None],
) -> str:
    """How many live brokers each policy matches, and which brokers of domains aren't there."""
    late = silent(view, config.balancer).tolist()
    live = [name for name, gone in zip(view.brokers.names, late, strict=True) if not gone]
    policies = {name: isolation_policy(desk.orders.isolation[name]) for name in isolation}
    found = list[str]()
    for name, policy in policies.items():
        found += describe_matches(name, policy, live)
    known = {*live, *map(host_of, live)}
    wanted = [broker_of(broker) for broker, domain in domains.items() if domain]
    missing = [broker for broker in wanted if broker not in known]
    if missing:
        found.append(f"warning: failure domains name {named(missing)}, and no such broker lives")
    found.sort(key=lambda text: not text.startswith("warning"))
    return "".join(f"; {text}" for text in found)


def _malformed(
    desk: CommandResponder, received: Received, policies: dict[str, dict[str, Any]]
) -> bool:
    try:
        for policy in policies.values():
            isolation_policy(policy).check()
    except ValueError as error:
        desk.answer(received, "refused", str(error), "not_an_expression")
        return True
    return False


def _changed(before: Any, changes: dict[str, str | None]) -> dict[str, str]:
    merged = {**before, **changes}
    return {name: value for name, value in merged.items() if value}


_ACTIONS: dict[
    type, Callable[[CommandResponder, Received, Any, ClusterView, ClusterConfig], None]
] = {
    PauseCluster: _pause,
    ResumeCluster: _resume,
    DrainBroker: _drain,
    UndrainBroker: _undrain,
    PinBundles: _pin,
    RejectProposals: reject,
    DeclareDead: _declare_dead,
    ForgetCluster: _forget,
    CreateNamespace: _create,
    DeleteNamespace: _delete,
    ImportNamespaces: _import,
    SetPolicies: _set_policies,
}
