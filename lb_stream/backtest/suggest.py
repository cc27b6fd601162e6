"""Searches for a policy with less imbalance, fewer moves, or less of clients' time lost.

An optimiser asks for a few policies at a time, and gets their measures. The same space, history and
seed give the same result (docs/backtest.md).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import TYPE_CHECKING

from lb_stream.backtest.search_space import Choices, Space, ValueRange, read_space
from lb_stream.backtest.trial import PolicyMeans
from lb_stream.contracts.base import canonical_json
from lb_stream.contracts.keys import GivenSettings
from lb_stream.sim.simulation import Policy

if TYPE_CHECKING:
    import optuna

OBJECTIVES = ("max_over_bound_median", "moves", "client_seconds_lost")
"""Measures to minimise; the front is built from them."""
CONSTRAINT = "violation_count"
"""The measure that must be 0, or as low as in the best trial."""
CHOICES = {"imbalance": OBJECTIVES[0], "moves": OBJECTIVES[1], "client-seconds": OBJECTIVES[2]}
"""Choice of `--choose` → the measure that the chosen policy has least of."""
TRIALS, WITHIN = 48, 5.0
"""Defaults: policies to try, and per cent above the least imbalance."""
BATCH = 8
"""Policies asked for at a time: enough for some cores, few enough to learn from.

It is fixed, because the result depends on it.
"""
MAX_ASKS_PER_TRIAL = 4
"""In a small space the optimiser asks for the same policy again; this bounds how often."""

TryPolicies = Callable[[Sequence[Policy]], Iterable[PolicyMeans]]
"""Tries policies. Returns a row of `compare_policies` for each, in any order."""


class SuggestError(ValueError):
    """A wrong request for a search. The message is one line for people."""


@dataclass(frozen=True, slots=True)
class TriedPolicy:
    """A policy that was tried.

    `changes`: its settings that differ from policy number 0, with which the search began.
    `measures`: means over windows; empty: a trial failed.
    """

    number: int
    policy: Policy
    changes: GivenSettings
    measures: PolicyMeans = field(default_factory=dict)

    def __getitem__(self, measure: str) -> float:
        return float(self.measures[measure])

    @property
    def cost(self) -> tuple[float, ...]:
        """Return the measures to minimise."""
        return tuple(map(self.__getitem__, OBJECTIVES))


def require_space(
    wanted: bool, policies: Sequence[Policy], searched: Sequence[str]
) -> Space | None:
    """Return the space to search; None: no search is wanted. Raises SuggestError, SettingError."""
    if not wanted:
        if searched:
            raise SuggestError("--search is for --suggest: give both")
        return None
    if len(policies) != 1:
        raise SuggestError(
            f"--suggest searches around one policy: expected one --policy, not {len(policies)}"
        )
    if find_spec("optuna") is None:
        raise SuggestError("--suggest needs Optuna: pip install 'lb_stream[suggest]'")
    return read_space(policies[0], searched)


def search(space: Space, try_policies: TryPolicies, trials: int, seed: int) -> list[TriedPolicy]:
    """Try `trials` policies of the space. The first one is its base."""
    optimiser = _Optimiser(space, seed)
    trials = space.trials(trials)
    found: dict[str, TriedPolicy] = {}
    waiting = {canonical_json({}): TriedPolicy(0, space.base, {})}
    for _ in range(MAX_ASKS_PER_TRIAL * trials):
        if len(waiting) == min(BATCH, trials - len(found)):
            found |= _try_waiting(waiting, try_policies)
            optimiser.learn(found)
            waiting = {}
        if len(found) == trials:
            break
        name, changes = optimiser.suggest(found)
        number = len(found) + len(waiting)
        if name not in found and name not in waiting:
            waiting[name] = TriedPolicy(number, space.policy(changes, number), changes)
    return list((found | _try_waiting(waiting, try_policies)).values())


def _try_waiting(
    waiting: Mapping[str, TriedPolicy], try_policies: TryPolicies
) -> dict[str, TriedPolicy]:
    rows = (
        {row["policy"]: row for row in try_policies([tried.policy for tried in waiting.values()])}
        if waiting
        else {}
    )
    measures = {name: rows[tried.policy.name] for name, tried in waiting.items()}
    return {
        name: TriedPolicy(
            tried.number,
            tried.policy,
            tried.changes,
            {} if measures[name]["failed"] else measures[name],
        )
        for name, tried in waiting.items()
    }


class _Optimiser:
    """Optuna's tree-structured Parzen estimator for several objectives.

    The JSON of a policy's changes is its name.
    """

    def __init__(self, space: Space, seed: int) -> None:
        import optuna  # noqa: PLC0415 (seconds, which only a search pays)

        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self._space = space
        self._study = optuna.create_study(
            directions=["minimize"] * len(OBJECTIVES), sampler=optuna.samplers.TPESampler(seed=seed)
        )
        self._distributions = {name: _distribution(part) for name, part in space.parts.items()}
        self._asked: list[tuple[optuna.Trial, str]] = []
        self._failed = optuna.trial.TrialState.FAIL
        if (start := space.start()) is not None:
            self._study.enqueue_trial(start)

    def suggest(self, found: Mapping[str, TriedPolicy]) -> tuple[str, dict[str, object]]:
        """Return the next policy's name and changes. It learns at once from one found already."""
        trial = self._study.ask(self._distributions)
        changes = self._space.changes(trial.params)
        self._asked.append((trial, name := canonical_json(changes)))
        if name in found:
            self.learn(found)
        return name, changes

    def learn(self, found: Mapping[str, TriedPolicy]) -> None:
        """Learn from the measures of suggested policies that have been tried."""
        for trial, name in self._asked:
            if (tried := found.get(name)) is None:
                continue
            if tried.measures:
                trial.set_constraint(CONSTRAINT, tried[CONSTRAINT])
                self._study.tell(trial, tried.cost)
            else:
                self._study.tell(trial, state=self._failed)
        self._asked = [(trial, name) for trial, name in self._asked if name not in found]


