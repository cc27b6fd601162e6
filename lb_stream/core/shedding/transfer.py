"""TransferShedder: the extensible manager's.

It moves bundles from the fullest brokers to the emptiest and says where to.

This module makes what the decision needs: each broker's load over time, and its top bundles. The
decision itself is in `transfer_cycle`. See docs/strategies.md "TransferShedder".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Literal

import numpy as np

from lb_stream.contracts.keys import KeyModel, key
from lb_stream.core.model.names import SYSTEM_NAMESPACE, namespace_codes
from lb_stream.core.model.refusals import Refusal, refusal
from lb_stream.core.model.resources import max_weighted_usage
from lb_stream.core.model.rules import Refuses
from lb_stream.core.model.view import Bools, ClusterView, Floats, Ints
from lb_stream.core.shedding.base import ShedContext, Traits, Unload, Unloads, shedder
from lb_stream.core.shedding.broker_loads import ASSUMED_FULL, BrokerLoads, five_weights
from lb_stream.core.shedding.top_bundles import reported_top
from lb_stream.core.shedding.transfer_cycle import Cycle, CycleLimits, LoadStore, Top, run_cycle


class TransferShedderConfig(KeyModel):
    """Settings of TransferShedder."""

    target_std: float = key(
        0.25,
        "Act when the brokers' loads deviate by more than this. A smaller value gives a more "
        "even load.",
        unit="ratio",
        pulsar="loadBalancerBrokerLoadTargetStd",
        ge=0,
    )
    hit_count_threshold: int = key(
        3,
        "Act after more than this many uneven passes in a row.",
        unit="rounds",
        pulsar="loadBalancerSheddingConditionHitCountThreshold",
        ge=0,
    )
    transfer_enabled: bool = key(
        True,
        "The destination is named with the unload. When off, it is chosen once the bundle has "
        "been released.",
        pulsar="loadBalancerTransferEnabled",
    )
    max_brokers_per_cycle: int = key(
        3,
        "Maximum brokers that are relieved in one pass.",
        unit="brokers",
        pulsar="loadBalancerMaxNumberOfBrokerSheddingPerCycle",
        ge=0,
    )
    unload_delay_ms: int = key(
        180_000,
        "No pass runs while a broker's report is less than this younger than its last unload.",
        unit="ms",
        pulsar="loadBalanceSheddingDelayInSeconds",
        factor=1_000,
        ge=0,
    )
    load_data_ttl_ms: int = key(
        1_800_000,
        "A broker's load counts for this long.",
        unit="ms",
        pulsar="loadBalancerBrokerLoadDataTTLInSeconds",
        factor=1_000,
        ge=0,
    )
    top_bundles: int = key(
        10,
        "how many of a broker's heaviest bundles are looked at",
        unit="bundles",
        pulsar="loadBalancerMaxNumberOfBundlesInBundleLoadReport",
        ge=0,
    )
    shed_bundles_with_policies: bool = key(
        False,
        "move bundles of namespaces with isolation policies or anti-affinity groups too",
        pulsar="loadBalancerSheddingBundlesWithPoliciesEnabled",
    )
    overloaded_threshold_percent: float = key(
        85,
        "a broker above it, and above the average by target_std, is overloaded",
        unit="%",
        pulsar="loadBalancerBrokerOverloadedThresholdPercentage",
        ge=0,
        le=100,
    )
    history_ratio: float = key(
        0.9,
        "Weight of the past in a broker's smoothed usage.",
        pulsar="loadBalancerHistoryResourcePercentage",
        ge=0,
        le=1,
    )
    memory_weight: float | None = key(
        None,
        "weight of heap memory in a broker's load; unset: 0",
        pulsar="loadBalancerMemoryResourceWeight",
        ge=0,
    )
    debug_mode: bool = key(
        False,
        "the reference's debug mode, which changes what swaps count for",
        pulsar="loadBalancerDebugModeEnabled",
    )
    transfer_swap_gain: Literal["debug_only", "always"] = key(
        "debug_only",
        "when the bundles that a swap brings back count for the next ones: only in debug mode, as "
        "in the reference, or always",
    )

    @property
    def limits(self) -> CycleLimits:
        """The same as the decision takes them."""
        return CycleLimits(
            target_std=self.target_std,
            hit_count_threshold=self.hit_count_threshold,
            transfer=self.transfer_enabled,
            max_brokers=self.max_brokers_per_cycle,
            delay_ms=self.unload_delay_ms,
            ttl_ms=self.load_data_ttl_ms,
            overloaded=self.overloaded_threshold_percent / 100.0,
            counts_gain=self.debug_mode or self.transfer_swap_gain == "always",
        )


@dataclass(frozen=True, slots=True)
class TransferMemory:
    """Uneven passes in a row, and of each broker its smoothed load (ratio), smoothed throughput
    (bytes/s) and number of bundles."""

    hits: int
    brokers: Mapping[str, tuple[float, float, int]]

    @staticmethod
    def read(data: Mapping[str, Any]) -> TransferMemory:
        """From the JSON object of the last round."""
        brokers = {
            str(name): (float(load), float(flow), int(count))
            for name, (load, flow, count) in data.get("brokers", {}).items()
        }
        return TransferMemory(int(data.get("hits", 0)), brokers)

    def to_dict(self) -> dict[str, Any]:
        """As the JSON object that `read` takes."""
        return {
            "hits": self.hits,
            "brokers": {name: list(row) for name, row in self.brokers.items()},
        }


def observe(
    view: ClusterView, config: TransferShedderConfig, memory: TransferMemory
) -> TransferMemory:
    """Smooth the load of each broker that has sent a new sample; one whose bundles have changed
    starts anew with it.

    The reference withdraws such a broker's load until its next report; here the report that shows
    the change is that report. What a broker has smoothed itself is taken as it says.
    """
    brokers, counts = view.brokers, view.bundle_counts()
    known, before = _loads(view, memory)
    changed = counts < known
    owner = view.bundles.owner
    changed[owner[view.bundles.gained & (owner >= 0)]] = True
    changed &= before.known
    rows = brokers.sampled | changed | ~before.known
    after = before.cleared(changed).updated(
        _usage(view, config), brokers.latest.throughput, config.history_ratio, rows
    )
    after = after.reported(brokers.load_ema, brokers.throughput_ema)
    remembered = zip(
        brokers.names, after.load.tolist(), after.throughput.tolist(), counts.tolist(), strict=True
    )
    alive = brokers.alive.tolist()
    return TransferMemory(
        memory.hits,
        {
            name: (load, flow, count)
            for row, (name, load, flow, count) in enumerate(remembered)
            if alive[row]
        },
    )


def _loads(view: ClusterView, memory: TransferMemory) -> tuple[Ints, BrokerLoads]:
    """What is remembered of each broker: its number of bundles, its loads."""
    nothing = (ASSUMED_FULL, 0.0, 0)
    rows = [memory.brokers.get(name, nothing) for name in view.brokers.names]
    load, flow, counts = np.array(rows).reshape(-1, 3).T
    known = np.array([name in memory.brokers for name in view.brokers.names], np.bool_)
    return counts.astype(np.int64), BrokerLoads(load.copy(), flow.copy(), known)


def _usage(view: ClusterView, config: TransferShedderConfig) -> Floats:
    return max_weighted_usage(
        view.brokers.resources, five_weights(view.brokers.weights, config.memory_weight)
    )


def followed_loads(memory: TransferMemory) -> dict[str, float]:
    """Broker → its smoothed load."""
    return {name: load for name, (load, _, _) in memory.brokers.items()}


def forget_plan(before: TransferMemory, after: TransferMemory) -> TransferMemory:
    """Count the uneven passes on: the cluster is as uneven as it was."""
    return TransferMemory(before.hits, after.brokers)


TransferContext = ShedContext[TransferShedderConfig, TransferMemory]

TRAITS = Traits(
    manager="extensible",
    chooses_destination=True,
    observe=observe,
    forget_plan=forget_plan,
    loads=followed_loads,
    no_wait_settings={"hit_count_threshold": 0},
)


@shedder("TransferShedder", config=TransferShedderConfig, memory=TransferMemory.read, traits=TRAITS)
def transfer_from_fullest(context: TransferContext) -> tuple[Unloads, TransferMemory]:
    """Move top bundles from the fullest brokers to the emptiest, when the cluster has been uneven
    for some passes.

    Loads are ratios, throughputs bytes/s. While moves are unconfirmed no pass is made: the
    reference waits for them too.
    """
    view, config, memory = context.view, context.config, context.memory
    if context.unloading:
        return Unloads(
            refusals=(refusal(Refuses.UNLOADING, None, context.unloading, limit=0),)
        ), memory
    if not all(
        name in memory.brokers
        for row, name in enumerate(view.brokers.names)
        if view.brokers.alive[row]
    ):
        memory = observe(context.reported, config, memory)
    alive = np.flatnonzero(view.brokers.alive)
    store = store_of(replace(context, memory=memory))

    def may_take(bundle: int, place: int) -> bool:
        return context.may_take(bundle, int(alive[place]))

    cycle = run_cycle(store, config.limits, memory.hits, context.unloaded, may_take, view.now_ms)
    proposals = tuple(
        Unload(
            move.bundle,
            int(alive[move.source]),
            move.why.reason,
            move.why.rule,
            move.why.saw,
            move.why.limit,
            cycle.average,
            move.expected_after
            if np.isfinite(move.expected_after)
            else None,  # a source that reports no throughput
            None if move.destination is None else int(alive[move.destination]),
            move.in_return,
        )
        for move in cycle.moves
    )
    return Unloads(proposals, tuple(_refusals(view, store, config, cycle))), TransferMemory(
        cycle.hits, memory.brokers
    )


def store_of(context: TransferContext) -> LoadStore:
    """The loads of the live brokers, moves in flight counted, and their top bundles.

    Rows are the live brokers' in order.
    """
    view, config, reported = context.view, context.config, context.reported
    _, loads = _loads(view, context.memory)
    load, flow, latest = loads.load, loads.throughput, view.brokers.latest.throughput
    if reported is not view:
        moved = latest - reported.brokers.latest.throughput
        load = load + np.where(moved != 0, _usage(view, config) - _usage(reported, config), 0.0)
        flow = np.maximum(flow + moved, 0.0)
    alive = np.flatnonzero(view.brokers.alive)
    names = tuple(view.brokers.names[row] for row in alive.tolist())
    lists = _TopLists(view, config, context.eligible, context.movable)
    return LoadStore(
        names,
        load[alive],
        flow[alive],
        latest[alive],
        view.brokers.reported_ms[alive],
        cache(lambda place: lists.of(int(alive[place]))),
    )


class _TopLists:
    """The top bundles of one broker after the other.

    The bundles are put in order of their brokers once, at the first question.
    """

    def __init__(
        self, view: ClusterView, config: TransferShedderConfig, eligible: Bools, movable: Bools
    ) -> None:
        self.view, self.config, self.eligible, self.movable = view, config, eligible, movable
        self._rows: np.ndarray[Any, np.dtype[np.intp]] | None = None
        self._starts = np.zeros(1, np.int64)

    def of(self, broker: int) -> Top:
        """Its `top_bundles` heaviest by their latest statistics.

        O(bundles) once, then O(n log n) in the broker's own.
        """
        rows = self._of_broker(broker)
        bundles = self.view.bundles
        connections = bundles.topics[rows] + bundles.sessions[rows]
        stats = bundles.latest.take(rows)
        rows = rows[
            reported_top(
                stats,
                connections,
                bundles.cache_bytes[rows],
                np.ones(len(rows), np.bool_),
                self.config.top_bundles,
            )
        ]
        return Top(rows, bundles.latest.take(rows).throughput, self.eligible[rows])

    def _of_broker(self, broker: int) -> np.ndarray[Any, np.dtype[np.intp]]:
        if self._rows is None:
            owner = np.where(self._reported(), self.view.bundles.owner, -1)
            brokers = len(self.view.brokers)
            # Sixteen bits are sorted by radix: a million bundles in milliseconds.
            self._rows = np.argsort(
                owner.astype(np.int16) if brokers < 2**15 else owner, kind="stable"
            )
            self._starts = np.cumsum(np.bincount(owner + 1, minlength=brokers + 1))
        return self._rows[self._starts[broker] : self._starts[broker + 1]]

    def _reported(self) -> Bools:
        """Bundles that a broker would report among its top ones, if they are heavy enough."""
        view = self.view
        reported = self.movable & ~view.bundles.system
        reported[view.bundles.rows_of_namespace(SYSTEM_NAMESPACE)] = False
        policies = view.policies
        if not self.config.shed_bundles_with_policies and (
            policies.isolation or policies.anti_affinity
        ):
            codes, namespaces = namespace_codes(view.bundles.names)
            bound = [
                policies.isolation_of(name) is not None or policies.group_of(name) is not None
                for name in namespaces
            ]
            reported &= ~np.array(bound, np.bool_)[codes]
        return reported


_SKIPS = {
    "NoBrokers": Refuses.NO_BROKERS,
    "NoLoadData": Refuses.NO_LOAD_DATA,
    "NoBundles": Refuses.NO_BUNDLES_TO_MOVE,
}


def _refusals(
    view: ClusterView, store: LoadStore, config: TransferShedderConfig, cycle: Cycle
) -> list[Refusal]:
    """Why the pass, a source or a bundle was left out."""
    found = [
        refusal(
            kept.rule,
            store.names[kept.source],
            map(view.bundles.name, kept.bundles),
            saw=kept.saw,
            limit=kept.limit,
        )
        for kept in cycle.kept
    ]
    if config.max_brokers_per_cycle == 0 and cycle.hits > config.hit_count_threshold:
        found.append(refusal(Refuses.NONE_IN_A_PASS, None, saw=[0], limit=0))
        return found
    if cycle.skip == "CoolDown":
        ages = {
            name: int(at) - cycle.unloaded[name]
            for name, at in zip(store.names, store.updated_ms, strict=True)
            if name in cycle.unloaded
        }
        young = {name: age for name, age in ages.items() if age < config.unload_delay_ms}
        found.append(
            refusal(
                Refuses.COOL_DOWN, None, young, saw=young.values(), limit=config.unload_delay_ms
            )
        )
    elif cycle.skip == "HitCount" and cycle.hits:
        found.append(
            refusal(Refuses.HIT_COUNT, None, saw=[cycle.hits], limit=config.hit_count_threshold)
        )
    elif cycle.skip == "OutDatedData":
        ages_ms = view.now_ms - store.updated_ms
        found.append(
            refusal(
                Refuses.OUTDATED_DATA, None, store.names, saw=ages_ms, limit=config.load_data_ttl_ms
            )
        )
    elif cycle.skip is not None and cycle.skip != "HitCount":
        found.append(refusal(_SKIPS[cycle.skip], None, store.without_data))
    return found
