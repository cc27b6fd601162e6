"""Find the best next moves of a cluster, for an operator who wants to make them by hand."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from lb_stream.contracts.decisions import MOVES, Decision
from lb_stream.core.config.cluster_config import ClusterConfig
from lb_stream.core.model.memory import Memory
from lb_stream.core.model.refusals import Refusal
from lb_stream.core.model.view import Floats, with_moves
from lb_stream.core.round.decide import Inbox, Round, decide
from lb_stream.core.shedding.base import Unload, shedder, traits_of
from lb_stream.io.messages.shown import figure
from lb_stream.io.messages.times import clock
from lb_stream.query import QueryError
from lb_stream.query.cluster_state import ClusterState, require_cluster, require_single_cluster_in
from lb_stream.query.exact_plan import ExactPlan, prove
from lb_stream.query.present.view import load_present_view
from lb_stream.query.wording import explain_refusal, place_of_rule
from lb_stream.settings.names import normalise_names
from lb_stream.settings.overrides import without_approval
from lb_stream.settings.resolve import apply_overrides, resolve

if TYPE_CHECKING:
    from lb_stream.query.lake import Lake, Row


DEFAULT_STRATEGY = "LeastMoves"
_NO_LIMIT = 10**9
_MANUAL_SETTINGS: Mapping[str, object] = {
    "enabled": True,
    "shedding_enabled": True,
    "shedding_interval_ms": 0,
    "split_enabled": False,
    "merge_advice_enabled": False,
    "max_moves_in_flight": _NO_LIMIT,
    "max_moves_in_flight_per_broker": _NO_LIMIT,
    "max_moves_per_minute": _NO_LIMIT,
    "least_moves_max_moves_into_broker": _NO_LIMIT,
    "max_moved_mb_per_minute": None,
    "placement_strategy": "LeastLongTermMessageRate",
}
"""Settings over the cluster's own: moves are also planned where balancing is switched off, or where
limits allow few at a time."""
_MOVE_PLACES = ("operators", "suspension", "limits", "policies", "strategy")

Usages = tuple[float, float, float | None, float | None]
"""Usages around a move: the source's before and after it, then the destination's."""


@dataclass(frozen=True, slots=True)
class NextMoves:
    """The moves that a strategy would make next.

    Usages are the strategy's own, or else those of the view with pending moves applied.
    """

    cluster: str
    strategy: str
    own_strategy: str  # the cluster's
    dry_run: bool  # whether the cluster's decisions are published
    at_ms: int
    groups: tuple[tuple[Row, ...], ...]  # in order; moves of a group belong together, mostly one
    planned: int  # the number of moves of the whole plan, of which these are the first
    fewest: int | None  # the lowest number of moves that reaches the strategy's aim
    fullest: str | None  # the broker that is most above the even load after these moves
    max_over_even_before: float | None  # the highest ratio of usage to even load
    max_over_even_after: float | None
    reasons: tuple[str, ...]  # why max_over_even_after is not lower
    unsure: str  # loads that the strategy doesn't know well yet, as a text
    exact: ExactPlan | None  # the plan beside the best; None: not asked for, or no plan was sought

    @property
    def moves(self) -> tuple[Row, ...]:
        """Return all moves in order."""
        return tuple(move for group in self.groups for move in group)

    def to_dict(self) -> Row:
        """Return the fields as JSON can hold them."""
        fields = {name: getattr(self, name) for name in self.__slots__ if name != "groups"}
        exact = None if self.exact is None else self.exact.to_dict()
        return fields | {"moves": self.moves, "exact": exact}


def find_next_moves(
    lake: Lake,
    cluster: str | None,
    tried: Mapping[str, object],
    most: int,
    exact_s: float | None = None,
) -> NextMoves:
    """Return the first moves that a strategy would make now, at most `most`.

    `exact_s`: for this time (s), a solver seeks the best plan, to compare the strategy's with.
    `tried`: settings over the cluster's own, such as the strategy. The cluster's own strategy has
    its logged memory; another one begins without memory, and waits for nothing.
    Raises QueryError (exit code 2) for an unknown cluster, or a strategy that names no
    destinations; SettingError for a setting.
    """
    # the round that the strategy would make
    require_cluster(lake, cluster)
    here = require_single_cluster_in(lake, cluster)
    config, memory = _resolve_trial(here, normalise_names(tried))
    view = load_present_view(lake, here.cluster, config.balancer.weights, here.now_ms)
    made = decide(view, memory, Inbox(), config)
    # its moves: all of the plan, and the first ones, which are shown
    planned = [
        decision
        for decision in made.decisions
        if decision.kind in MOVES and decision.strategy == config.shedder.name
    ]
    bundles = made.view.bundles
    proposals = {bundles.name(proposal.bundle): proposal for proposal in made.proposed.proposals}
    groups = tuple(_group_moves(planned, proposals, most))
    shown = [decision for group in groups for decision in group]
    shown_proposals = [proposals[decision.bundle] for decision in shown]
    # usages before and after each
    steps = list(_find_usages(made, shown_proposals))
    rows = {
        decision.decision_id: _build_move(decision, proposals[decision.bundle].cost, usages)
        for decision, usages in zip(shown, steps, strict=True)
    }
    before, after, fullest = _find_max_over_even(made, shown_proposals, steps)
    facts = made.proposed.plan
    with_splits = replace(config, splitting=here.config.splitting)
    splits = decide(view, memory, Inbox(), with_splits) if with_splits.plans_splits else made
    return NextMoves(
        cluster=here.cluster,
        strategy=config.shedder.name,
        own_strategy=here.config.shedder.name,
        dry_run=here.config.balancer.dry_run,
        at_ms=view.now_ms,
        groups=tuple(_build_group([rows[move.decision_id] for move in group]) for group in groups),
        planned=len(planned),
        fewest=None if facts is None else facts.fewest,
        fullest=fullest,
        max_over_even_before=before,
        max_over_even_after=after,
        reasons=(
            *_describe_splits(splits, config.shedder.name),
            *_explain_remaining(made, config.shedder.name, len(shown), len(planned), after),
        ),
        unsure="" if facts is None else facts.unsure,
        exact=None if exact_s is None else _prove(made, planned, proposals, exact_s),
    )


def _prove(
    made: Round, planned: Sequence[Decision], proposals: Mapping[str, Unload], seconds: float
) -> ExactPlan | None:
    """Compare all planned moves with the best plan; None: the strategy has sought no moves."""
    facts = made.proposed.plan
    if facts is None or facts.problem is None:
        return None
    moves = [
        (proposal.bundle, proposal.destination)
        for proposal in (proposals[decision.bundle] for decision in planned)
        if proposal.destination is not None
    ]
    return prove(facts.problem, moves, facts.fewest, seconds)


def _resolve_trial(here: ClusterState, tried: Mapping[str, object]) -> tuple[ClusterConfig, Memory]:
    """Return the settings and the memory with which the strategy decides."""
    wanted = str(tried.get("shedding_strategy", DEFAULT_STRATEGY))
    settings = without_approval(
        {
            **apply_overrides(here.given, here.operator_state.settings),
            **_MANUAL_SETTINGS,
            "shedding_strategy": wanted,
        }
    )
    followed = here.memory.followed.profile
    config = resolve({**settings, **tried}, followed=followed).config
    if config.shedder.name != wanted.rpartition(".")[2]:
        raise QueryError(
            f"{wanted} does not run under the {config.balancer.load_manager} manager of "
            f"{here.cluster}",
            2,
        )
    traits = traits_of(config.shedder)
    if not traits.chooses_destination:
        able = ", ".join(
            name for name in shedder.names if traits_of(shedder[name]).chooses_destination
        )
        raise QueryError(
            f"shedding_strategy = {wanted!r}: expected one that names destinations: {able}", 2
        )
    remembered = dict(here.memory.strategies)
    if here.config.shedder.name != config.shedder.name:
        remembered.pop(config.shedder.name, None)
    if config.shedder.name not in remembered:
        given = {**settings, **traits.no_wait_settings, **tried}
        config = resolve(given, followed=followed).config
    operator_state = replace(here.operator_state, settings={}, paused=False)
    return config, replace(
        here.memory, operator_state=operator_state, strategies=remembered, last_shed_ms=None
    )


def _group_moves(
    decisions: Sequence[Decision], proposals: Mapping[str, Unload], most: int
) -> Iterator[tuple[Decision, ...]]:
    """Yield the first moves in their order, in groups of those that belong together."""
    group: list[Decision] = []
    for decision in decisions:
        group.append(decision)
        if proposals[decision.bundle].with_next:
            continue
        most -= len(group)
        if most < 0:
            return
        yield tuple(group)
        group = []


def _find_usages(made: Round, moves: Sequence[Unload]) -> Iterator[Usages]:
    """Yield the usages around each move: the strategy's, or else by applying it to the view."""
    view = made.view
    for move in moves:
        if move.usages is not None:
            yield move.usages
            continue
        to, before = move.destination, view.brokers.usage
        view = with_moves(view, np.array([move.bundle]), np.array([-1 if to is None else to]))
        after = view.brokers.usage
        there = (None, None) if to is None else (float(before[to]), float(after[to]))
        yield float(before[move.source]), float(after[move.source]), *there


