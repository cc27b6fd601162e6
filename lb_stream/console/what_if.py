"""The pages of forecasts: the next moves, and a cluster simulated with other settings."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar, cast

from starlette.exceptions import HTTPException
from starlette.requests import Request

from lb_stream.console import address
from lb_stream.console.page import Page, Shown, reader_of
from lb_stream.console.queries import MINUTES, MOVES, InvalidField, PlanQuery, WhatIfQuery
from lb_stream.console.sources.computations import (
    Computation,
    Computations,
    ReportProgress,
    TooManyComputations,
)
from lb_stream.core.commands.base import WhatIf
from lb_stream.core.shedding.base import shedder, traits_of
from lb_stream.query.past.tables import build_lake_query, load_recent_history
from lb_stream.query.present.next_moves import find_next_moves
from lb_stream.query.screens import brokers
from lb_stream.query.screens.over_time import Chart, Line
from lb_stream.sim.scenario.from_history import LoadHistory
from lb_stream.sim.simulation.prediction import CHANGED, predict_change
from lb_stream.sim.simulation.prediction_texts import FIGURES, describe_verdict

if TYPE_CHECKING:
    from lb_stream.query.present.next_moves import NextMoves
    from lb_stream.sim.simulation.prediction import Prediction

T = TypeVar("T")

SHOWN_MOVES = 20
"""Moves of a simulation that its page lists."""


def computations_of(request: Request) -> Computations:
    """Return the application's computations."""
    computations: Computations = request.app.state.computations
    return computations


def _compute(
    request: Request, key: tuple[object, ...], compute: Callable[[ReportProgress], T]
) -> Computation[T]:
    try:
        return computations_of(request).find_or_start(key, compute)
    except TooManyComputations:
        raise HTTPException(
            503, "the console computes too many forecasts: reload this page in a minute"
        ) from None


# --- the next moves ---


def plan_page(page: Page, query: PlanQuery) -> Shown:
    """Show the best next moves that a strategy finds now."""
    cluster, strategy, max_moves = query.cluster, query.strategy, query.moves
    page.require_cluster_facts(cluster)
    planning = [name for name in shedder.names if traits_of(shedder[name]).chooses_destination]
    if strategy not in planning:
        raise InvalidField("strategy", strategy, f"one of {', '.join(planning)}")
    reader = reader_of(page.request)

    def compute(_: ReportProgress) -> NextMoves:
        with reader.open_lake() as lake:
            settings = {"shedding_strategy": strategy}
            return find_next_moves(lake, cluster, settings, max_moves)

    computation = _compute(page.request, ("plan", cluster, strategy, max_moves), compute)
    for_page = {
        "cluster": cluster,
        "computation": computation,
        "strategies": planning,
        "strategy": strategy,
        "max_moves": str(max_moves),
        "choices": tuple(map(str, MOVES)),
        "live": not computation.is_done,
    }
    return Shown(computation, for_page)


# --- what if ---


@dataclass(frozen=True, slots=True)
class WhatIfRequest:
    """The question of a what-if page: changed settings, drained brokers, simulated minutes."""

    cluster: str
    changes: tuple[tuple[str, str], ...]
    drained: tuple[str, ...]
    minutes: int

    @property
    def has_changes(self) -> bool:
        """Return whether there is anything to simulate."""
        return bool(self.changes or self.drained)

    @property
    def key(self) -> tuple[object, ...]:
        """Return the key of the computation."""
        return ("what-if", self)


@dataclass(frozen=True, slots=True)
class WhatIfAnswer:
    """Simulations by name (as it is, changed), which begin at `at_ms`, and notes on them.

    `verdict`: whether the change fits, in one sentence.
    """

    at_ms: int
    verdict: str
    predictions: Mapping[str, Prediction]
    notes: tuple[str, ...]


def what_if_page(page: Page, query: WhatIfQuery) -> Shown:
    """Show a cluster's simulated next minutes, as it is and changed."""
    cluster, request = query.cluster, page.request
    page.require_cluster_facts(cluster)
    asked = _build_request(query)
    computation = None
    if asked.has_changes:
        computation = _compute(request, asked.key, _build_simulation(request, asked))
    alive = page.ask(("alive", cluster), lambda lake: brokers.list_alive_brokers(lake, cluster))
    for_page = {
        "cluster": cluster,
        "drained": query.drain,
        "strategies": ("", *shedder.names),
        "strategy": query.strategy,
        "changes": query.changes,
        "minutes": str(query.minutes),
        "choices": tuple(map(str, MINUTES)),
        "brokers": ("", *alive),
        "chart": address.link(address.WHAT_IF_CHART, **query.model_dump(exclude_defaults=True)),
        "max_moves": SHOWN_MOVES,
        "figures": FIGURES,
        "changed": CHANGED,
        "live": computation is not None and not computation.is_done,
    }
    return Shown({"computation": computation}, for_page)


def what_if_chart_answer(page: Page, query: WhatIfQuery) -> Shown:
    """Show max usage of both simulations as the lines of a chart."""
    computation = computations_of(page.request).find(_build_request(query).key)
    if computation is None or computation.result is None:
        raise HTTPException(
            404, "there is no recent simulation of this: load the page of what if first"
        )
    answer = cast("WhatIfAnswer", computation.result)
    times_s = next(iter(answer.predictions.values())).t_s
    lines = tuple(
        Line(name, "single", tuple(round(usage, 4) for usage in result.max_usage))
        for name, result in answer.predictions.items()
    )
    times_ms = tuple(answer.at_ms + round(1000 * t_s) for t_s in times_s)
    return Shown(Chart(times_ms, lines, "ratio", ()))


def _build_request(query: WhatIfQuery) -> WhatIfRequest:
    """Build the question from an address. Raises InvalidField."""
    changes = dict(_parse_settings(query.changes))
    if query.strategy:
        changes["shedding_strategy"] = query.strategy
    drained = (query.drain,) if query.drain else ()
    return WhatIfRequest(query.cluster, tuple(sorted(changes.items())), drained, query.minutes)


def _parse_settings(text: str) -> Iterator[tuple[str, str]]:
    """Yield key and value of each line KEY=VALUE. Raises InvalidField."""
    for line in filter(None, map(str.strip, text.splitlines())):
        name, equals, value = line.partition("=")
        if not equals:
            expected = "KEY=VALUE in each line, such as overloaded_threshold_percent=70"
            raise InvalidField("changes", line, expected)
        yield name.strip().removeprefix("balancer."), value.strip()


def _build_simulation(
    request: Request, asked: WhatIfRequest
) -> Callable[[ReportProgress], WhatIfAnswer]:
    """Return the function that runs both simulations."""
    reader = reader_of(request)

    def simulate(report_progress: ReportProgress) -> WhatIfAnswer:
        with reader.open_lake() as lake:
            rows = load_recent_history(build_lake_query(lake), asked.cluster)
        history = LoadHistory(**rows)
        changes = WhatIf(dict(asked.changes), asked.drained)
        predictions, notes = predict_change(history, changes, asked.minutes, report_progress)
        return WhatIfAnswer(history.to_ms, describe_verdict(predictions), predictions, notes)

    return simulate
