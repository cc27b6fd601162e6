"""The best next moves of a cluster as its tables have it now, for an operator who wants to do them
by hand."""

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
from lb_stream.query.present.view import load_present_view
from lb_stream.query.wording import explain_refusal, place_of_rule
from lb_stream.settings.names import normalise_names
from lb_stream.settings.overrides import without_approval
from lb_stream.settings.resolve import apply_overrides, resolve

if TYPE_CHECKING:
    from lb_stream.query.lake import Lake, Row


DEFAULT = "LeastMoves"
_NO_LIMIT = 10**9
_BY_HAND: Mapping[str, object] = {
    **{
        "enabled": True,
        "shedding_enabled": True,
        "shedding_interval_ms": 0,
        "split_enabled": False,
    },
    "merge_advice_enabled": False,
    **dict.fromkeys(
        ("max_moves_in_flight", "max_moves_in_flight_per_broker", "max_moves_per_minute"), _NO_LIMIT
    ),
    "least_moves_max_moves_into_broker": _NO_LIMIT,
    **{"max_moved_mb_per_minute": None, "placement_strategy": "LeastLongTermMessageRate"},
}
"""Settings under which the strategy is asked: a balancer that is switched off, or must not do much
at a time, is no reason not to plan."""
_ABOUT_MOVES = ("operators", "suspension", "limits", "policies", "strategy")

Usages = tuple[float, float, float | None, float | None]
"""Of one move: the source's before and after it, then the destination's."""


@dataclass(frozen=True, slots=True)
class NextMoves:
    """What a strategy would do next.

    Usages are by its own measure, or, where it doesn't tell, by the load model of moves in flight.
    """

    cluster: str
    strategy: str
    own_strategy: str  # the cluster's
    dry_run: bool  # the cluster's brokers are told nothing
    at_ms: int
    groups: tuple[
        tuple[Row, ...], ...
    ]  # of moves, in order: what belongs together, nearly always a single one
    planned: int  # moves of the whole plan, of which these are the first
    fewest: int | None  # that there must be at least
    fullest: str | None  # the broker that is most above an even load after these moves
    max_over_even_before: float | None  # usage ÷ an even load, the greatest
    max_over_even_after: float | None
    reasons: tuple[str, ...]  # why that is not lower
    unsure: str  # what the strategy doesn't know well yet

    @property
    def moves(self) -> tuple[Row, ...]:
        """All of them, in order."""
        return tuple(move for group in self.groups for move in group)

    def to_dict(self) -> Row:
        """As JSON-able fields."""
        fields = {name: getattr(self, name) for name in self.__slots__ if name != "groups"}
        return fields | {"moves": self.moves}


def find_next_moves(
    lake: Lake, cluster: str | None, tried: Mapping[str, object], most: int
) -> NextMoves:
    """The first moves that a strategy would make now, `most` of them at most.

    `tried`: settings to ask it with, over the cluster's.

    What it remembers is the logged memory if it is the cluster's own strategy; else it begins
    without any, and waits for nothing. Raises QueryError (exit code 2) for an unknown cluster or a
    strategy that names no destinations, SettingError for a setting.
    """
    require_cluster(lake, cluster)
    here = require_single_cluster_in(lake, cluster)
    config, memory = _asked(here, normalise_names(tried))
    view = load_present_view(lake, here.cluster, config.balancer.weights, here.now_ms)
    made = decide(view, memory, Inbox(), config)
    mine = [
        decision
        for decision in made.decisions
        if decision.kind in MOVES and decision.strategy == config.shedder.name
    ]
    bundles = made.view.bundles
    proposals = {bundles.name(proposal.bundle): proposal for proposal in made.proposed.proposals}
    groups = tuple(_first(mine, proposals, most))
    shown = [decision for group in groups for decision in group]
    steps = list(_steps(made, [proposals[decision.bundle] for decision in shown]))
    rows = iter(
        [
            _row(decision, proposals[decision.bundle].cost, usages)
            for decision, usages in zip(shown, steps, strict=True)
        ]
    )
    before, after, fullest = _max_over_even(
        made, [proposals[decision.bundle] for decision in shown], steps
    )
    facts = made.proposed.plan
    return NextMoves(
        cluster=here.cluster,
        strategy=config.shedder.name,
        own_strategy=here.config.shedder.name,
        dry_run=here.config.balancer.dry_run,
        at_ms=view.now_ms,
        groups=tuple(
            tuple(
                next(rows) | ({"why_not": "part of an exchange"} if len(group) > 1 else {})
                for _ in group
            )
            for group in groups
        ),
        planned=len(mine),
        fewest=None if facts is None else facts.fewest,
        fullest=fullest,
        max_over_even_before=before,
        max_over_even_after=after,
        reasons=tuple(_reasons(made, config.shedder.name, len(shown), len(mine), after)),
        unsure="" if facts is None else facts.unsure,
    )