def _build_group(moves: list[Row]) -> tuple[Row, ...]:
    """Return moves that belong together, which says why no other destination was chosen."""
    if len(moves) == 1:
        return tuple(moves)
    return tuple(move | {"why_not": "part of a swap"} for move in moves)


def _build_move(decision: Decision, cost: float | None, usages: Usages) -> Row:
    others = [
        candidate
        for candidate in decision.explain.candidates
        if candidate.broker != decision.destination and candidate.refused_by is None
    ]
    second = min(
        others,
        key=lambda candidate: np.inf if candidate.score is None else candidate.score,
        default=None,
    )
    return {
        "bundle": decision.bundle,
        "from": decision.source,
        "to": decision.destination,
        "cost": cost,
        "client_seconds": decision.explain.client_seconds,
        "gain": usages[0] - usages[1],
        "second": None if second is None else second.broker,
        "second_usage": None if second is None else second.score,
        "why_not": _explain_destination(
            decision, usages[3], None if second is None else second.score
        ),
        **dict(
            zip(
                ("source_before", "source_after", "destination_before", "destination_after"),
                usages,
                strict=True,
            )
        ),
        "rule": decision.rule,
    }


def _explain_destination(decision: Decision, usage: float | None, other: float | None) -> str:
    """Say why the second-best destination was not chosen, or why there is none.

    Empty where its usage, which is higher, says so.
    """
    if other is None:
        return "no other broker has room" if decision.explain.candidates else ""
    return "needs more moves in all" if usage is not None and other < usage else ""


