"""Builds a scenario from a spec: explicit arrays, which are drawn here."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from lb_stream.core.model.names import FULL_RANGE_END, bundle_name
from lb_stream.sim.families.events import (
    build_event_entries,
    build_fault_entries,
    build_policy_entries,
    find_brokers_down_at_start,
)
from lb_stream.sim.families.loads import (
    CPU_MSGS_PER_S,
    Machines,
    ShapeContext,
    draw_base_loads,
    resource_demand,
    round_in_place,
    shape_factors,
)
from lb_stream.sim.families.machines import build_broker_entries, draw_background
from lb_stream.sim.families.sampling import Sampler, autocorrelated_noise, make_rng
from lb_stream.sim.families.spec import Growth, Spec
from lb_stream.sim.families.start import BundlePool, choose_start_owners
from lb_stream.sim.families.topics import draw_topic_counts, draw_topics
from lb_stream.sim.scenario.document import parse_document
from lb_stream.sim.scenario.errors import ScenarioError
from lb_stream.sim.scenario.reading import ScenarioParts, build_parts
from lb_stream.sim.scenario.scenario import JUDGED, Floats, Ints, Scenario, ScenarioBundles

TOPIC_HEAP_BYTES = 256 << 10
_SHARES = {"sizes", "spread"}
"""Keys of the spec's split that say what topics carry, not how brokers split."""


def build_from_spec(spec: Spec, file: str | Path = "spec") -> Scenario:
    """Build the scenario of a spec. The same spec gives the same arrays.

    Raises ScenarioError, which names `file` and the key.
    """
    # brokers, and which of them are up at the start
    brokers = tuple(f"broker-{number + 1:04d}:8080" for number in range(spec.cluster.brokers))
    events, fields = build_event_entries(file, spec, brokers)
    down = find_brokers_down_at_start(events)
    if len(down) == len(brokers):
        raise ScenarioError(
            file, "events", sorted(down), "at least one broker that is up at the start"
        )
    # bundles' namespaces
    count = spec.cluster.bundles_per_broker * (len(brokers) - len(down))
    namespace_of = np.arange(count) // spec.cluster.bundles_per_namespace
    namespaces = [
        f"tenant-{at % spec.cluster.tenants + 1}/app-{at + 1:04d}"
        for at in range(int(namespace_of[-1]) + 1)
    ]
    document = {
        **_head(spec),
        "brokers": build_broker_entries(file, spec, brokers, down),
        "events": events,
        "faults": build_fault_entries(file, spec, brokers),
        "policies": build_policy_entries(file, spec, brokers, namespaces),
    }
    parts = build_parts(Path(file), parse_document(Path(file), document), fields)
    return _build_tables(file, spec, parts, namespaces, namespace_of)


def _head(spec: Spec) -> dict[str, object]:
    """Return the keys of scenario.json that aren't lists of brokers, events, faults or policies."""
    names = (
        "name",
        "why",
        "tick_s",
        "ticks",
        "load_step_ticks",
        "noise_step_ticks",
        "noise_unit",
        "report_interval_s",
        "report_delay_s",
    )
    newer = (spec.split, spec.limits, spec.background, spec.rollout)
    head = {
        "format": 2 if any(newer) else 1,
        **{name: getattr(spec, name) for name in (*names, "judge_from_s")},
    }
    still = not spec.shapes and not spec.background and spec.load.jitter == 0
    split = {} if spec.split is None else {"split": spec.split.model_dump(exclude=_SHARES)}
    settled = spec.ticks // 2 * spec.tick_s if spec.settled_from_s is None else spec.settled_from_s
    return head | {
        **split,
        "load_step_ticks": spec.ticks if still else spec.load_step_ticks,
        "settled_from_s": settled,
        "move": spec.move.model_dump(),
        "judged": list(JUDGED),
    }


