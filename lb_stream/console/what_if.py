"""What would come of something, before it is ordered: the next moves, and a cluster's present
played with other settings."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from lb_stream.console import address
from lb_stream.console.page import Page, reader_of, show
from lb_stream.console.pages import require_cluster_facts
from lb_stream.console.sources.trials import TooManyTrials, Trial, Trials
from lb_stream.core.commands.base import WhatIf
from lb_stream.core.shedding.base import shedder, traits_of
from lb_stream.query.past.tables import build_lake_query, load_recent_history
from lb_stream.query.present.next_moves import DEFAULT, find_next_moves
from lb_stream.query.screens import brokers
from lb_stream.query.screens.over_time import Chart, Line
from lb_stream.sim.scenario.from_history import LoadHistory
from lb_stream.sim.simulation.prediction import CHANGED, FIGURES, predict_change

MINUTES = ("30", "60", "240")
"""How long the present may be played."""
MOVES = ("20", "50", "200")
SHOWN_MOVES = 20
"""Moves of a played present that are listed."""


def trials_of(request: Request) -> Trials:
    """The app's."""
    found: Trials = request.app.state.trials
    return found


def _put(
    request: Request, key: tuple[Any, ...], compute: Callable[[Callable[[float], None]], Any]
) -> Trial:
    try:
        return trials_of(request).put(key, compute)
    except TooManyTrials:
        raise HTTPException(
            503, "too much is being tried: load the page again in a minute"
        ) from None


# --- the next moves ---


def plan_page(request: Request) -> Response:
    """The best next moves, as a strategy sees them now."""
    page, cluster = Page(request), address.require_text(request, "cluster")
    require_cluster_facts(page, cluster)
    strategies = [name for name in shedder.names if traits_of(shedder[name]).chooses_destination]
    strategy = address.read_choice(
        request, "strategy", tuple(sorted(strategies, key=lambda name: name != DEFAULT))
    )
    most, reader = int(address.read_choice(request, "moves", MOVES)), reader_of(request)

    def found(_: Callable[[float], None]) -> Any:
        with reader.lake() as lake:
            return find_next_moves(lake, cluster, {"shedding_strategy": strategy}, most)

    trial = _put(request, ("plan", cluster, strategy, most), found)
    return show(
        page,
        "plan.html",
        cluster=cluster,
        trial=trial,
        strategies=strategies,
        strategy=strategy,
        most=str(most),
        choices=MOVES,
        live=not trial.over,
    )


# --- another present ---


def what_if_page(request: Request) -> Response:
    """A cluster's present, played as it is and changed."""
    page, cluster = Page(request), address.require_text(request, "cluster")
    require_cluster_facts(page, cluster)
    key, changes, drained, minutes = _tried(request, cluster)
    trial = (
        _put(request, key, _played(request, cluster, changes, drained, minutes))
        if changes or drained
        else None
    )
    return show(
        page,
        "what-if.html",
        cluster=cluster,
        trial=trial,
        drained=drained,
        strategies=("", *shedder.names),
        strategy=address.read_text(request, "strategy"),
        changes=address.read_text(request, "changes"),
        minutes=str(minutes),
        choices=MINUTES,
        brokers=(
            "",
            *page.ask(("alive", cluster), lambda lake: brokers.list_alive_brokers(lake, cluster)),
        ),
        chart=address.link("what-if/chart", **dict(request.query_params)),
        most=SHOWN_MOVES,
        figures=FIGURES,
        changed=CHANGED,
        live=trial is not None and not trial.over,
    )


def what_if_chart_answer(request: Request) -> Response:
    """The greatest usage of both as lines over the same times."""
    key, *_ = _tried(request, address.require_text(request, "cluster"))
    trial = trials_of(request).known(key)
    if trial is None or trial.found is None:
        raise HTTPException(404, "nothing of this has been played lately: load the page of what if")
    at_ms, played = trial.found["at_ms"], trial.found["played"]
    times = next(iter(played.values())).t_s
    lines = tuple(
        Line(name, "one", tuple(round(value, 4) for value in result.max_usage))
        for name, result in played.items()
    )
    return JSONResponse(
        Chart(tuple(at_ms + round(1000 * t_s) for t_s in times), lines, "ratio", ()).to_dict()
    )


def _tried(
    request: Request, cluster: str
) -> tuple[tuple[Any, ...], dict[str, str], tuple[str, ...], int]:
    """Key, settings, drained brokers and minutes that an address asks for.

    Raises HTTPException(400).
    """
    minutes = int(address.read_choice(request, "minutes", MINUTES))
    changes = dict(_settings(address.read_text(request, "changes")))
    if strategy := address.read_text(request, "strategy"):
        changes["shedding_strategy"] = strategy
    drain = address.read_text(request, "drain")
    drained = (drain,) if drain else ()
    return (
        ("what-if", cluster, tuple(sorted(changes.items())), drained, minutes),
        changes,
        drained,
        minutes,
    )


def _settings(text: str) -> Iterator[tuple[str, str]]:
    """Lines of KEY=VALUE."""
    for line in filter(None, map(str.strip, text.splitlines())):
        name, equals, value = line.partition("=")
        if not equals:
            raise HTTPException(
                400,
                f"{line}: expected KEY=VALUE, one a line, such as overloaded_threshold_percent=70",
            )
        yield name.strip().removeprefix("balancer."), value.strip()


def _played(
    request: Request,
    cluster: str,
    changes: Mapping[str, str],
    drained: tuple[str, ...],
    minutes: int,
) -> Callable[[Callable[[float], None]], Any]:
    reader = reader_of(request)

    def played(tell: Callable[[float], None]) -> Any:
        with reader.lake() as lake:
            history = LoadHistory(**load_recent_history(build_lake_query(lake), cluster))
        found, notes = predict_change(history, WhatIf(changes, drained), minutes, tell)
        return {"at_ms": history.to_ms, "played": found, "notes": notes}

    return played