def _distribution(part: ValueRange | Choices) -> optuna.distributions.BaseDistribution:
    from optuna import distributions  # noqa: PLC0415

    if isinstance(part, Choices):
        return distributions.CategoricalDistribution(tuple(part.values))
    if part.whole:
        return distributions.IntDistribution(int(part.low), int(part.high), log=part.by_ratio)
    return distributions.FloatDistribution(part.low, part.high, log=part.by_ratio)


def find_front(found: Iterable[TriedPolicy]) -> list[TriedPolicy]:
    """Find the Pareto front: no other policy is as good in all objectives and better in one.

    Only policies with the fewest violations count. The front is ordered by imbalance; of equal
    policies it has the first. It is empty when every trial failed.
    """
    done = [tried for tried in found if tried.measures]
    fewest = min((tried[CONSTRAINT] for tried in done), default=0.0)
    first: dict[tuple[float, ...], TriedPolicy] = {}
    for tried in done:
        if tried[CONSTRAINT] == fewest:
            first.setdefault(tried.cost, tried)
    return [
        tried
        for cost, tried in sorted(first.items())
        if not any(_no_worse(other, cost) for other in first if other != cost)
    ]


def _no_worse(cost: Sequence[float], other: Sequence[float]) -> bool:
    return all(mine <= another for mine, another in zip(cost, other, strict=True))


def choose(front: Sequence[TriedPolicy], by: str, within: float) -> tuple[TriedPolicy, str]:
    """Choose a policy of the front, and explain why.

    It has the least of a measure among those within `within` per cent of the least imbalance.
    """
    measure = CHOICES[by]
    if measure == OBJECTIVES[0]:
        return front[0], "the least imbalance"
    highest = front[0][OBJECTIVES[0]] * (1 + within / 100)
    near = [tried for tried in front if tried[OBJECTIVES[0]] <= highest]
    why = (
        f"the fewest {by.replace('client-seconds', 'client-seconds lost')} within {within:g} % "
        "of the least imbalance"
    )
    return min(near, key=lambda tried: (tried[measure], tried.cost)), why


def describe_suggestion(
    space: Space, found: Sequence[TriedPolicy], by: str, within: float
) -> dict[str, object]:
    """Return a search's result for JSON: the base, the front, the chosen one's number and why."""
    front = find_front(found)
    chosen, why = choose(front, by, within) if front else (None, "every trial failed")
    return {
        "searched": list(space.parts),
        "trials": len(found),
        "failed": sum(not tried.measures for tried in found),
        "start": _policy_fields(found[0]),
        "front": [_policy_fields(tried) for tried in front],
        "chosen": None if chosen is None else chosen.number,
        "why": why,
    }


def _policy_fields(tried: TriedPolicy) -> dict[str, object]:
    measures = {
        name: value
        for name, value in tried.measures.items()
        if name not in ("policy", "trials", "failed")
    }
    settings: dict[str, object] = json.loads(canonical_json(dict(tried.policy.settings)))
    return {
        "number": tried.number,
        "policy": tried.policy.name,
        "changes": dict(tried.changes),
        "settings": settings,
        "measures": measures,
    }
