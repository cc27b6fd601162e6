"""Evaluate one shadow in a round: what it decides on its own view, and the loads that follow.

Pure, as `decide` is: the same arguments give the same result.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from lb_stream.contracts.decisions import MOVES, Decision
from lb_stream.core.config.cluster_config import ClusterConfig
from lb_stream.core.model.memory import Memory
from lb_stream.core.model.operator_state import OperatorState
from lb_stream.core.model.resources import max_weighted_usage
from lb_stream.core.model.view import ClusterView
from lb_stream.core.round.decide import Inbox, Round, decide
from lb_stream.core.shadow.hypothetical_view import (
    Elsewhere,
    count_elsewhere,
    hypothetical_view,
    max_and_mean,
    still_held,
)

REAL = "real"
"""The name of the cluster's own policy, beside the names of shadows."""

Entry = dict[str, object]
"""A policy in a round: columns of `shadow_rounds`; under `decisions`, a shadow's decisions."""


@dataclass(frozen=True, slots=True)
class ShadowInput:
    """A round that was decided, which shadows decide beside it."""

    view: ClusterView  # as reported
    made: Round
    config: ClusterConfig  # the round's settings
    # A shadow's own settings → all settings that it runs with. Raises SettingError.
    shadow_config: Callable[[Mapping[str, object]], ClusterConfig]
    caught_up: bool
    hold_ms: int  # how long a shadow's move counts as carried out


@dataclass(frozen=True, slots=True)
class ShadowMemory:
    """What a shadow remembers from round to round."""

    own: Mapping[str, object]  # its settings; with other ones its memory is dropped
    memory: Memory
    elsewhere: Elsewhere = field(default_factory=dict)

    @staticmethod
    def begin(own: Mapping[str, object], real: Memory) -> ShadowMemory:
        """Return a shadow's memory before its first round.

        It has what the cluster's policy knows of brokers, of its last moves and of passes.
        """
        memory = Memory(
            seq=real.seq,
            epoch=real.epoch,
            first_ms=real.first_ms,
            last_shed_ms=real.last_shed_ms,
            recently_unloaded=real.recently_unloaded,
            unloaded_brokers=real.unloaded_brokers,
            spent=real.spent,
            dead=real.dead,
            suspension=real.suspension,
            unsteady_ms=real.unsteady_ms,
            published_to=None,
        )
        return ShadowMemory(own, memory)

    def without_moves_of(self, shadow_input: ShadowInput) -> ShadowMemory:
        """Return the memory with bundles held that the cluster's own shedder moves in this round.

        They stay at their sources in the shadow's view, since the moves are not the shadow's.
        """
        decisions, now_ms = shadow_input.made.decisions, shadow_input.view.now_ms
        if not decisions:
            return self
        held = {
            move.bundle: (move.source, now_ms)
            for move in _moves_of_shedder(decisions, shadow_input.config.shedder.name)
            if not move.dry_run and move.source is not None and move.bundle not in self.elsewhere
        }
        return replace(self, elsewhere={**self.elsewhere, **held})


