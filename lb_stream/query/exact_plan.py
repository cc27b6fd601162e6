"""How far a plan is from the best, proven by a solver of integer programs (HiGHS).

A plan's moves are a 0-1 variable for each bundle and each broker that may take it. Two questions
are solved: the fewest moves that reach the plan's result, and the lowest max that as many moves as
the plan's could reach. Rules, budgets and intakes hold; margins and payback times, which are
LeastMoves' own, don't. Where the solver runs out of time, it still has proven a bound.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from lb_stream.core.model.view import Bools, Floats, Rows
from lb_stream.io.messages.missing_packages import require_extras

if TYPE_CHECKING:
    import highspy

    from lb_stream.core.shedding.base import PlanProblem

ROUNDING = 1e-9
MAX_VARIABLES = 40_000
"""Above this number of bundles × brokers the solver proves too little to be asked."""


class Minimum(NamedTuple):
    """The least value of an integer program: what was found, and what is proven."""

    found: float | None  # None: no solution was found
    at_least: float  # infinite: there is no solution
    solution: Floats

    @property
    def is_proven(self) -> bool:
        """Whether no solution is better than the one that was found."""
        return self.found is not None and self.found <= self.at_least + 1e-6


@dataclass(frozen=True, slots=True)
class Effort:
    """Where the solver ends without a proof."""

    seconds: float = math.inf
    nodes: int | None = None  # counted, not timed: the same case ends in the same way everywhere


@dataclass(frozen=True, slots=True)
class MoveModel:
    """All single moves of a cluster, as variables of an integer program.

    Shares are load ÷ even load. A column of `bundle` and `broker` is a variable: 1, it moves there.
    """

    share: Floats  # (brokers, resources): before the moves
    per_unit: Floats  # (brokers, resources): the rise of the share by one unit of load
    demand: Floats  # (bundles, resources)
    owner: Rows  # of each bundle
    bundle: Rows
    broker: Rows
    groups: tuple[tuple[Rows, float], ...]  # variables of which at most so many are 1

    @staticmethod
    def build(
        share: Floats, per_unit: Floats, demand: Floats, owner: Rows, allowed: Bools
    ) -> MoveModel:
        """Build the model without budgets. `allowed`: (bundles, brokers) that may have each."""
        may = allowed.copy()
        may[np.arange(len(owner)), owner] = False
        bundle, broker = np.nonzero(may)
        return MoveModel(share, per_unit, demand, owner, bundle, broker, ())

    @staticmethod
    def of_problem(problem: PlanProblem) -> tuple[MoveModel, Rows]:
        """Build the model of what a strategy could choose from; also the bundles' rows there."""
        rows = problem.rows()
        bundles = np.concatenate(list(rows.values())) if rows else np.empty(0, np.intp)
        owner = np.repeat(list(rows), [len(own) for own in rows.values()]).astype(np.intp)
        takes = (problem.limit >= 0) & (problem.intake_left > 0)
        allowed = np.array([problem.may_take(int(row)) & takes for row in bundles])
        model = MoveModel.build(
            problem.share,
            problem.per_unit,
            problem.demand[bundles],
            owner,
            allowed.reshape(len(bundles), len(takes)),
        )
        budget = problem.disruption.budget[bundles][model.bundle]
        groups = [
            (np.flatnonzero(model.broker == broker), float(problem.intake_left[broker]))
            for broker in np.flatnonzero(takes & (problem.intake_left < len(bundles))).tolist()
        ] + [
            (np.flatnonzero(budget == number), float(left))
            for number, left in enumerate(problem.disruption.left.tolist())
        ]
        return replace(model, groups=tuple(groups)), bundles

    def __len__(self) -> int:
        """Return the number of variables."""
        return len(self.bundle)

    def fewest_moves(self, ceiling: Floats, effort: Effort, known: Floats | None = None) -> Minimum:
        """Minimise the moves that leave no broker above `ceiling`, (brokers, resources).

        `known`: a solution to begin with.
        """
        rows, most = self._below(ceiling)
        return _solve(np.ones(len(self)), rows, most, effort, known)

    def least_cost(self, price: Floats, ceiling: Floats, moves: int, effort: Effort) -> Minimum:
        """Minimise the cost of at most so many moves to the same end. `price`: of each bundle."""
        rows, most = self._below(ceiling)
        rows = np.vstack([rows, np.ones(len(self))])
        return _solve(price[self.bundle], rows, np.append(most, moves), effort)

    def lowest_max(
        self, moves: int, counts: Bools, effort: Effort, known: Floats | None = None
    ) -> Minimum:
        """Minimise the highest share of brokers that count, after at most so many moves."""
        once, limits = self._limits()
        change = self._change()[counts]
        height = np.where(self.per_unit[counts] > 0, -1.0, 0.0).ravel()
        rows = np.vstack([once, change.reshape(-1, len(self)), np.ones(len(self))])
        last = np.concatenate([np.zeros(len(once)), height, [0.0]])[:, None]
        share = self.share[counts].ravel()
        share = np.where(height < 0, share, 0.0)
        most = np.concatenate([limits, -share + np.where(height < 0, 0.0, np.inf), [moves]])
        price = np.append(np.zeros(len(self)), 1.0)
        return _solve(price, np.hstack([rows, last]), most, effort, known, whole=len(self))

    def after(self, solution: Floats) -> Floats:
        """Return (brokers, resources): the shares after the moves of a solution."""
        found: Floats = self.share + self._change() @ np.round(solution[: len(self)])
        return found

    def solution_of(self, moves: list[tuple[int, int]]) -> Floats:
        """Return the solution that makes these moves: (bundle, broker)."""
        made = dict(moves)
        pairs = zip(self.bundle.tolist(), self.broker.tolist(), strict=True)
        return np.array([float(made.get(bundle) == broker) for bundle, broker in pairs])

    def _below(self, ceiling: Floats) -> tuple[Floats, Floats]:
        """Return constraints: rows · x is at most these values."""
        once, limits = self._limits()
        room = (ceiling - self.share + ROUNDING).ravel()
        change = self._change().reshape(len(room), len(self))
        return np.vstack([once, change]), np.concatenate([limits, room])

    def _limits(self) -> tuple[Floats, Floats]:
        """Return the constraints of rules: each bundle moves once; budgets and intakes."""
        once = np.zeros((len(self.owner) + len(self.groups), len(self)))
        once[self.bundle, np.arange(len(self))] = 1.0
        for number, (members, _) in enumerate(self.groups):
            once[len(self.owner) + number, members] = 1.0
        most = [1.0] * len(self.owner) + [limit for _, limit in self.groups]
        return once, np.array(most)

    def _change(self) -> Floats:
        """Return (brokers, resources, variables): the change of shares by each move."""
        each, source = np.arange(len(self)), self.owner[self.bundle]
        change = np.zeros((*self.share.shape, len(self)))
        change[self.broker, :, each] = self.demand[self.bundle] * self.per_unit[self.broker]
        change[source, :, each] = -self.demand[self.bundle] * self.per_unit[source]
        return change


