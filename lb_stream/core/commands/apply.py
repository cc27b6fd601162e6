"""Commands that set operators' state: pauses, drained brokers, namespaces, policies.

See docs/commands.md "How a command is answered".
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from lb_stream.contracts.decisions import Decision
from lb_stream.core.commands.base import Effect, StateCommand, broker_of, named, refused
from lb_stream.core.commands.proposal_book import ProposalBook
from lb_stream.core.commands.responder import CommandResponder, Received
from lb_stream.core.config.cluster_config import ClusterConfig
from lb_stream.core.model.memory import Pending, bound_for
from lb_stream.core.model.names import is_system_bundle, namespace_of
from lb_stream.core.model.operator_state import OperatorState, WaitingCommand, isolation_policy
from lb_stream.core.model.policies import describe_matches, host_of
from lb_stream.core.model.releases import NAME_RULES
from lb_stream.core.model.rollout import RolloutProgress
from lb_stream.core.model.view import Bools, ClusterView
from lb_stream.core.observing.gone import count_topics
from lb_stream.core.observing.known_bundles import (
    add_unassigned_bundles,
    compact_boundaries,
    find_missing_bundles,
)
from lb_stream.core.observing.liveness import find_silent


def apply_state_commands(
    responder: CommandResponder,
    view: ClusterView,
    commands: Iterable[Received],
    config: ClusterConfig,
) -> tuple[Received, ...]:
    """Apply the commands that set operators' state. Returns the other commands."""
    rest = []
    for received in responder.new(commands):
        command = received.command
        if isinstance(command, StateCommand):
            context = CommandContext(responder, received, view, config)
            responder.take(received, command.apply(context))
        else:
            rest.append(received)
    return tuple(rest)


@dataclass(frozen=True, slots=True)
class CommandContext:
    """The input of a command that sets state: the cluster as reported, its settings, its state."""

    responder: CommandResponder
    received: Received
    view: ClusterView
    config: ClusterConfig

    @property
    def operator_state(self) -> OperatorState:
        """Return the operators' state, with earlier commands of the batch applied."""
        return self.responder.operator_state

    @property
    def book(self) -> ProposalBook:
        """Return the cluster's proposals."""
        return self.responder.book

    @property
    def rollout(self) -> RolloutProgress | None:
        """Return how far the last round has seen the rollout that is on; None: none was on."""
        return self.responder.rollout

    @property
    def by(self) -> str:
        """Return the name of the command's sender."""
        return str(self.received.head["by"])

    @property
    def declared_dead(self) -> frozenset[str]:
        """Return the brokers that commands of this batch have declared dead."""
        return self.responder.declared

    def describe_pending(self) -> str:
        """Describe how many earlier decisions go on: the end of a sentence."""
        return self.responder.describe_pending()

    def describe_queued(self) -> str:
        """Describe how many queued moves go on: the end of a sentence."""
        return self.responder.describe_queued()

    # brokers

    def unknown_broker(self, broker: str) -> Effect:
        """Refuse a command about a broker that has never reported."""
        known = named(self.view.brokers.names)
        return refused("unknown_broker", f"no broker {broker} has reported; there are {known}")

    def silent_brokers(self) -> tuple[str, ...]:
        """Return the brokers that have been silent for too long."""
        return self._named_brokers(find_silent(self.view, self.config.balancer))

    def speaking_brokers(self) -> tuple[str, ...]:
        """Return the brokers that are neither silent nor departed."""
        quiet = find_silent(self.view, self.config.balancer) | self.view.brokers.left
        return self._named_brokers(~quiet)

    def _named_brokers(self, wanted: Bools) -> tuple[str, ...]:
        rows = np.flatnonzero(wanted).tolist()
        return tuple(self.view.brokers.names[row] for row in rows)

    # bundles

    def bundles_at(self, broker: str) -> list[str]:
        """Return the bundles of a broker, without its system bundles."""
        return served_by(self.view, self.view.brokers.names.index(broker))

    def bundles_bound_for(self, broker: str) -> set[str]:
        """Return the bundles that pending decisions send to a broker, and that it doesn't have."""
        return bound_for(broker, self.responder.pending).difference(self.bundles_at(broker))

    def unknown_bundles(self, bundles: Sequence[str]) -> list[str]:
        """Return those of the bundles that no report names."""
        rows = self.view.bundles.rows_of(bundles).tolist()
        return [name for name, row in zip(bundles, rows, strict=True) if row < 0]

    # namespaces

    def is_system_namespace(self, namespace: str) -> bool:
        """Return whether a namespace of this name holds heartbeats or SLA monitors of brokers."""
        release = self.config.balancer.pulsar_names
        return is_system_bundle(f"{namespace}/0x00000000_0xffffffff", release)

    def find_name_error(self, namespace: str) -> str | None:
        """Describe why the cluster's release has no namespace of this name; None: it may have."""
        rules = NAME_RULES[self.config.balancer.pulsar_names]
        if rules.is_namespace(namespace):
            return None
        parts = "<tenant>/<namespace>"
        return f"not a namespace: {namespace!r}; expected {parts}, {rules.describe_namespace()}"

    def has_bundles(self, namespace: str) -> bool:
        """Return whether a bundle of a namespace is known."""
        return count_bundles(self.view, namespace) > 0

    def count_topics(self, namespace: str) -> int:
        """Return how many topics a namespace has."""
        return count_topics(self.view, self.view.bundles.rows_of_namespace(namespace))

    def bundles_left(self, namespace: str) -> set[str]:
        """Return the bundles of a namespace that a broker has, or a pending decision is about."""
        return served_of(self.view, namespace) | about_namespace(namespace, self.responder.pending)

    def compact(self, boundaries: list[int]) -> int | list[int]:
        """Return a namespace's boundaries, or its number of bundles if these are equally large."""
        return compact_boundaries(boundaries)

    # policies

    def explain_malformed(self, policies: Mapping[str, Mapping[str, Any]]) -> str | None:
        """Explain what is wrong with the first invalid isolation policy; None: all are valid."""
        try:
            for policy in policies.values():
                isolation_policy(policy).check()
        except ValueError as error:
            return str(error)
        return None

    def describe_matches(
        self,
        isolation: Mapping[str, Mapping[str, Any]],
        names: Iterable[str],
        domains: Mapping[str, str | None],
    ) -> str:
        """Describe how many live brokers each of these policies matches: the end of a sentence.

        Warn of brokers in `domains` (broker → failure domain) that don't live.
        """
        quiet = set(self.silent_brokers())
        live = [name for name in self.view.brokers.names if name not in quiet]
        found = list[str]()
        for name in names:
            policy = isolation_policy(isolation[name])
            found += describe_matches(name, policy, live, self.config.balancer.isolation_by_port)
        known = {*live, *map(host_of, live)}
        wanted = [broker_of(broker) for broker, domain in domains.items() if domain]
        absent = [broker for broker in wanted if broker not in known]
        if absent:
            found.append(f"warning: failure domains name {named(absent)}, which are not alive")
        found.sort(key=lambda text: not text.startswith("warning"))
        return "".join(f"; {text}" for text in found)


