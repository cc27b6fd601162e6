"""Which brokers and namespaces a spec means where it says only how many."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from lb_stream.sim.families.chance import chance
from lb_stream.sim.scenario.errors import ScenarioError


@dataclass(slots=True)
class Chooser:
    """Hands out names. Those that are counted come by chance from those that this chooser hasn't handed out. Raises ScenarioError."""

    file: str | Path
    names: Sequence[str]
    what: str
    seed: int
    taken: set[str] = field(default_factory=set)

    def choose(self, at: str, wanted: int | str | list[str]) -> list[str]:
        """Names for the field `at`: as many as are wanted, those that are named, or "all"."""
        if isinstance(wanted, list):
            for name in wanted:
                if name not in self.names:
                    raise ScenarioError(
                        self.file,
                        at,
                        name,
                        f"a name of the {self.what}: {self.names[0]} to {self.names[-1]}",
                    )
            found = list(wanted)
        elif isinstance(wanted, str):
            found = list(self.names)
        else:
            free = [name for name in self.names if name not in self.taken]
            if wanted > len(free):
                raise ScenarioError(
                    self.file, at, wanted, f"{len(free)} or fewer: so many {self.what} are left"
                )
            order = chance(self.seed, at).permutation(len(free))[:wanted]
            found = [free[number] for number in sorted(order.tolist())]
        self.taken |= set(found)
        return found
