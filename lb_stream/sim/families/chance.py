"""Chance for making scenarios: the same seed and purpose always draw the same, and no purpose disturbs another."""

from __future__ import annotations

import math

import numpy as np

from lb_stream.core.model.chance import seed_of
from lb_stream.sim.scenario.scenario import Floats


def chance(seed: int, purpose: str) -> np.random.Generator:
    """A generator for one purpose."""
    return np.random.Generator(np.random.PCG64(seed_of(purpose, seed)))


def wander(draws: np.random.Generator, count: int, steps: int, lasting_steps: float) -> Floats:
    """`count` series of standard normal numbers, count × steps; each forgets itself within `lasting_steps`, 0: at once."""
    series: Floats = draws.standard_normal((count, steps))
    if lasting_steps > 0:
        keep = math.exp(-1.0 / lasting_steps)
        fresh = math.sqrt(1.0 - keep * keep)
        for step in range(1, steps):
            series[:, step] = keep * series[:, step - 1] + fresh * series[:, step]
    return series
