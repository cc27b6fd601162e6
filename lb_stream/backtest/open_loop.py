"""The open loop: what other policies would have decided in the rounds of the log, beside what was
decided then.

Each round is as it was, whatever a policy would have done before: it sees the recorded view, and
remembers the cluster's own past. Only what strategies remember, and when they were due, is the
policy's own. So nothing is told of what would have come of it. docs/backtest.md.
"""

from __future__ import annotations

import hashlib
import json
import traceback
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from lb_stream.backtest.trial import SHOWN
from lb_stream.contracts.base import canonical_json
from lb_stream.contracts.decisions import MOVES
from lb_stream.core.config.cluster_config import ClusterConfig
from lb_stream.core.model.memory import Memory
from lb_stream.core.model.operator_state import OperatorState
from lb_stream.core.round.decide import decide
from lb_stream.io.tables.replay import Start
from lb_stream.settings.overrides import without_approval
from lb_stream.settings.resolve import in_force, resolve
from lb_stream.sim.simulation import Policy

OWN = ("strategies", "quotas", "last_shed_ms")
"""Of the memory, what each policy has for itself. Before its first round it is the cluster's."""
COUNTED = (
    *("rounds", "moves_then", "moves", "alike", "same_source", "fewer", "more"),
    *("assignments_then", "assignments", "assignments_alike"),
)
"""What is counted.

Of the moves of then and now: alike (bundle and destination), others from the same source, then
only, now only.
"""
Logged = tuple[Mapping[str, Any], Start | None]
"""A row of the log, and what its round began with; None: its view is gone, or it has failed."""


@dataclass(frozen=True, slots=True)
class RoundDecisions:
    """What a policy decides in a round: moves that its shedder wanted (bundle, destination,
    source), assignments (bundle, destination)."""

    moves: tuple[tuple[str, str | None, str | None], ...]
    assignments: frozenset[tuple[str, str | None]]

    @staticmethod
    def of(decisions: Iterable[Mapping[str, Any]], config: ClusterConfig) -> RoundDecisions:
        """Of a round's decisions; not those of operators, drains and splits."""
        some = list(decisions)
        moves = (
            decision
            for decision in some
            if decision["kind"] in MOVES and decision["strategy"] == config.shedder.name
        )
        assigned = (decision for decision in some if decision["kind"] == "assign")
        return RoundDecisions(
            tuple(
                (decision["bundle"], decision["destination"], decision["source"])
                for decision in moves
            ),
            frozenset((decision["bundle"], decision["destination"]) for decision in assigned),
        )


def count_matches(then: RoundDecisions, now: RoundDecisions) -> Counter[str]:
    """How much of what is decided now was decided then."""
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
    """One policy in all rounds of one cluster.

    What goes wrong is its `error`, and ends it: other policies go on.
    """

    policy: Policy
    counts: Counter[str] = field(default_factory=Counter)
    error: str | None = None
    own: dict[str, Any] = field(default_factory=dict)

    def look(self, start: Start, orders: OperatorState, then: RoundDecisions) -> None:
        """Decide one more round."""
        if self.error is not None:
            return
        try:
            config = resolve(
                without_approval(in_force(start.own, orders.settings) | self.policy.values())
            ).config
            memory = replace(
                start.memory,
                orders=replace(orders, settings={}, answers=(), waiting=()),
                **self.own,
            )
            made = decide(start.view, memory, replace(start.inbox, commands=()), config)
        except Exception as error:
            self.error = "".join(traceback.format_exception(error)[-3:]).strip()
            return
        self.own = {name: getattr(made.memory, name) for name in OWN}
        self.counts += count_matches(
            then,
            RoundDecisions.of(
                (decision.model_dump(mode="json") for decision in made.decisions), config
            ),
        )


def open_loop(rounds: Iterable[Logged], policies: Sequence[Policy]) -> list[dict[str, Any]]:
    """The rows of `backtests`, one for each cluster and policy.

    The same log gives the same rows; without a view there are none.
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
        orders = Memory.from_json(row["memory"]).orders
        then = RoundDecisions.of(
            json.loads(row["decisions"]), resolve(start.own, orders.settings).config
        )
        for trial in trials.setdefault(row["cluster"], [OpenTrial(policy) for policy in policies]):
            trial.look(start, orders, then)
    run = {"run": digest.hexdigest()}
    return [
        run | _row(decision, cluster, times[cluster])
        for cluster, some in sorted(trials.items())
        for decision in some
    ]


def _row(trial: OpenTrial, cluster: str, times: Sequence[int]) -> dict[str, Any]:
    counts = None if trial.error is not None else {name: trial.counts[name] for name in COUNTED}
    known: dict[str, Any] = {
        "cluster": cluster,
        "from_ms": times[0],
        "to_ms": times[-1] + 1,
        "tick_s": None,
        "loop": "open",
    }
    known |= {
        "policy": trial.policy.name,
        "settings": canonical_json(dict(trial.policy.settings)),
        "error": trial.error,
    }
    shown = dict.fromkeys(SHOWN) | {"moves": None if counts is None else counts["moves"]}
    return (
        known | shown | {"measures": None if counts is None else json.dumps(counts, sort_keys=True)}
    )
