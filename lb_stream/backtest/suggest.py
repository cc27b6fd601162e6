"""Searches settings of a policy for a better one: what of imbalance, moves and clients' lost time
can be had, and at what price.

An optimiser asks for a few policies at a time, they are played, and it is told how they did. The
same space, history and seed find the same. docs/backtest.md.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from lb_stream.backtest.search_space import Choices, Space, ValueRange, read_space
from lb_stream.contracts.base import canonical_json
from lb_stream.sim.simulation import Policy

if TYPE_CHECKING:
    import optuna

OBJECTIVES = ("max_over_bound_median", "moves", "client_seconds_lost")
"""What is to be small: the measures of the front."""
CONSTRAINT = "violation_count"
"""What must be 0, or as small as it was ever found."""
CHOICES = {"imbalance": OBJECTIVES[0], "moves": OBJECTIVES[1], "client-seconds": OBJECTIVES[2]}
"""Ways to choose from the front → the measure that is to be the least."""
TRIALS, WITHIN = 48, 5.0
"""Policies to play, and per cent of the least imbalance, unless somebody says otherwise."""
AT_ONCE = 8
"""Policies asked for at a time: enough for some cores, and often enough to learn.

Fixed, as what is found depends on it.
"""
MOST_ASKED = 4
"""In a small space the optimiser asks for the same again: so many times the trials it is asked at
most."""

PlayPolicies = Callable[[Sequence[Policy]], Iterable[Mapping[str, Any]]]
"""Plays policies: for each a row as of `compared`, in any order."""


class SuggestError(ValueError):
    """A search that can't be. The message is one line for people."""


@dataclass(frozen=True, slots=True)
class TriedPolicy:
    """A policy that was played.

    `changes`: its settings that differ from the policy that the search began with, which is number
    0.
    """

    number: int
    policy: Policy
    changes: Mapping[str, Any]
    measures: Mapping[str, Any] = field(
        default_factory=dict
    )  # means over windows; empty: a trial failed

    def __getitem__(self, measure: str) -> float:
        return float(self.measures[measure])

    @property
    def cost(self) -> tuple[float, ...]:
        """The objectives."""
        return tuple(map(self.__getitem__, OBJECTIVES))


def require_space(
    wanted: bool, policies: Sequence[Policy], searched: Sequence[str]
) -> Space | None:
    """What to search, if that is wanted. Raises SuggestError, SettingError."""
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


def search(space: Space, play: PlayPolicies, trials: int, seed: int) -> list[TriedPolicy]:
    """Play so many policies of the space, the one that it is around among them, as the first."""
    optimiser = _Optimiser(space, seed)
    trials = space.trials(trials)
    found: dict[str, TriedPolicy] = {}
    waiting = {canonical_json({}): TriedPolicy(0, space.base, {})}
    for _ in range(MOST_ASKED * trials):
        if len(waiting) == min(AT_ONCE, trials - len(found)):
            optimiser.tell(found := found | _play_waiting(waiting, play))
            waiting = {}
        if len(found) == trials:
            break
        name, changes = optimiser.ask(found)
        number = len(found) + len(waiting)
        if name not in found and name not in waiting:
            waiting[name] = TriedPolicy(number, space.policy(changes, number), changes)
    return list((found | _play_waiting(waiting, play)).values())


def _play_waiting(waiting: Mapping[str, TriedPolicy], play: PlayPolicies) -> dict[str, TriedPolicy]:
    rows = (
        {row["policy"]: row for row in play([tried.policy for tried in waiting.values()])}
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
    """Optuna's tree-structured Parzen estimator for several objectives, asked and told.

    Policies go by the JSON of their changes.
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

    def ask(self, found: Mapping[str, TriedPolicy]) -> tuple[str, dict[str, Any]]:
        """The next changes to try; if they are found already, it is told so at once."""
        trial = self._study.ask(self._distributions)
        changes = self._space.changes(trial.params)
        self._asked.append((trial, name := canonical_json(changes)))
        if name in found:
            self.tell(found)
        return name, changes

    def tell(self, found: Mapping[str, TriedPolicy]) -> None:
        """How those did that are found."""
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


def front(found: Iterable[TriedPolicy]) -> list[TriedPolicy]:
    """Those that nobody beats, being as good in all objectives and better in one.

    The evenest first; of equal ones the first found.

    Rules come first: nobody is in it who broke more of them than another. Empty: every trial
    failed.
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


def choose(some: Sequence[TriedPolicy], by: str, within: float) -> tuple[TriedPolicy, str]:
    """One of a front, and by what rule: of those within so many per cent of the least imbalance the
    one with the least of a measure."""
    measure = CHOICES[by]
    if measure == OBJECTIVES[0]:
        return some[0], "the least imbalance"
    most = some[0][OBJECTIVES[0]] * (1 + within / 100)
    near = [tried for tried in some if tried[OBJECTIVES[0]] <= most]
    why = (
        f"the fewest {by.replace('client-seconds', 'client-seconds lost')} within {within:g} % "
        "of the least imbalance"
    )
    return min(near, key=lambda tried: (tried[measure], tried.cost)), why


def suggestion(
    space: Space, found: Sequence[TriedPolicy], by: str, within: float
) -> dict[str, Any]:
    """What is told of a search, as JSON: the policy that it began with, the front, the chosen one's
    number and why."""
    best = front(found)
    chosen, why = choose(best, by, within) if best else (None, "every trial failed")
    return {
        "searched": list(space.parts),
        "trials": len(found),
        "failed": sum(not tried.measures for tried in found),
        "start": _policy_fields(found[0]),
        "front": [_policy_fields(tried) for tried in best],
        "chosen": None if chosen is None else chosen.number,
        "why": why,
    }


def _policy_fields(tried: TriedPolicy) -> dict[str, Any]:
    measures = {
        name: value
        for name, value in tried.measures.items()
        if name not in ("policy", "trials", "failed")
    }
    settings: dict[str, Any] = json.loads(canonical_json(dict(tried.policy.settings)))
    return {
        "number": tried.number,
        "policy": tried.policy.name,
        "changes": dict(tried.changes),
        "settings": settings,
        "measures": measures,
    }