def _build_tables(
    file: str | Path, spec: Spec, parts: ScenarioParts, namespaces: list[str], namespace_of: Ints
) -> Scenario:
    """Build the content of the tables: bundles with their owners, loads, noise."""
    # loads before any shape
    brokers, count = parts.brokers, len(namespace_of)
    machine = brokers.cpu_msgs_per_s / CPU_MSGS_PER_S
    size_up = float(machine[brokers.up].sum())
    bandwidth = float(brokers.bandwidth_in_bytes_per_s[brokers.up].sum()) / size_up
    machines = Machines(int(brokers.up.sum()), size_up, bandwidth)
    base = draw_base_loads(file, spec, count, machines)
    # owners at the start
    tenant = namespace_of % spec.cluster.tenants
    weight = machine.copy()
    weight[_rows(file, spec, brokers.names, "start.hot", spec.start.hot)] *= spec.start.hot_times
    by_kind = spec.start.placement == "by_kind"
    owner = choose_start_owners(
        spec,
        _pools(file, parts, namespaces, namespace_of),
        resource_demand(base.loads, bandwidth).max(axis=0),
        weight,
        base.kind if by_kind else tenant,
        base.largest,
    )
    # loads over time
    times_s = np.arange(parts.load_steps, dtype=np.float64) * (
        spec.tick_s * parts.document.load_step_ticks
    )
    growing = {
        number: _rows(file, spec, brokers.names, f"shapes[{number}].brokers", shape.brokers)
        for number, shape in enumerate(spec.shapes)
        if isinstance(shape, Growth)
    }
    context = ShapeContext(spec, times_s, tenant, namespace_of, owner)
    factor = shape_factors(context, growing)
    moving = np.empty((4, count, parts.load_steps), np.float32)
    for number, load in enumerate(base.loads):
        moving[number] = load[:, None] * factor
    round_in_place(moving)
    # bundles and their topics
    counts = draw_topic_counts(spec, count, base.largest)
    bundles = _bundles(spec, namespaces, namespace_of, owner, counts)
    topics = None
    if spec.split is not None:
        topics = draw_topics(spec, bundles.names, counts, base.largest)
    return parts.scenario(
        bundles,
        moving,
        _noise(spec, "bundles", (count, parts.noise_steps)),
        _noise(spec, "cpu", (len(brokers), parts.noise_steps)),
        draw_background(file, spec, brokers.names, parts.load_steps),
        topics,
    )


def _rows(
    file: str | Path, spec: Spec, brokers: tuple[str, ...], at: str, wanted: int | str | list[str]
) -> list[int]:
    return [
        brokers.index(name)
        for name in Sampler(file, brokers, "brokers", spec.seed).choose(at, wanted)
    ]


def _pools(
    file: str | Path, parts: ScenarioParts, namespaces: list[str], namespace_of: Ints
) -> list[BundlePool]:
    """Build the pools of bundles and the brokers at which they may start.

    Bundles of an isolation policy start at its primary brokers, all others at brokers that are no
    policy's primary. Raises ScenarioError for too few brokers.
    """
    up = parts.brokers.up
    policy_of = np.full(len(namespaces), -1)  # of each namespace, -1: none
    is_primary = np.zeros(len(up), np.bool_)
    pools = []
    number_of = {name: number for number, name in enumerate(namespaces)}
    for at, policy in enumerate(parts.policies.isolation):
        policy_of[[number_of[name] for name in policy.namespaces]] = at
        is_primary[list(policy.primary)] = True
        rows = np.array(policy.primary)
        pools.append(BundlePool(np.flatnonzero(policy_of[namespace_of] == at), rows[up[rows]]))
    together = tuple(
        tuple(np.flatnonzero(namespace_of == number_of[name]) for name in group.namespaces)
        for group in parts.policies.anti_affinity
    )
    pools.append(
        BundlePool(
            np.flatnonzero(policy_of[namespace_of] == -1),
            np.flatnonzero(up & ~is_primary),
            together,
        )
    )
    for pool in pools:
        if len(pool.bundles) and len(pool.brokers) < max([1, *map(len, pool.together)]):
            wanted = (
                "enough brokers that are up at the start: for each tenant with isolation, for the "
                "others, for each group's namespaces"
            )
            raise ScenarioError(
                file,
                "policies.isolation",
                [policy.name for policy in parts.policies.isolation],
                wanted,
            )
    return pools


def _bundles(
    spec: Spec, namespaces: list[str], namespace_of: Ints, owner: Ints, topics: Ints
) -> ScenarioBundles:
    names: list[str] = []
    for namespace, many in zip(namespaces, np.bincount(namespace_of).tolist(), strict=True):
        bounds = [(1 << 32) // many * number for number in range(many)] + [FULL_RANGE_END]
        names += [bundle_name(namespace, low, high) for low, high in pairwise(bounds)]
    draws = make_rng(spec.seed, "clients")
    producers, consumers = (topics * draws.integers(1, most, len(names)) for most in (4, 6))
    return ScenarioBundles(
        tuple(names), owner, topics, producers, consumers, topics * TOPIC_HEAP_BYTES
    )


def _noise(
    spec: Spec, subject: Literal["bundles", "cpu"], shape: tuple[int, int]
) -> NDArray[np.int8] | None:
    """Draw the noise of a subject in units of `noise_unit`; None: there is none.

    No load is measured below 0. `shape`: count × steps.
    """
    given = spec.noise
    deviation = given.cpu if subject == "cpu" else given.bundles
    lasting_s = given.lasting_s
    if subject == "cpu" and given.cpu_lasting_s is not None:
        lasting_s = given.cpu_lasting_s
    if deviation == 0:
        return None
    step_s = spec.tick_s * spec.noise_step_ticks
    wandering: Floats = autocorrelated_noise(
        make_rng(spec.seed, f"noise {subject}"), *shape, lasting_s / step_s
    )
    least = max(-128, -int(1 / spec.noise_unit))
    return np.clip(np.rint(wandering * (deviation / spec.noise_unit)), least, 127).astype(np.int8)
