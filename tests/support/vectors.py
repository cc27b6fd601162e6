"""Recorded inputs and results of Pulsar's own classes (tests/data/vectors), and the core asked the
same."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from lb_stream.core.averages import DEFAULT_RATES
from lb_stream.core.model.view import ClusterView
from lb_stream.core.placement.base import PlacementContext, Targets
from lb_stream.core.shedding.base import ShedContext
from lb_stream.core.shedding.transfer import TransferShedderConfig
from lb_stream.core.shedding.transfer_cycle import Cycle, LoadStore, Top, run_cycle
from lb_stream.settings.resolve import cluster_config
from tests.conformance.forms import view_of_loads

PROFILES = ("pulsar-4.0", "documented")


def vector(name: str) -> Any:
    return json.loads(
        (Path(__file__).parents[1] / "data" / "vectors" / f"{name}.json").read_text(
            encoding="utf-8"
        )
    )


def loads(
    usage: dict[str, float],
    throughput: float = 0.0,
    bundles: dict[str, dict[str, float]] | None = None,
) -> dict[str, Any]:
    """LOADDATA of brokers with the given cpu usage, and throughput (in) of some brokers'
    bundles."""
    owned = bundles or {}
    return {
        "brokers": {
            name: {
                "cpu": [cpu * 100, 100],
                "msgThroughputIn": throughput if name in owned else 0.0,
                "bundles": list(owned.get(name, {})),
            }
            for name, cpu in usage.items()
        },
        "bundleData": {
            name: {"short": [load, 0, 0, 0]}
            for mine in owned.values()
            for name, load in mine.items()
        },
    }


def shed(
    given: dict[str, Any], settings: dict[str, Any]
) -> tuple[dict[str, list[str]], Any, ClusterView]:
    """One pass of the configured shedder: broker → bundles, its memory, what it saw."""
    config = cluster_config(settings)
    view = view_of_loads(given, config.balancer.weights)
    unloads, memory = config.shedder.function(
        ShedContext.build(view, config.shedder_config, config.shedder.memory({}))
    )
    found: dict[str, list[str]] = {}
    for proposal in unloads.proposals:
        found.setdefault(view.brokers.names[proposal.source], []).append(
            view.bundles.name(proposal.bundle)
        )
    return found, (unloads, memory), view


def place(
    brokers: dict[str, Any], settings: dict[str, Any], preallocated: dict[str, int] | None = None
) -> tuple[list[str], dict[str, float]]:
    """(the best brokers, every broker's score).

    Preallocated bundles have default averages: 50 + 50 msg/s.
    """
    config = cluster_config(settings)
    waiting = [
        (name, f"p{index}")
        for name, count in (preallocated or {}).items()
        for index in range(count)
    ]
    data = {
        "brokers": {name: {"cpu": [one["usage"] * 100, 100]} for name, one in brokers.items()},
        "bundleData": {bundle: {"short": list(DEFAULT_RATES)} for _, bundle in waiting},
    }
    targets = Targets.from_view(view_of_loads(data, config.balancer.weights))
    names = targets.view.brokers.names
    targets.long_rate[:] = [broker["longRate"] for broker in brokers.values()]
    for name, bundle in waiting:
        targets.add(int(targets.view.bundles.rows_of([bundle])[0]), names.index(name))
    best, _ = config.placement.function(
        PlacementContext(targets, np.arange(len(names)), 0, config.placement_config, None)
    )
    return [names[row] for row in best.rows], dict(zip(names, best.scores.tolist(), strict=True))


NOW_MS = 1_700_000_000_000


def settings_of(given: dict[str, Any], **own: Any) -> dict[str, Any]:
    return {name: value for name, value in given.items() if not name.startswith("_")} | own


def cycles(
    case: dict[str, Any], rounds: int = 4, **settings: Any
) -> list[tuple[Cycle, list[list[Any]]]]:
    """Some passes over a cluster that stays as it is: what each came to, and its moves as [bundle,
    source, destination, reason]."""
    given = settings_of(
        vector("shed_transfer")["config"], shedding_strategy="TransferShedder", **settings
    )
    config = cluster_config(given).shedder_config
    assert isinstance(config, TransferShedderConfig)
    brokers, lists = case["brokers"], case["topBundles"]
    names = [name for rows in lists.values() for name, _ in rows]

    def top(row: int, _soon: Iterable[int]) -> Top:
        rows = lists.get(list(brokers)[row], [])
        loads = np.array([load for _, load in rows], float)
        return Top(
            np.array([names.index(name) for name, _ in rows], np.intp),
            loads,
            np.ones(len(rows), np.bool_),
        )

    store = LoadStore(
        tuple(brokers),
        np.array([broker["weightedMaxEMA"] for broker in brokers.values()]),
        np.array([broker["msgThroughputEMA"] for broker in brokers.values()], float),
        np.array([broker["throughput"] for broker in brokers.values()], float),
        np.full(len(brokers), NOW_MS),
        top,
    )
    found, hits = [], 0
    for _ in range(rounds):
        cycle = run_cycle(store, config.limits, hits, {}, lambda *_: True, NOW_MS)
        hits = cycle.hits
        places = [(move.source, move.destination) for move in cycle.moves]
        ends = [[None if row is None else store.names[row] for row in pair] for pair in places]
        found.append(
            (
                cycle,
                [
                    [names[move.bundle], *end, move.why.reason]
                    for move, end in zip(cycle.moves, ends, strict=True)
                ],
            )
        )
    return found
