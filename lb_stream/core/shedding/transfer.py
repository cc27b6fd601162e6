"""TransferShedder: move top bundles from the fullest brokers to the emptiest.

It belongs to the extensible manager, and names the destination of each move. This module follows
the load of each broker and finds its top bundles; `transfer_cycle` chooses the moves.
See docs/strategies.md "TransferShedder".
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from math import isfinite
from operator import itemgetter
from typing import Literal

import msgspec
import numpy as np

from lb_stream.contracts.keys import KeyModel, key
from lb_stream.core.model.names import SYSTEM_NAMESPACE, namespace_codes
from lb_stream.core.model.refusals import Refusal, refusal
from lb_stream.core.model.registry import read_memory
from lb_stream.core.model.resources import max_weighted_usage
from lb_stream.core.model.rules import Refuses
from lb_stream.core.model.view import Bools, ClusterView, Floats, Ints, Rows
from lb_stream.core.shedding.base import (
    Choosable,
    ShedContext,
    Traits,
    Unload,
    Unloads,
    rows_by_broker,
    shedder,
)
from lb_stream.core.shedding.broker_loads import BrokerLoads, five_weights
from lb_stream.core.shedding.top_bundles import reported_tops
from lb_stream.core.shedding.transfer_cycle import Cycle, CycleLimits, LoadStore, Top, run_cycle


class TransferShedderConfig(KeyModel):
    """Settings of TransferShedder."""

    target_std: float = key(
        0.25,
        "The load is uneven when the standard deviation of the brokers' loads is above this. A "
        "smaller value gives a more even load.",
        unit="ratio",
        pulsar="loadBalancerBrokerLoadTargetStd",
        ge=0,
    )
    hit_count_threshold: int = key(
        3,
        "Bundles move after more than this many uneven passes in a row.",
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
        "No pass runs before every broker has reported this long after its last unload.",
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
        "The number of a broker's heaviest bundles that are considered.",
        unit="bundles",
        pulsar="loadBalancerMaxNumberOfBundlesInBundleLoadReport",
        ge=0,
    )
    shed_bundles_with_policies: bool = key(
        False,
        "Bundles of namespaces with isolation policies or anti-affinity groups move too.",
        pulsar="loadBalancerSheddingBundlesWithPoliciesEnabled",
    )
    overloaded_threshold_percent: float = key(
        85,
        "A broker above this, and above the average by more than target_std, is overloaded.",
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
        "Weight of heap memory in a broker's load. Unset: 0.",
        pulsar="loadBalancerMemoryResourceWeight",
        ge=0,
    )
    debug_mode: bool = key(
        False,
        "The reference's debug mode, in which transfer_swap_gain is always.",
        pulsar="loadBalancerDebugModeEnabled",
    )
    transfer_swap_gain: Literal["debug_only", "always"] = key(
        "debug_only",
        "When the load that a swap brings back makes room for more moves of the pair: only in "
        "debug mode, as in the reference, or always.",
    )

    @property
    def limits(self) -> CycleLimits:
        """Return the settings in the form that the cycle takes."""
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


class _Written(msgspec.Struct):
    """The memory as it is logged."""

    hits: int = 0
    # Broker → smoothed load (ratio), smoothed throughput (bytes/s), number of bundles.
    brokers: dict[str, tuple[float, float, int]] = msgspec.field(default_factory=dict)


@dataclass(frozen=True, slots=True, eq=False)
class TransferMemory:
    """Uneven passes in a row, and the smoothed figures of each broker: a row of each column."""

    hits: int = 0
    names: tuple[str, ...] = ()
    load: Floats = field(default_factory=lambda: np.zeros(0))  # smoothed, a ratio
    throughput: Floats = field(default_factory=lambda: np.zeros(0))  # smoothed, bytes/s
    bundles: Ints = field(default_factory=lambda: np.zeros(0, np.int64))  # their number

    @staticmethod
    def read(data: Mapping[str, object]) -> TransferMemory:
        """Read the JSON object of the last round."""
        written = read_memory(data, _Written)
        names, rows = tuple(written.brokers), written.brokers.values()
        load, throughput = (
            np.fromiter(map(itemgetter(column), rows), np.float64, len(rows)) for column in (0, 1)
        )
        bundles = np.fromiter(map(itemgetter(2), rows), np.int64, len(rows))
        return TransferMemory(written.hits, names, load, throughput, bundles)

    def to_dict(self) -> dict[str, object]:
        """Return the JSON object that `read` takes."""
        figures = zip(
            self.load.tolist(), self.throughput.tolist(), self.bundles.tolist(), strict=True
        )
        rows = map(list, figures)
        return {"hits": self.hits, "brokers": dict(zip(self.names, rows, strict=True))}


def observe(
    view: ClusterView, config: TransferShedderConfig, memory: TransferMemory
) -> TransferMemory:
    """Smooth the load of each broker that has sent a new sample.

    A broker whose bundles have changed begins anew with the report that shows the change; in the
    reference with the first report after the change. Figures that a broker has smoothed itself
    replace these.
    """
    # Brokers that have lost or gained bundles.
    brokers, counts = view.brokers, view.bundle_counts()
    known, before = _remembered(view, memory)
    changed = counts < known
    owner = view.bundles.owner
    changed[owner[view.bundles.gained & (owner >= 0)]] = True
    changed &= before.known

    # The figures after this sample.
    rows = brokers.sampled | changed | ~before.known
    after = before.cleared(changed).updated(
        _usage(view, config), brokers.latest.throughput, config.history_ratio, rows
    )
    after = after.reported(brokers.load_ema, brokers.throughput_ema)
    alive = np.flatnonzero(brokers.alive)
    return TransferMemory(
        memory.hits,
        _names_of(view, alive),
        after.load[alive],
        after.throughput[alive],
        counts[alive],
    )


def _remembered(view: ClusterView, memory: TransferMemory) -> tuple[Ints, BrokerLoads]:
    """Return the remembered number of bundles and figures of each broker of the view."""
    names = view.brokers.names
    if names == memory.names:  # nearly always
        known = np.ones(len(names), np.bool_)
        return memory.bundles, BrokerLoads(memory.load, memory.throughput, known)

    # The other brokers count as before their first sample.
    row_of = {name: row for row, name in enumerate(memory.names)}
    rows = np.fromiter((row_of.get(name, -1) for name in names), np.int64, len(names))
    known = rows >= 0
    counts, loads = np.zeros(len(names), np.int64), BrokerLoads.unknown(len(names))
    counts[known] = memory.bundles[rows[known]]
    loads.load[known] = memory.load[rows[known]]
    loads.throughput[known] = memory.throughput[rows[known]]
    return counts, replace(loads, known=known)


def _usage(view: ClusterView, config: TransferShedderConfig) -> Floats:
    """Return each broker's maximum usage over the five weighted resources, a ratio."""
    return max_weighted_usage(
        view.brokers.resources, five_weights(view.brokers.weights, config.memory_weight)
    )