@dataclass(frozen=True, slots=True)
class ExactPlan:
    """A plan beside the best. Max is the highest usage ÷ even load of any broker."""

    moves: int  # of the plan
    fewest_moves: int | None  # that reach its max, as far as found
    fewest_moves_at_least: int  # proven
    max: float  # after the plan
    lowest_max: float | None  # after as many moves, as far as found
    lowest_max_at_least: float  # proven
    is_proven: bool  # nothing is better than what was found
    variables: int  # bundles × brokers that may take them
    too_large: bool  # the solver was not asked

    def to_dict(self) -> dict[str, object]:
        """Return the fields as JSON can hold them."""
        return asdict(self)


def require_solver() -> None:
    """Require that HiGHS is installed. Raises MissingPackageError."""
    require_extras("lbctl plan --exact", "exact")


def prove(
    problem: PlanProblem, moves: list[tuple[int, int]], fewest: int, seconds: float
) -> ExactPlan:
    """Compare a plan with the best.

    `moves`: (bundle, destination) of the plan. `fewest`: a lower bound that is known already.
    `seconds`: in which the solver may look for a proof.
    """
    counts = problem.limit >= 0
    model, bundles = MoveModel.of_problem(problem)
    number = {row: at for at, row in enumerate(bundles.tolist())}
    known = model.solution_of([(number[bundle], broker) for bundle, broker in moves])
    after = float(model.after(known)[counts].max(initial=0.0))
    if len(model) > MAX_VARIABLES or not len(model):
        return ExactPlan(
            len(moves), None, fewest, after, None, 0.0, False, len(model), len(model) > 0
        )
    effort = Effort(seconds / 2.0)
    ceiling = np.where(counts[:, None], after, np.inf)
    fewer = model.fewest_moves(ceiling, effort, known)
    lower = model.lowest_max(len(moves), counts, effort, np.append(known, after))
    return ExactPlan(
        moves=len(moves),
        fewest_moves=None if fewer.found is None else round(fewer.found),
        fewest_moves_at_least=math.ceil(fewer.at_least - 1e-6),
        max=after,
        lowest_max=lower.found,
        lowest_max_at_least=lower.at_least,
        is_proven=fewer.is_proven and lower.is_proven,
        variables=len(model),
        too_large=False,
    )