def apply_operator_state(
    view: ClusterView,
    operator_state: OperatorState,
    wanted: bool = True,
    begun: Collection[str] = (),
) -> ClusterView:
    """Return the view with operators' policies.

    `wanted`: bundles of the operators' namespaces that no report has named are added, unassigned.
    `begun`: brokers that a rollout has begun, which count as drained.
    """
    if wanted:
        missing = find_missing_bundles(view, operator_state.namespaces)
        view = add_unassigned_bundles(view, missing)
    if operator_state == OperatorState():
        return view
    policies = operator_state.policies(view.policies)
    return replace(view, policies=replace(policies, drained=policies.drained | frozenset(begun)))


def forget_ended(responder: CommandResponder, view: ClusterView) -> None:
    """Forget deleted namespaces without bundles, and pins and rejections whose time is over."""
    # A decision may be pending about a bundle that no report has named.
    left = tuple(
        name
        for name in responder.operator_state.deleted
        if count_bundles(view, name) or about_namespace(name, responder.pending)
    )
    if left != responder.operator_state.deleted:
        responder.change(deleted=left)
    if any(until_ms <= view.now_ms for until_ms in responder.operator_state.pins.values()):
        responder.change(
            pins={
                name: until_ms
                for name, until_ms in responder.operator_state.pins.items()
                if until_ms > view.now_ms
            }
        )
    if any(held.until_ms <= view.now_ms for held in responder.operator_state.rejections):
        responder.change(
            rejections=tuple(
                held for held in responder.operator_state.rejections if held.until_ms > view.now_ms
            )
        )


def destination_of(waiting: WaitingCommand) -> str | None:
    """Return the broker that a command moves bundles to, as in its reports; None: any."""
    given = waiting.command["arguments"].get("destination")
    return None if given is None else broker_of(given)


def served_by(view: ClusterView, broker: int) -> list[str]:
    """Return the bundles of the broker in that row, without its system bundles."""
    mine = (view.bundles.owner == broker) & ~view.bundles.system
    names: list[str] = view.bundles.names.filter(pa.array(mine)).to_pylist()
    return names


def served_of(view: ClusterView, namespace: str) -> set[str]:
    """Return the bundles of a namespace that have an owner."""
    rows = view.bundles.rows_of_namespace(namespace)
    return set(view.bundles.names[rows].filter(pa.array(view.bundles.owner[rows] >= 0)).to_pylist())


def about_namespace(namespace: str, decisions: Iterable[Pending | Decision]) -> set[str]:
    """Return the bundles of a namespace that these decisions are about."""
    return {
        name
        for decision in decisions
        for name in decision.bundles
        if namespace_of(name) == namespace
    }


def count_bundles(view: ClusterView, namespace: str) -> int:
    """Return how many bundles of a namespace are known."""
    rows = view.bundles.rows_of_namespace(namespace)
    return int(rows.stop - rows.start)