def followed_loads(memory: TransferMemory) -> dict[str, float]:
    """Map each broker to its smoothed load, a ratio."""
    return dict(zip(memory.names, memory.load.tolist(), strict=True))


def forget_plan(before: TransferMemory, after: TransferMemory) -> TransferMemory:
    """Return the memory with the uneven passes before this one, as the cluster is still uneven."""
    return replace(after, hits=before.hits)


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
    """Move top bundles from the fullest brokers to the emptiest, after enough uneven passes.

    Loads are ratios, throughputs bytes/s. No pass runs while moves are pending, as in the
    reference. Source: docs/strategies.md "TransferShedder".
    """
    view, config, memory = context.view, context.config, context.memory
    if context.unloading:
        waits = refusal(Refuses.UNLOADING, None, context.unloading, limit=0)
        return Unloads(refusals=(waits,)), memory

    # The loads of the live brokers; in the first round with this shedder, as reported.
    alive = np.flatnonzero(view.brokers.alive)
    names = _names_of(view, alive)
    if names != memory.names and not set(names) <= set(memory.names):
        memory = observe(context.reported, config, memory)
        context = replace(context, memory=memory)
    return shed_loads(context, build_load_store(context))


def shed_loads(context: TransferContext, store: LoadStore) -> tuple[Unloads, TransferMemory]:
    """Run one cycle on these loads and top bundles; return the moves and the new memory."""
    view, config, memory = context.view, context.config, context.memory
    alive = np.flatnonzero(view.brokers.alive)

    def may_take(bundle: int, place: int) -> bool:
        return context.may_take(bundle, int(alive[place]))

    # The moves. The cycle numbers live brokers by place; here places become rows of the view.
    cycle = run_cycle(store, config.limits, memory.hits, context.unloaded, may_take, view.now_ms)
    proposals = tuple(
        Unload(
            bundle=move.bundle,
            source=int(alive[move.source]),
            reason=move.why.reason,
            rule=move.why.rule,
            saw=move.why.saw,
            limit=move.why.limit,
            average=cycle.average,
            # It is infinite if the source reports no throughput.
            expected_after=move.expected_after if isfinite(move.expected_after) else None,
            destination=None if move.destination is None else int(alive[move.destination]),
            with_next=move.in_return,
        )
        for move in cycle.moves
    )
    refusals = _explain_cycle(view, store, config, cycle)
    return Unloads(proposals, tuple(refusals)), replace(memory, hits=cycle.hits)


