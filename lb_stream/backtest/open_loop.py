"""The open loop: other policies decide the rounds of the log again, and both are compared.

Each round has its recorded view and memory, whatever the policy decided before. Only the memory of
strategies, and when they are due, is the policy's own. So an open loop doesn't show the effects of
a policy (docs/backtest.md).
"""

from __future__ import annotations

import hashlib
import json
import traceback
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from lb_stream.backtest.trial import SHOWN, BacktestRow
from lb_stream.contracts.base import canonical_json
from lb_stream.contracts.decisions import MOVES
from lb_stream.core.config.cluster_config import ClusterConfig
from lb_stream.core.model.memory import Memory
from lb_stream.core.model.operator_state import OperatorState
from lb_stream.core.round.decide import decide
from lb_stream.io.tables.replay import RoundStart
from lb_stream.settings.overrides import without_approval
from lb_stream.settings.resolve import apply_overrides, resolve
from lb_stream.sim.simulation import Policy

OWN_MEMORY = ("strategies", "quotas", "last_shed_ms")
"""Fields of the memory that each policy has for itself; before its first round, the cluster's."""
COUNTED = (
    "rounds",
    "moves_then",
    "moves",
    "alike",
    "same_source",
    "fewer",
    "more",
    "assignments_then",
    "assignments",
    "assignments_alike",
)
"""Names of counts.

Moves of then and now are `alike` in bundle, source and destination, else from the `same_source`;
the others were decided only then (`fewer`) or only now (`more`).
"""
RoundWithStart = tuple[Mapping[str, Any], RoundStart | None]
"""A row of the log, and the start of its round. None: its view is gone, or the round failed."""


@dataclass(frozen=True, slots=True)
class RoundDecisions:
    """A policy's decisions in a round: moves of its shedder, and assignments."""

    moves: tuple[tuple[str, str | None, str | None], ...]  # bundle, destination, source
    assignments: frozenset[tuple[str, str | None]]  # bundle, destination

    @staticmethod
    def select(decisions: Iterable[Mapping[str, Any]], config: ClusterConfig) -> RoundDecisions:
        """Select a policy's own decisions: not those of operators, drains and splits."""
        all_decisions = list(decisions)
        moves = (
            decision
            for decision in all_decisions
            if decision["kind"] in MOVES and decision["strategy"] == config.shedder.name
        )
        assigned = (decision for decision in all_decisions if decision["kind"] == "assign")
        return RoundDecisions(
            tuple(
                (decision["bundle"], decision["destination"], decision["source"])
                for decision in moves
            ),
            frozenset((decision["bundle"], decision["destination"]) for decision in assigned),
        )


def count_matches(then: RoundDecisions, now: RoundDecisions) -> Counter[str]:
    """Count which decisions of now were also made then; the names are those of COUNTED."""
    alike = {*then.moves} & {*now.moves}
    before, after = (
        Counter(move[2] for move in decided.moves if move not in alike) for decided in (then, now)
    )
    same_source = (before & after).total()
    return Counter(
        rounds=1,
        moves_then=len(then.moves),
        moves=len(now.moves),
        alike=len(alike),
        same_source=same_source,
        fewer=before.total() - same_source,
        more=after.total() - same_source,
        assignments_then=len(then.assignments),
        assignments=len(now.assignments),
        assignments_alike=len(then.assignments & now.assignments),
    )


@dataclass(slots=True)
class OpenTrial:
    """One policy in all rounds of one cluster. An exception becomes its `error`, and ends it."""

    policy: Policy
    counts: Counter[str] = field(default_factory=Counter)
    error: str | None = None
    own_memory: dict[str, Any] = field(default_factory=dict)

    def decide_round(
        self, start: RoundStart, operator_state: OperatorState, then: RoundDecisions
    ) -> None:
        """Decide one more round, and count its decisions that were also made `then`."""
        if self.error is not None:
            return
        try:
            config = resolve(
                without_approval(
                    apply_overrides(start.own, operator_state.settings) | self.policy.values()
                ),
                followed=start.config.balancer.profile,
            ).config
            memory = replace(
                start.memory,
                operator_state=replace(operator_state, settings={}, answers=(), waiting=()),
                **self.own_memory,
            )
            made = decide(start.view, memory, replace(start.inbox, commands=()), config)
        except Exception as error:
            self.error = "".join(traceback.format_exception(error)[-3:]).strip()
            return
        self.own_memory = {name: getattr(made.memory, name) for name in OWN_MEMORY}
        self.counts += count_matches(
            then,
            RoundDecisions.select(
                (decision.model_dump(mode="json") for decision in made.decisions), config
            ),
        )


def run_open_loop(
    rounds: Iterable[RoundWithStart], policies: Sequence[Policy]
) -> list[BacktestRow]:
    """Decide rounds again. Returns a row of `backtests` for each cluster and policy.

    The same log gives the same rows. Rounds without a view are left out.
    """
    trials: dict[str, list[OpenTrial]] = {}
    times: dict[str, list[int]] = {}
    digest = hashlib.blake2b(
        canonical_json([[policy.name, dict(policy.settings)] for policy in policies]).encode(),
        digest_size=8,
    )
    for row, start in rounds:
        if start is None:
            continue
        digest.update(
            canonical_json(
                [row[name] for name in ("app", "cluster", "log_seq", "blocks", "decisions")]
            ).encode()
        )
        times.setdefault(row["cluster"], []).append(row["now_ms"])
        operator_state = Memory.from_json(row["memory"]).operator_state
        followed = start.config.balancer.profile
        config = resolve(start.own, operator_state.settings, followed).config
        then = RoundDecisions.select(json.loads(row["decisions"]), config)
        for trial in trials.setdefault(row["cluster"], [OpenTrial(policy) for policy in policies]):
            trial.decide_round(start, operator_state, then)
    run = {"run": digest.hexdigest()}
    return [
        run | _build_row(trial, cluster, times[cluster])
        for cluster, cluster_trials in sorted(trials.items())
        for trial in cluster_trials
    ]


def _build_row(trial: OpenTrial, cluster: str, times: Sequence[int]) -> BacktestRow:
    """Build a row of `backtests`. `times`: of the rounds, ms since the epoch, ascending."""
    counts = None if trial.error is not None else {name: trial.counts[name] for name in COUNTED}
    return {
        "cluster": cluster,
        "from_ms": times[0],
        "to_ms": times[-1] + 1,
        "tick_s": None,
        "loop": "open",
        "policy": trial.policy.name,
        "settings": canonical_json(dict(trial.policy.settings)),
        "error": trial.error,
        **dict.fromkeys(SHOWN),
        "moves": None if counts is None else counts["moves"],
        "measures": None if counts is None else json.dumps(counts, sort_keys=True),
    }
