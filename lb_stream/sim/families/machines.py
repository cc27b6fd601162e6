"""Builds a spec's brokers as entries of scenario.json, and the cpu that no bundle causes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lb_stream.sim.families.loads import CPU_BYTES_PER_S, CPU_MSGS_PER_S, JITTER_LASTS_S
from lb_stream.sim.families.sampling import Sampler, autocorrelated_noise, make_rng
from lb_stream.sim.families.spec import BackgroundSpec, Spec
from lb_stream.sim.scenario.scenario import LIMITS, Floats

MEMORY_BYTES = float(8 << 30)
MEMORY_BASE_BYTES = float(512 << 20)
DIRECT_MEMORY_BASE_BYTES = float(128 << 20)
Entry = dict[str, Any]


def build_broker_entries(
    file: str | Path, spec: Spec, brokers: tuple[str, ...], down: set[str]
) -> list[Entry]:
    """Build the brokers. `down`: those that are down at the start. Raises ScenarioError."""
    given = spec.cluster
    sizes = _in_turn(spec, "machines", given.machines)
    gbit_per_s = _in_turn(spec, "bandwidths", given.bandwidths_gbit_per_s)
    entries = [
        _broker(spec, row, name, size, size * gbit * 1e9 / 8) | {"up": name not in down}
        for row, (name, size, gbit) in enumerate(zip(brokers, sizes, gbit_per_s, strict=True))
    ]
    _change_limits(file, spec, brokers, entries)
    base = _background(file, spec, brokers, lasting=True, steps=1)[:, 0]
    for entry, cpu in zip(entries, base.tolist(), strict=True):
        if cpu > 0:
            entry["cpu_base"] = cpu
    return entries


def _in_turn(spec: Spec, purpose: str, values: list[float]) -> list[float]:
    """Give the values to the brokers in turn, or in an order that the seed draws."""
    found = np.resize(values, spec.cluster.brokers)
    if spec.cluster.shuffled:
        found = make_rng(spec.seed, purpose).permutation(found)
    return [float(value) for value in found]


def _broker(spec: Spec, row: int, name: str, size: float, bandwidth: float) -> Entry:
    rhythm = max(1, round(spec.report_interval_s / spec.tick_s))
    return {
        "name": name,
        "cpu_msgs_per_s": size * CPU_MSGS_PER_S,
        "cpu_bytes_per_s": size * CPU_BYTES_PER_S,
        "bandwidth_in_bytes_per_s": bandwidth,
        "bandwidth_out_bytes_per_s": bandwidth,
        "memory_bytes": size * MEMORY_BYTES,
        "direct_memory_bytes": size * MEMORY_BYTES,
        "memory_base_bytes": MEMORY_BASE_BYTES,
        "direct_memory_base_bytes": DIRECT_MEMORY_BASE_BYTES,
        "report_phase_s": row % rhythm * spec.tick_s,
    }


def _change_limits(
    file: str | Path, spec: Spec, brokers: tuple[str, ...], entries: list[Entry]
) -> None:
    """Change true and stated limits in place. Each section gets brokers of its own."""
    sampler = Sampler(file, brokers, "brokers without changed limits", spec.seed)
    for at, limits in enumerate(spec.limits):
        for name in sampler.choose(f"limits[{at}].brokers", limits.brokers):
            entry = entries[brokers.index(name)]
            for resource in dict.fromkeys(limits.resources):
                machine = entry[LIMITS[resource]]
                entry[LIMITS[resource]] = machine * limits.true_times
                if limits.stated_times is None:
                    entry.setdefault("unreported", []).append(resource)
                elif limits.stated_times != limits.true_times:
                    stated = entry.setdefault("misreported", {})
                    stated[resource] = machine * limits.stated_times


def draw_background(
    file: str | Path, spec: Spec, brokers: tuple[str, ...], steps: int
) -> NDArray[np.float32] | None:
    """Draw the cpu that no bundle causes, where it changes over time: brokers × steps.

    None: there is none. What stays the same is `cpu_base` of brokers. Raises ScenarioError.
    """
    if all(_lasts(background) for background in spec.background):
        return None
    return _background(file, spec, brokers, lasting=False, steps=steps).astype(np.float32)


def _lasts(background: BackgroundSpec) -> bool:
    """Return whether it is the same during the whole scenario."""
    changes = (background.from_s, background.for_s, background.every_s, background.jitter)
    return not any(changes)


def _background(
    file: str | Path, spec: Spec, brokers: tuple[str, ...], *, lasting: bool, steps: int
) -> Floats:
    """Add up the background that lasts, or the other: brokers × steps."""
    step_s = spec.tick_s * spec.load_step_ticks
    times_s = np.arange(steps) * step_s
    found = np.zeros((len(brokers), steps))
    sampler = Sampler(file, brokers, "brokers without background", spec.seed)
    for at, background in enumerate(spec.background):
        field = f"background[{at}].brokers"
        everywhere = background.brokers == "all"
        names = list(brokers) if everywhere else sampler.choose(field, background.brokers)
        if _lasts(background) != lasting:
            continue
        for turn, name in enumerate(names):
            from_s = background.from_s + turn * background.every_s
            to_s = from_s + background.for_s if background.for_s > 0 else np.inf
            during = (times_s >= from_s) & (times_s < to_s)
            jitter = np.ones(steps)
            if background.jitter > 0:
                draws = make_rng(spec.seed, f"background {at} {name}")
                own = autocorrelated_noise(draws, 1, steps, JITTER_LASTS_S / step_s)[0]
                jitter = np.maximum(1.0 + background.jitter * own, 0.0)
            found[brokers.index(name)] += background.cpu * during * jitter
    return found
