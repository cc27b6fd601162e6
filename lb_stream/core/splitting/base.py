"""What all split algorithms share: what they are asked, what they answer, their registry, the
middle of two hashes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Literal, Protocol, TypeVar

import numpy as np

from lb_stream.contracts.keys import KeyModel
from lb_stream.core.model.names import parse_bundle
from lb_stream.core.model.registry import Registry, Strategy
from lb_stream.core.model.topics import topic_hashes
from lb_stream.core.model.view import Bools, Floats, Ints

FALLBACK = "range_equally_divide"
HexMidpoint = Literal["reference", "exact", "decimal_hex"]
TOP_SHIFT, TENTH_SHIFT = 24, 20
"""A hash's top two hex digits begin at bit 24; the one after them at bit 20."""


@dataclass(frozen=True, slots=True)
class Topics:
    """The topics of one bundle as its broker lists them: hash, messages/s and bytes/s in and out,
    and whether these are known."""

    hashes: Ints
    rate: Floats
    throughput: Floats
    known: Bools

    @staticmethod
    def from_names(
        names: Sequence[str], stats: Mapping[str, tuple[float, float]] | None = None
    ) -> Topics:
        """Topics by name, with the (messages/s, bytes/s) of those that have statistics.

        Raises ValueError for a wrong name.
        """
        stats = stats or {}
        figures = np.array([stats.get(name, (0.0, 0.0)) for name in names], np.float64).reshape(
            -1, 2
        )
        known = np.array([name in stats for name in names], np.bool_)
        return Topics(topic_hashes(names), figures[:, 0], figures[:, 1], known)

    def __len__(self) -> int:
        return len(self.hashes)


@dataclass(frozen=True, slots=True)
class Range:
    """What is to be cut: the bundle's range, its topics, and for an operator's split the positions
    asked for.

    `force`: cut at the positions even if the bundle has no two topics.
    """

    lower: int
    upper: int
    topics: Topics
    positions: tuple[int, ...] = ()
    force: bool = False

    @staticmethod
    def from_bundle(
        bundle: str,
        topics: Topics | None = None,
        positions: Sequence[int] = (),
        force: bool = False,
    ) -> Range:
        """The range of a bundle's name. Raises ValueError when it is none."""
        _, lower, upper = parse_bundle(bundle)
        return Range(
            lower,
            upper,
            Topics.from_names([]) if topics is None else topics,
            tuple(positions),
            force,
        )


WhyNone = Literal[
    "too_few_topics",
    "no_position_given",
    "no_position_inside",
    "below_limits",
    "nothing_to_separate",
]


@dataclass(frozen=True, slots=True)
class Boundaries:
    """Where an algorithm would cut, ascending.

    None: nowhere, because `why`; `wrong`: it was asked what it can't answer.
    """

    positions: tuple[int, ...] | None
    why: WhyNone | None = None
    wrong: bool = False


Config = TypeVar("Config")


@dataclass(frozen=True, slots=True)
class SplitContext(Generic[Config]):
    """All that a split algorithm is asked with."""

    bundle: Range  # what is to be cut
    config: Config  # the settings that the algorithm was registered with


class SplitAlgorithm(Protocol):
    """A split algorithm: where a bundle is cut. Python loops over one bundle's topics are fine."""

    def __call__(self, context: SplitContext[Any], /) -> Boundaries:
        """Where it would cut."""
        ...


split_algorithm: Registry[SplitAlgorithm] = Registry(
    "split algorithm", "lb_stream.split_algorithms"
)


@dataclass(frozen=True, slots=True)
class Algorithms:
    """Every split algorithm with its settings, and the name of the default one, known or not."""

    default: str
    configs: Mapping[str, KeyModel]

    def named(self, asked: str | None = None) -> Strategy[SplitAlgorithm]:
        """The algorithm of that name if it is known, else the default, else
        range_equally_divide."""
        simple = [
            name.rpartition(".")[2] for name in (asked, self.default, FALLBACK) if name is not None
        ]
        return split_algorithm[next(name for name in simple if name in self.configs)]

    @property
    def warnings(self) -> tuple[str, ...]:
        """The warning about a default that isn't known, if any."""
        used = self.named()
        if self.default.rpartition(".")[2] == used.name:
            return ()
        return (
            f"split_algorithm = {self.default!r}: expected one of {', '.join(self.configs)}; "
            f"{used.name} is used instead",
        )

    def boundaries(self, strategy: Strategy[SplitAlgorithm], bundle: Range) -> Boundaries:
        """Where the algorithm would cut under its settings."""
        return strategy.function(SplitContext(bundle, self.configs[strategy.name]))


def middle(low: int, high: int, form: HexMidpoint, one_higher: bool) -> int:
    """The position between two hashes. `one_higher`: where the reference adds 1."""
    exact = low + (high - low) // 2
    if form == "decimal_hex":
        return _decimal_middle(low, high, exact)
    return exact + 1 if form == "reference" and one_higher else exact


def _decimal_middle(low: int, high: int, exact: int) -> int:
    """The top two hex digits averaged as if they were decimal, with one decimal place, the rest
    zero.

    It is the exact middle where the digits aren't decimal, or where the result would be outside.
    """
    top = [f"{bound >> TOP_SHIFT:02x}" for bound in (low, high)]
    if not all(digits.isdecimal() for digits in top):
        return exact
    tenths = (int(top[0]) + int(top[1])) * 5
    found = (int(str(tenths // 10), 16) << TOP_SHIFT) + (tenths % 10 << TENTH_SHIFT)
    return found if low <= found <= high else exact