def evaluate_shadow(shadow_input: ShadowInput, shadow: ShadowMemory) -> tuple[ShadowMemory, Entry]:
    """Run a shadow's round on its hypothetical view; return its memory and its entry.

    Its moves are carried out at once, by the load model of pending moves, and hold for `hold_ms`.
    It answers no commands, but what they have set (drains, policies, pauses, settings) counts for
    it, too. Raises SettingError, and what strategies raise.
    """
    # Its round, on the view with the moves that it holds.
    view, operator_state = shadow_input.view, shadow_input.made.memory.operator_state
    config = shadow_input.shadow_config(shadow.own)
    held = still_held(view, shadow.elsewhere, shadow_input.hold_ms, operator_state.deleted)
    before = hypothetical_view(view, held)
    memory = replace(
        shadow.memory,
        epoch=shadow_input.made.memory.epoch,
        operator_state=replace(operator_state, settings={}, answers=(), waiting=()),
    )
    made = decide(before, memory, Inbox(caught_up=shadow_input.caught_up), config)
    # The view that its decisions lead to.
    moved = ((decision.bundle, decision.destination or "") for decision in made.decisions)
    held |= {bundle: (destination, view.now_ms) for bundle, destination in moved}
    held = still_held(view, held, shadow_input.hold_ms, operator_state.deleted)
    after = hypothetical_view(view, held)
    # The usages before and after, by the weights of the real round.
    active, weights = shadow_input.made.view.active, shadow_input.made.view.brokers.weights
    used_before = max_weighted_usage(before.brokers.resources, weights)
    used_after = max_weighted_usage(after.brokers.resources, weights)
    entry = _entry(made, config, view) | {
        "elsewhere": count_elsewhere(view, held),
        "before_max_ratio": max_and_mean(used_before, active)[0],
        "decisions": list(_decision_entries(made, view)),
    }
    entry["max_ratio"], entry["mean_ratio"] = max_and_mean(used_after, active)
    return ShadowMemory(shadow.own, _own_memory(made.memory), held), entry


def real_entry(shadow_input: ShadowInput) -> Entry:
    """Return the entry of the cluster's own policy, which shadows are compared with."""
    view, made = shadow_input.view, shadow_input.made
    config = shadow_input.config
    brokers, bundles = made.view.brokers, view.bundles
    usage = max_weighted_usage(view.brokers.resources, brokers.weights)
    max_usage, mean = max_and_mean(usage, made.view.active)
    arrived = bundles.gained & ~bundles.appeared & (bundles.owner >= 0) & ~bundles.system
    return _entry(made, config, view) | {
        "policy": REAL,
        "detail": "dry run" if config.balancer.dry_run else "",
        "arrived": int(np.count_nonzero(arrived)),
        "before_max_ratio": max_usage,
        "max_ratio": max_usage,
        "mean_ratio": mean,
    }


def _entry(made: Round, config: ClusterConfig, view: ClusterView) -> Entry:
    """Return the part of an entry that all policies share."""
    moves = [decision.bundle for decision in _moves_of_shedder(made.decisions, config.shedder.name)]
    return {
        "outcome": "done",
        "strategies": f"{config.shedder.name} + {config.placement.name}",
        "shed": made.memory.last_shed_ms == view.now_ms,
        "moves": len(moves),
        "assignments": sum(decision.kind == "assign" for decision in made.decisions),
        "moved_bytes_per_s": float(
            view.bundles.short.throughput[view.bundles.rows_of(moves)].sum()
        ),
        "refused_by": sorted({refusal.rule for refusal in made.refusals}),
    }


def _moves_of_shedder(decisions: tuple[Decision, ...], shedder: str) -> Iterator[Decision]:
    """Yield the moves that a shedder wanted; not those of commands, drains and splits."""
    return (
        decision
        for decision in decisions
        if decision.kind in MOVES and decision.strategy == shedder
    )


def _decision_entries(made: Round, view: ClusterView) -> Iterator[Entry]:
    """Yield the decisions of a shadow's round as the log keeps them."""
    rows = view.bundles.rows_of(decision.bundle for decision in made.decisions).tolist()
    throughput = view.bundles.short.throughput
    for decision, row in zip(made.decisions, rows, strict=True):
        yield {
            "kind": decision.kind,
            "bundle": decision.bundle,
            "source": decision.source,
            "destination": decision.destination,
            "reason": decision.reason,
            "rule": decision.rule,
            "strategy": decision.strategy,
            "saw": decision.explain.saw,
            "limit": decision.explain.limit,
            "unit": decision.explain.unit,
            "bytes_per_s": float(throughput[row]) if row >= 0 else None,
        }


def _own_memory(memory: Memory) -> Memory:
    """Return a memory without operators' state and ownership records, which shadows don't keep."""
    return replace(
        memory,
        operator_state=OperatorState(),
        versions={},
        unserved={},
        unpublished=(),
        published_to=None,
    )
