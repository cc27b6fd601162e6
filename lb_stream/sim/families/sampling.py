"""Random draws for scenarios: each seed and purpose has a stream of its own."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from lb_stream.core.model.chance import seed_of
from lb_stream.sim.scenario.errors import ScenarioError
from lb_stream.sim.scenario.scenario import Floats


def make_rng(seed: int, purpose: str) -> np.random.Generator:
    """Build the generator of a seed and a purpose."""
    return np.random.Generator(np.random.PCG64(seed_of(purpose, seed)))


def autocorrelated_noise(
    draws: np.random.Generator, count: int, steps: int, lasting_steps: float
) -> Floats:
    """Draw `count` series of autocorrelated standard normal numbers: count × steps.

    The autocorrelation falls to 1/e within `lasting_steps`; 0: there is none.
    """
    series: Floats = draws.standard_normal((count, steps))
    if lasting_steps > 0:
        keep = math.exp(-1.0 / lasting_steps)
        fresh = math.sqrt(1.0 - keep * keep)
        for step in range(1, steps):
            series[:, step] = keep * series[:, step - 1] + fresh * series[:, step]
    return series


@dataclass(slots=True)
class Sampler:
    """Chooses names. Names that are counted are drawn from those not chosen before."""

    file: str | Path
    names: Sequence[str]
    kind: str  # what the names are, for messages
    seed: int
    taken: set[str] = field(default_factory=set)

    def choose(self, at: str, wanted: int | str | list[str]) -> list[str]:
        """Choose names for the field `at`: a number of them, those in a list, or "all".

        Raises ScenarioError.
        """
        if isinstance(wanted, list):
            for name in wanted:
                if name not in self.names:
                    raise ScenarioError(
                        self.file,
                        at,
                        name,
                        f"a name of the {self.kind}: {self.names[0]} to {self.names[-1]}",
                    )
            found = list(wanted)
        elif isinstance(wanted, str):
            found = list(self.names)
        else:
            free = [name for name in self.names if name not in self.taken]
            if wanted > len(free):
                raise ScenarioError(
                    self.file, at, wanted, f"{len(free)} or fewer: so many {self.kind} are left"
                )
            order = make_rng(self.seed, at).permutation(len(free))[:wanted]
            found = [free[number] for number in sorted(order.tolist())]
        self.taken |= set(found)
        return found
