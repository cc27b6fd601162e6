"""The parts of all split algorithms: context, result, registry, and the middle of two hashes."""

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
"""The algorithm in the place of one that is not known."""
HexMidpoint = Literal["reference", "exact", "decimal_hex"]
TOP_SHIFT, TENTH_SHIFT = 24, 20
"""A hash's top two hex digits begin at bit 24; the third digit begins at bit 20."""


@dataclass(frozen=True, slots=True)
class Topics:
    """The topics of one bundle, as its broker lists them, with a row for each."""

    hashes: Ints
    rate: Floats  # messages/s, in and out
    throughput: Floats  # bytes/s, in and out
    known: Bools  # whether rate and throughput are known

    @staticmethod
    def from_names(
        names: Sequence[str], stats: Mapping[str, tuple[float, float]] | None = None
    ) -> Topics:
        """Return topics by name. `stats`: topic → (messages/s, bytes/s), where known.

        Raises ValueError for an invalid name.
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
    """The range of a bundle that is to be cut, and its topics."""

    lower: int
    upper: int
    topics: Topics
    positions: tuple[int, ...] = ()  # where an operator's command asks to cut
    force: bool = False  # cut at the positions even if the bundle has fewer than two topics

    @staticmethod
    def from_bundle(
        bundle: str,
        topics: Topics | None = None,
        positions: Sequence[int] = (),
        force: bool = False,
    ) -> Range:
        """Return the range of a bundle, by its name. Raises ValueError for an invalid name."""
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
    """The result of an algorithm: where it would cut."""

    positions: tuple[int, ...] | None  # ascending; None: nowhere
    why: WhyNone | None = None  # why nowhere
    wrong: bool = False  # the algorithm lacks an input that it needs


Config = TypeVar("Config")


@dataclass(frozen=True, slots=True)
class SplitContext(Generic[Config]):
    """The input of a split algorithm."""

    bundle: Range
    config: Config  # settings, of the model that the algorithm was registered with


class SplitAlgorithm(Protocol):
    """A split algorithm: where a bundle is cut. It may loop in Python over the bundle's topics."""

    def __call__(self, context: SplitContext[Any], /) -> Boundaries:
        """Return where the bundle should be cut."""
        ...


split_algorithm: Registry[SplitAlgorithm] = Registry(
    "split algorithm", "lb_stream.split_algorithms"
)


@dataclass(frozen=True, slots=True)
class Algorithms:
    """Every split algorithm with its settings, and the name of the default, known or not."""

    default: str
    configs: Mapping[str, KeyModel]

    def named(self, asked: str | None = None) -> Strategy[SplitAlgorithm]:
        """Return the algorithm of that name; if unknown the default, else range_equally_divide."""
        simple = [
            name.rpartition(".")[2] for name in (asked, self.default, FALLBACK) if name is not None
        ]
        return split_algorithm[next(name for name in simple if name in self.configs)]

    @property
    def warnings(self) -> tuple[str, ...]:
        """Return the warning about a default that is not known, if any."""
        used = self.named()
        if self.default.rpartition(".")[2] == used.name:
            return ()
        return (
            f"split_algorithm = {self.default!r}: expected one of {', '.join(self.configs)}; "
            f"{used.name} is used instead",
        )

    def boundaries(self, strategy: Strategy[SplitAlgorithm], bundle: Range) -> Boundaries:
        """Return where the algorithm would cut with its settings."""
        return strategy.function(SplitContext(bundle, self.configs[strategy.name]))


def middle(low: int, high: int, form: HexMidpoint, one_higher: bool) -> int:
    """Return the position between two hashes. `one_higher`: the reference adds 1 here."""
    exact = low + (high - low) // 2
    if form == "decimal_hex":
        return _decimal_middle(low, high, exact)
    return exact + 1 if form == "reference" and one_higher else exact


def _decimal_middle(low: int, high: int, exact: int) -> int:
    """Return the mean of the top two hex digits, computed as if they were decimal numbers.

    One decimal place becomes the third digit, the rest is zero. Where the digits are not decimal,
    or the result is outside of the range: the exact middle.
    """
    top = [f"{bound >> TOP_SHIFT:02x}" for bound in (low, high)]
    if not all(digits.isdecimal() for digits in top):
        return exact
    tenths = (int(top[0]) + int(top[1])) * 5
    found = (int(str(tenths // 10), 16) << TOP_SHIFT) + (tenths % 10 << TENTH_SHIFT)
    return found if low <= found <= high else exact