def _find_max_over_even(
    made: Round, moves: Sequence[Unload], steps: Sequence[Usages]
) -> tuple[float | None, float | None, str | None]:
    """Return the highest ratio of usage to even load, before and after, and its broker after."""
    facts, brokers = made.proposed.plan, made.view.brokers
    active = made.view.active
    if not active.any():
        return None, None, None
    # usages of active brokers before the moves, the even load, and usages after the moves
    usage: Floats = np.where(active, brokers.usage if facts is None else facts.usage, np.nan)
    mean = float(np.nanmean(usage))
    even = np.full(len(brokers), mean) if facts is None else facts.even
    after = usage.copy()
    for move, (_, source, _, destination) in zip(moves, steps, strict=True):
        after[move.source] = source
        if move.destination is not None and destination is not None:
            after[move.destination] = destination
    if not np.nanmax(usage) > 0:
        return None, None, None
    # the ratios of both to the even load
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio_before, ratio_after = usage / even, after / even
    fullest = int(np.nanargmax(ratio_after))
    return float(np.nanmax(ratio_before)), float(ratio_after[fullest]), brokers.names[fullest]


def _explain_remaining(
    made: Round, strategy: str, shown: int, planned: int, greatest: float | None
) -> Iterator[str]:
    """Yield why the highest usage is not lower."""
    facts = made.proposed.plan
    if shown < planned:
        first = "" if shown else ", and the first ones belong together"
        yield f"{planned - shown} more moves are planned{first}: --moves {planned} shows all"
    about_moves = [
        _describe_refusal(refusal)
        for refusal in made.refusals
        if place_of_rule(refusal.rule) in _MOVE_PLACES
    ]
    yield from about_moves
    if facts is not None and greatest is not None and greatest <= facts.trigger:
        then = " then" if shown else ""
        yield f"no broker is above {facts.trigger:g} times the even load{then}"
    elif not planned and not about_moves:
        yield f"{strategy} finds no broker to relieve with these settings"


def _describe_splits(made: Round, strategy: str) -> Iterator[str]:
    """Yield the splits that the strategy makes before any move, which lower the max usage more."""
    for split in made.decisions:
        explain = split.explain
        if split.kind != "split" or split.strategy != strategy or explain.plan is None:
            continue
        at = ", ".join(f"0x{boundary:08x}" for boundary in split.boundaries)
        where = f"at {at}" if at else f"by {split.algorithm}"
        unsplit, after = (
            figure(usage, "ratio") for usage in (explain.plan_max_unsplit, explain.plan_max_after)
        )
        yield (
            f"{strategy} itself would first split {split.bundle} {where}: max usage {after} after "
            f"its moves, and {unsplit} at best without the split"
        )


def _describe_refusal(refusal: Refusal) -> str:
    """Say whom a refusal concerns, why, and with what figures."""
    figures = []
    if refusal.greatest is not None:
        figures.append(figure(refusal.greatest, refusal.unit))
    if refusal.limit is not None:
        figures.append(f"limit {figure(refusal.limit, refusal.unit)}")
    if refusal.until_ms is not None:
        figures.append(f"until {clock(refusal.until_ms)}")
    subject = refusal.broker or refusal.namespace or ", ".join(refusal.subjects[:3])
    prefix = f"{subject}: " if subject else ""
    suffix = f" ({', '.join(figures)})" if figures else ""
    return f"{prefix}{explain_refusal(refusal.rule)}{suffix}"
