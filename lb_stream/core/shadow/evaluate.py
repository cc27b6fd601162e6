"""Evaluate one shadow in a round: what it would decide on its own view, and what would follow.

Pure, as `decide` is: the same arguments give the same result.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

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
"""Stands beside the shadows' names for the cluster's own policy."""

Entry = dict[str, Any]
"""What the log says of one policy in one round (columns of `shadow_rounds`), and under `decisions`
what a shadow would have decided."""


@dataclass(frozen=True, slots=True)
class ShadowInput:
    """The input of shadows: a round that was decided.

    `view`: as reported; `config`: the round's settings; `shadow_config`: a shadow's own settings →
    all settings that it runs with (raises SettingError).
    """

    view: ClusterView
    made: Round
    config: ClusterConfig
    shadow_config: Callable[[Mapping[str, Any]], ClusterConfig]
    caught_up: bool
    hold_ms: int  # how long a shadow's move counts as carried out


@dataclass(frozen=True, slots=True)
class ShadowMemory:
    """What a shadow remembers. `own`: its settings; with other ones it begins anew."""

    own: Mapping[str, Any]
    memory: Memory
    elsewhere: Elsewhere = field(default_factory=dict)

    @staticmethod
    def begin(own: Mapping[str, Any], real: Memory) -> ShadowMemory:
        """Before its first round: it knows what the cluster's policy knows of brokers, of its last
        moves, and when it is due."""
        known = (
            *(
                "seq",
                "epoch",
                "first_ms",
                "last_shed_ms",
                "recently_unloaded",
                "unloaded_brokers",
                "spent",
            ),
            *("dead", "suspension", "unsteady_ms"),
        )
        return ShadowMemory(
            own, Memory(published_to=None, **{name: getattr(real, name) for name in known})
        )

    def without_moves_of(self, shadow_input: ShadowInput) -> ShadowMemory:
        """With the bundles where they are that the cluster's own shedder moves in this round: those
        moves are not the shadow's."""
        if shadow_input.made.decisions:
            shedder = shadow_input.config.shedder.name
            moves = (
                one
                for one in _moves_of_shedder(shadow_input.made.decisions, shedder)
                if not one.dry_run and one.source is not None
            )
            stay = {
                move.bundle: (str(move.source), shadow_input.view.now_ms)
                for move in moves
                if move.bundle not in self.elsewhere
            }
            return replace(self, elsewhere={**self.elsewhere, **stay})
        return self


def evaluate_shadow(shadow_input: ShadowInput, shadow: ShadowMemory) -> tuple[ShadowMemory, Entry]:
    """Run a shadow's round on its hypothetical view; return its memory and its entry.

    Its moves are carried out at once, by the load model of moves in flight, and stay so for
    `hold_ms`. Commands are not its own to answer; what they have laid down (drains, policies,
    pauses, settings) counts for it too. Raises SettingError, and what strategies raise.
    """
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
    held |= {
        decision.bundle: (decision.destination or "", view.now_ms) for decision in made.decisions
    }
    held = still_held(view, held, shadow_input.hold_ms, operator_state.deleted)
    after = hypothetical_view(view, held)
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
    """The cluster's own policy in this round, beside which the shadows' entries stand: what it has
    decided, and what is so."""
    view, made = shadow_input.view, shadow_input.made
    config = shadow_input.config
    brokers, bundles = made.view.brokers, view.bundles
    usage = max_weighted_usage(view.brokers.resources, brokers.weights)
    max_usage, mean = max_and_mean(usage, made.view.active)
    return _entry(made, config, view) | {
        "policy": REAL,
        "detail": "dry run" if config.balancer.dry_run else "",
        "arrived": int(
            np.count_nonzero(
                bundles.gained & ~bundles.appeared & (bundles.owner >= 0) & ~bundles.system
            )
        ),
        "before_max_ratio": max_usage,
        "max_ratio": max_usage,
        "mean_ratio": mean,
    }


def _entry(made: Round, config: ClusterConfig, view: ClusterView) -> Entry:
    """Build the part of an entry that all policies share."""
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
    """The moves that a shedder wanted; not those of operators, drains and splits."""
    return (
        decision
        for decision in decisions
        if decision.kind in MOVES and decision.strategy == shedder
    )


def _decision_entries(made: Round, view: ClusterView) -> Iterator[Entry]:
    rows = view.bundles.rows_of(decision.bundle for decision in made.decisions).tolist()
    for one, row in zip(made.decisions, rows, strict=True):
        columns = {
            name: getattr(one, name)
            for name in ("kind", "bundle", "source", "destination", "reason", "rule", "strategy")
        }
        figures = {"saw": one.explain.saw, "limit": one.explain.limit, "unit": one.explain.unit}
        yield (
            columns
            | figures
            | {"bytes_per_s": float(view.bundles.short.throughput[row]) if row >= 0 else None}
        )


def _own_memory(memory: Memory) -> Memory:
    """Without what is the cluster's, and without ownership records: a shadow has none."""
    return replace(
        memory,
        operator_state=OperatorState(),
        versions={},
        unserved={},
        unpublished=(),
        published_to=None,
    )