def _asked(here: ClusterState, tried: Mapping[str, object]) -> tuple[ClusterConfig, Memory]:
    """The settings and the memory that the strategy is asked with."""
    wanted = str(tried.get("shedding_strategy", DEFAULT))
    settings = without_approval(
        {
            **apply_overrides(here.given, here.operator_state.settings),
            **_BY_HAND,
            "shedding_strategy": wanted,
        }
    )
    config = resolve({**settings, **tried}).config
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
        config = resolve({**settings, **traits.no_wait_settings, **tried}).config
    operator_state = replace(here.operator_state, settings={}, paused=False)
    return config, replace(
        here.memory, operator_state=operator_state, strategies=remembered, last_shed_ms=None
    )


def _first(
    decisions: Sequence[Decision], proposals: Mapping[str, Unload], most: int
) -> Iterator[tuple[Decision, ...]]:
    """The first of them in their order, what belongs together as one."""
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


def _steps(made: Round, moves: Sequence[Unload]) -> Iterator[Usages]:
    """Of each move in turn, as the strategy tells or, else, as loads follow moves in flight."""
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


def _row(decision: Decision, cost: float | None, usages: Usages) -> Row:
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
        "why_not": _why_not(decision, usages[3], None if second is None else second.score),
        **dict(
            zip(
                ("source_before", "source_after", "destination_before", "destination_after"),
                usages,
                strict=True,
            )
        ),
        "rule": decision.rule,
    }


def _why_not(decision: Decision, usage: float | None, other: float | None) -> str:
    """Why the second-best destination was not taken, where its usage doesn't say so, or why there
    is none."""
    if other is None:
        return "nobody else has room" if decision.explain.candidates else ""
    return "takes more moves in all" if usage is not None and other < usage else ""


def _max_over_even(
    made: Round, moves: Sequence[Unload], steps: Sequence[Usages]
) -> tuple[float | None, float | None, str | None]:
    """The greatest usage against an even load, before and after these moves, and whose it is
    then."""
    facts, brokers = made.proposed.plan, made.view.brokers
    there = made.view.active
    if not there.any():
        return None, None, None
    usage: Floats = np.where(there, brokers.usage if facts is None else facts.usage, np.nan)
    mean = float(np.nanmean(usage))
    even = np.full(len(brokers), mean) if facts is None else facts.even
    after = usage.copy()
    for move, (_, source, _, destination) in zip(moves, steps, strict=True):
        after[move.source] = source
        if move.destination is not None and destination is not None:
            after[move.destination] = destination
    if not np.nanmax(usage) > 0:
        return None, None, None
    with np.errstate(divide="ignore", invalid="ignore"):
        before, then = usage / even, after / even
    fullest = int(np.nanargmax(then))
    return float(np.nanmax(before)), float(then[fullest]), brokers.names[fullest]


def _reasons(
    made: Round, strategy: str, shown: int, planned: int, greatest: float | None
) -> Iterator[str]:
    """Why the greatest usage is not lower."""
    facts = made.proposed.plan
    if shown < planned:
        first = "" if shown else ", and the first ones belong together"
        yield f"{planned - shown} more moves are planned{first}: --moves {planned} shows all"
    about_moves = [
        _describe_refusal(refusal)
        for refusal in made.refusals
        if place_of_rule(refusal.rule) in _ABOUT_MOVES
    ]
    yield from about_moves
    if facts is not None and greatest is not None and greatest <= facts.trigger:
        yield f"nobody is above {facts.trigger:g} of an even load" + (" then" if shown else "")
    elif not planned and not about_moves:
        yield f"{strategy} sees nobody to relieve under these settings"


def _describe_refusal(refused: Refusal) -> str:
    seen = figure(refused.greatest, refused.unit) if refused.greatest is not None else ""
    limit = f"limit {figure(refused.limit, refused.unit)}" if refused.limit is not None else ""
    until = f"until {clock(refused.until_ms)}" if refused.until_ms is not None else ""
    beside = ", ".join(filter(None, (seen, limit, until)))
    of = refused.broker or refused.namespace or ", ".join(refused.subjects[:3])
    return (
        (f"{of}: " if of else "")
        + explain_refusal(refused.rule)
        + (f" ({beside})" if beside else "")
    )
