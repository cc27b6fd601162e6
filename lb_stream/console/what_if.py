"""The pages of forecasts: the next moves, and a cluster simulated with other settings."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar, cast

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from lb_stream.console import address
from lb_stream.console.page import Page, reader_of, render_page
from lb_stream.console.sources.computations import (
    Computation,
    Computations,
    ReportProgress,
    TooManyComputations,
)
from lb_stream.core.commands.base import WhatIf
from lb_stream.core.shedding.base import shedder, traits_of
from lb_stream.query.past.tables import build_lake_query, load_recent_history
from lb_stream.query.present.next_moves import DEFAULT_STRATEGY, find_next_moves
from lb_stream.query.screens import brokers
from lb_stream.query.screens.over_time import Chart, Line
from lb_stream.sim.scenario.from_history import LoadHistory
from lb_stream.sim.simulation.prediction import CHANGED, FIGURES, predict_change

if TYPE_CHECKING:
    from lb_stream.query.present.next_moves import NextMoves
    from lb_stream.sim.simulation.prediction import Prediction

T = TypeVar("T")

MINUTES = ("30", "60", "240")
"""Choices for how long a cluster is simulated."""
MOVES = ("20", "50", "200")
"""Choices for how many next moves are computed."""
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


def plan_page(request: Request) -> Response:
    """Show the best next moves that a strategy finds now."""
    page, cluster = Page(request), address.require_text(request, "cluster")
    page.require_cluster_facts(cluster)
    planning = [name for name in shedder.names if traits_of(shedder[name]).chooses_destination]
    strategies = sorted(planning, key=lambda name: name != DEFAULT_STRATEGY)
    strategy = address.read_choice(request, "strategy", strategies)
    max_moves = address.read_choice(request, "moves", MOVES)
    reader = reader_of(request)

    def compute(_: ReportProgress) -> NextMoves:
        with reader.open_lake() as lake:
            settings = {"shedding_strategy": strategy}
            return find_next_moves(lake, cluster, settings, int(max_moves))

    computation = _compute(request, ("plan", cluster, strategy, max_moves), compute)
    return render_page(
        page,
        "plan.html",
        cluster=cluster,
        computation=computation,
        strategies=planning,
        strategy=strategy,
        max_moves=max_moves,
        choices=MOVES,
        live=not computation.is_done,
    )


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
    """Simulations by name (as it is, changed), which begin at `at_ms`, and notes on them."""

    at_ms: int
    predictions: Mapping[str, Prediction]
    notes: tuple[str, ...]


def what_if_page(request: Request) -> Response:
    """Show a cluster's simulated next minutes, as it is and changed."""
    page, cluster = Page(request), address.require_text(request, "cluster")
    page.require_cluster_facts(cluster)
    asked = _read_request(request, cluster)
    computation = None
    if asked.has_changes:
        computation = _compute(request, asked.key, _build_simulation(request, asked))
    alive = page.ask(("alive", cluster), lambda lake: brokers.list_alive_brokers(lake, cluster))
    return render_page(
        page,
        "what-if.html",
        cluster=cluster,
        computation=computation,
        drained=asked.drained[0] if asked.drained else "",
        strategies=("", *shedder.names),
        strategy=address.read_text(request, "strategy"),
        changes=address.read_text(request, "changes"),
        minutes=str(asked.minutes),
        choices=MINUTES,
        brokers=("", *alive),
        chart=address.link("what-if/chart", **dict(request.query_params)),
        max_moves=SHOWN_MOVES,
        figures=FIGURES,
        changed=CHANGED,
        live=computation is not None and not computation.is_done,
    )


def what_if_chart_answer(request: Request) -> Response:
    """Return max usage of both simulations as the lines of a chart, in JSON."""
    asked = _read_request(request, address.require_text(request, "cluster"))
    computation = computations_of(request).find(asked.key)
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
    return JSONResponse(Chart(times_ms, lines, "ratio", ()).to_dict())


def _read_request(request: Request, cluster: str) -> WhatIfRequest:
    """Read the question from an address. Raises HTTPException(400)."""
    minutes = int(address.read_choice(request, "minutes", MINUTES))
    changes = dict(_parse_settings(address.read_text(request, "changes")))
    if strategy := address.read_text(request, "strategy"):
        changes["shedding_strategy"] = strategy
    drained = address.read_text(request, "drain")
    return WhatIfRequest(
        cluster, tuple(sorted(changes.items())), (drained,) if drained else (), minutes
    )


def _parse_settings(text: str) -> Iterator[tuple[str, str]]:
    """Yield key and value of each line KEY=VALUE. Raises HTTPException(400)."""
    for line in filter(None, map(str.strip, text.splitlines())):
        name, equals, value = line.partition("=")
        if not equals:
            raise HTTPException(
                400,
                f"{line}: expected KEY=VALUE in each line, such as overloaded_threshold_percent=70",
            )
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
        return WhatIfAnswer(history.to_ms, predictions, notes)

    return simulate
