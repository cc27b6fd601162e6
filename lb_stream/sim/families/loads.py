"""Draws a scenario's loads: what each bundle carries at first, and how that changes.

Loads are LOADS × bundles.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from lb_stream.sim.families.sampling import autocorrelated_noise, make_rng
from lb_stream.sim.families.spec import Diurnal, DriftingHot, FlashCrowd, Growth, Shape, Spec
from lb_stream.sim.scenario.errors import ScenarioError
from lb_stream.sim.scenario.scenario import Floats, Ints

CPU_MSGS_PER_S, CPU_BYTES_PER_S = 320e3, 320e6
"""Capacities of the cpu of a machine of size 1, for messages alone and for bytes alone."""
JITTER_LASTS_S = 300.0


@dataclass(frozen=True, slots=True)
class Machines:
    """The brokers that are up at the start, taken together."""

    brokers: int
    size: float  # sum
    bandwidth_bytes_per_s: float  # mean of a machine of size 1, in each direction


def resource_demand(loads: Floats, bandwidth_bytes_per_s: float) -> Floats:
    """Return the share of a machine of size 1 that each bundle asks for.

    (cpu, bandwidth in, bandwidth out) × bundles.
    """
    rate_in, rate_out, bytes_in, bytes_out = loads
    cpu = (rate_in + rate_out) / CPU_MSGS_PER_S + (bytes_in + bytes_out) / CPU_BYTES_PER_S
    return np.stack([cpu, bytes_in / bandwidth_bytes_per_s, bytes_out / bandwidth_bytes_per_s])


@dataclass(frozen=True, slots=True)
class BaseLoads:
    """What bundles carry before any shape."""

    loads: Floats  # LOADS × bundles
    kind: Ints  # number of each bundle's kind
    largest: Ints  # rows of the largest bundles, in the spec's order


def draw_base_loads(file: str | Path, spec: Spec, count: int, machines: Machines) -> BaseLoads:
    """Draw what bundles carry before any shape. Raises ScenarioError."""
    given = spec.load
    draws = make_rng(spec.seed, "sizes")
    shares = np.array([kind.share for kind in given.kinds])
    kind = (
        make_rng(spec.seed, "kinds")
        .choice(len(shares), count, p=shares / shares.sum())
        .astype(np.int64)
    )
    message, fan_out = np.empty(count), np.empty(count)
    for number, kind_spec in enumerate(given.kinds):
        mine = np.flatnonzero(kind == number)
        message[mine] = draws.choice(kind_spec.message_bytes, len(mine))
        fan_out[mine] = draws.choice(kind_spec.fan_out, len(mine))
    unit = np.stack([np.ones(count), fan_out, message, fan_out * message])
    bandwidth = machines.bandwidth_bytes_per_s
    sizes, largest = _sizes(file, spec, kind, machines.brokers)
    loads = unit * (sizes / resource_demand(unit, bandwidth).max(axis=0))
    busiest = resource_demand(loads, bandwidth).sum(axis=1).max()
    return BaseLoads(loads * (given.usage * machines.size / busiest), kind, largest)


def _sizes(file: str | Path, spec: Spec, kind: Ints, brokers_up: int) -> tuple[Floats, Ints]:
    """Draw what each bundle asks for of its scarcest resource; an average broker carries 1.

    Returns the rows of the largest bundles, too. `kind`: the number of each bundle's kind.
    """
    count = len(kind)
    given, draws = spec.load, make_rng(spec.seed, "spread")
    match given.sizes:
        case "equal":
            sizes = np.ones(count)
        case "lognormal":
            sizes = np.exp(given.spread * draws.standard_normal(count))
        case "zipf":
            sizes = draws.permutation(np.arange(1, count + 1) ** -given.spread)
    sizes *= np.array([kind_spec.size for kind_spec in given.kinds])[kind]
    asked = [largest.size for largest in given.largest]
    large = draws.permutation(count)[: len(asked)]
    rest = brokers_up - sum(asked)
    if rest <= 0 or len(asked) >= count:
        raise ScenarioError(
            file,
            "load.largest",
            asked,
            f"less than {brokers_up} in all: that is the whole load",
        )
    sizes[large] = 0.0
    sizes *= rest / sizes.sum()
    sizes[large] = asked
    return sizes, large


@dataclass(frozen=True, slots=True)
class ShapeContext:
    """What shapes may depend on."""

    spec: Spec
    times_s: Floats  # of the steps
    tenant: Ints  # of each bundle, numbered from 0
    namespace: Ints  # of each bundle, numbered from 0
    owner: Ints  # row of the broker at which each bundle starts


def shape_factors(context: ShapeContext, growing: dict[int, list[int]]) -> Floats:
    """Return the factors on bundles' loads, bundles × steps.

    `growing`: number of a shape → rows of its brokers.
    """
    spec, steps = context.spec, len(context.times_s)
    factor = np.ones((len(context.tenant), steps))
    for number, shape in enumerate(spec.shapes):
        factor *= _factor(shape, context, number, growing)
    if spec.load.jitter > 0:
        lasting = JITTER_LASTS_S / (spec.tick_s * spec.load_step_ticks)
        own = autocorrelated_noise(make_rng(spec.seed, "jitter"), len(factor), steps, lasting)
        factor *= np.exp(spec.load.jitter * own - spec.load.jitter**2 / 2)
    return factor


def _factor(
    shape: Shape, context: ShapeContext, number: int, growing: dict[int, list[int]]
) -> Floats:
    draws, times = make_rng(context.spec.seed, f"shape {number}"), context.times_s
    match shape:
        case Diurnal():
            phase = context.tenant / context.spec.cluster.tenants
            found: Floats = 1.0 + shape.amplitude * np.sin(
                2 * math.pi * (times[None, :] / shape.period_s + phase[:, None])
            )
            return found
        case FlashCrowd():
            chosen = draws.permutation(int(context.namespace.max()) + 1)[: shape.namespaces]
            during = (times >= shape.from_s) & (times < shape.to_s)
            return np.where(
                np.isin(context.namespace, chosen)[:, None] & during[None, :], shape.times, 1.0
            )
        case DriftingHot():
            turn = (times // shape.every_s).astype(np.int64)
            hot = np.zeros((int(turn.max()) + 1, len(context.tenant)), np.bool_)
            for namespace in hot:
                namespace[
                    draws.permutation(len(namespace))[: max(1, round(shape.share * len(namespace)))]
                ] = True
            return np.where(hot[turn].T, shape.times, 1.0)
        case Growth():
            grown = np.clip((times - shape.from_s) / max(shape.to_s - shape.from_s, 1e-9), 0.0, 1.0)
            mine = np.isin(context.owner, growing[number])
            return np.where(mine[:, None], 1.0 + (shape.times - 1.0) * grown[None, :], 1.0)


def round_in_place(loads: NDArray[np.float32]) -> None:
    """Round to 11 binary digits after the first (0.02 %), in place. It halves the file."""
    digits = loads.view(np.uint32)
    digits += 1 << 11
    digits &= 0xFFFFF000