def _solve(
    price: Floats,
    rows: Floats,
    most: Floats,
    effort: Effort,
    known: Floats | None = None,
    whole: int | None = None,
) -> Minimum:
    """Minimise price · x with rows · x <= most. x is 0 or 1; from variable `whole` on, any number.

    `known`: a solution to begin with.
    """
    import highspy

    used = np.isfinite(most)
    rows, most = rows[used], most[used]
    count = len(price) if whole is None else whole
    lp = highspy.HighsLp()
    lp.num_row_, lp.num_col_ = rows.shape
    lp.col_cost_, lp.col_lower_ = price, np.zeros(len(price))
    lp.col_upper_ = np.where(np.arange(len(price)) < count, 1.0, highspy.kHighsInf)
    lp.row_lower_, lp.row_upper_ = np.full(len(most), -highspy.kHighsInf), most
    at, column = np.nonzero(rows)
    lp.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
    lp.a_matrix_.start_ = np.searchsorted(at, np.arange(len(most) + 1))
    lp.a_matrix_.index_, lp.a_matrix_.value_ = column, rows[at, column]
    kinds = highspy.HighsVarType
    lp.integrality_ = [kinds.kInteger] * count + [kinds.kContinuous] * (len(price) - count)
    solver = highspy.Highs()  # type: ignore[no-untyped-call]
    solver.setOptionValue("output_flag", False)
    solver.setOptionValue("threads", 1)
    if effort.nodes is not None:
        solver.setOptionValue("mip_max_nodes", effort.nodes)
    if math.isfinite(effort.seconds):
        solver.setOptionValue("time_limit", effort.seconds)
    solver.passModel(lp)
    if known is not None:
        start = highspy.HighsSolution()
        start.col_value = known.tolist()
        solver.setSolution(start)
    solver.run()
    return _read(solver, highspy.HighsModelStatus, known, price)


def _read(
    solver: highspy.Highs,
    status: type[highspy.HighsModelStatus],
    known: Floats | None,
    price: Floats,
) -> Minimum:
    """Return what the solver has found and proven."""
    ended = solver.getModelStatus()
    if ended == status.kInfeasible:
        return Minimum(None, math.inf, np.empty(0))
    info = solver.getInfo()
    bound = float(info.mip_dual_bound)
    if ended == status.kOptimal:
        value = float(solver.getObjectiveValue())
        return Minimum(value, value, np.array(solver.getSolution().col_value))
    found = float(info.objective_function_value)
    if info.primal_solution_status == 2:
        return Minimum(found, max(bound, 0.0), np.array(solver.getSolution().col_value))
    if known is not None:
        return Minimum(float(price @ known), max(bound, 0.0), known)
    return Minimum(None, max(bound, 0.0), np.empty(0))