def build_load_store(context: TransferContext) -> LoadStore:
    """Return the loads and top bundles of the live brokers, with pending moves applied."""
    view, config, reported = context.view, context.config, context.reported
    _, loads = _remembered(view, context.memory)
    load, throughput, latest = loads.load, loads.throughput, view.brokers.latest.throughput
    if reported is not view:
        moved = latest - reported.brokers.latest.throughput
        load = load + np.where(moved != 0, _usage(view, config) - _usage(reported, config), 0.0)
        throughput = np.maximum(throughput + moved, 0.0)
    alive = np.flatnonzero(view.brokers.alive)
    top_bundles = _TopBundles(view, config, context.choosable)

    def find_top(place: int, soon: Iterable[int]) -> Top:
        return top_bundles.find(int(alive[place]), (int(alive[other]) for other in soon))

    return LoadStore(
        names=_names_of(view, alive),
        load=load[alive],
        throughput_ema=throughput[alive],
        throughput=latest[alive],
        updated_ms=view.brokers.reported_ms[alive],
        top=find_top,
    )


def _names_of(view: ClusterView, rows: Rows) -> tuple[str, ...]:
    """Return the names of these brokers, in their order; nearly always they are all."""
    names = view.brokers.names
    return names if len(rows) == len(names) else tuple(names[row] for row in rows.tolist())


FIRST_SEARCH = 6
"""Brokers whose top bundles are found together at first: three sources, three destinations."""


class _TopBundles:
    """Finds the top bundles of brokers, and keeps them."""

    def __init__(
        self,
        view: ClusterView,
        config: TransferShedderConfig,
        choosable: Callable[[], Choosable],
    ) -> None:
        self.view, self.config, self._choosable = view, config, choosable
        self._of_system = view.bundles.rows_of_namespace(SYSTEM_NAMESPACE)
        self._found = dict[int, Top]()

    def find(self, broker: int, soon: Iterable[int]) -> Top:
        """Return the `top_bundles` heaviest bundles of a broker by their latest figures.

        A search takes O(bundles), so it finds those of the next brokers (`soon`), too: a few at
        first, then as many as all searches before it.
        """
        if broker not in self._found:
            most = max(FIRST_SEARCH, len(self._found))
            others = (other for other in soon if other not in self._found and other != broker)
            self._search([broker, *islice(others, most - 1)])
        return self._found[broker]

    def _search(self, brokers: Sequence[int]) -> None:
        """Find the top bundles of these brokers."""
        # The figures of their bundles, broker by broker.
        each = rows_by_broker(self.view, np.sort(brokers), self._choosable().movable)
        ends, rows = np.cumsum(list(map(len, each.values()))), np.concatenate(list(each.values()))
        bundles = self.view.bundles
        stats, cache_bytes = bundles.latest.take(rows), bundles.cache_bytes[rows]
        connections = bundles.topics[rows] + bundles.sessions[rows]

        # The heaviest of each.
        reported, most = self._is_reported(rows), self.config.top_bundles
        tops = reported_tops(stats, connections, cache_bytes, reported, ends, most)
        throughput = stats.throughput
        for broker, top in zip(each, tops, strict=True):
            chosen = rows[top]
            self._found[broker] = Top(chosen, throughput[top], self._choosable().eligible[chosen])

    def _is_reported(self, rows: Rows) -> Bools:
        """Return which of these movable bundles a broker may report among its top bundles."""
        bundles, policies = self.view.bundles, self.view.policies
        reported = ~bundles.system[rows]
        reported &= (rows < self._of_system.start) | (rows >= self._of_system.stop)
        if not self.config.shed_bundles_with_policies and (
            policies.isolation or policies.anti_affinity
        ):
            codes, namespaces = namespace_codes(bundles.names.take(rows))
            bound = [
                policies.isolation_of(name) is not None or policies.group_of(name) is not None
                for name in namespaces
            ]
            reported &= ~np.array(bound, np.bool_)[codes]
        return reported


# The reference's word for the reason that there are no moves → our rule.
_SKIPS = {
    "NoBrokers": Refuses.NO_BROKERS,
    "NoLoadData": Refuses.NO_LOAD_DATA,
    "NoBundles": Refuses.NO_BUNDLES_TO_MOVE,
}


def _explain_cycle(
    view: ClusterView, store: LoadStore, config: TransferShedderConfig, cycle: Cycle
) -> list[Refusal]:
    """Return refusals that explain why there are no moves, or why a source keeps bundles."""
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
