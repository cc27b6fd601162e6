"""What the candidate filters share: what they are asked, what they answer, and how one of them
gives up."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from lb_stream.core.model.rules import Rule
from lb_stream.core.model.view import Ints, Rows


@dataclass(frozen=True, slots=True)
class FilterContext:
    """All that a filter is asked with: one bundle that needs a broker, and who is left of those who
    could take it."""

    rows: Rows  # the brokers that the filters before have left, in order
    bundle: int
    namespace: str
    topics: Ints  # each broker's number of topics, the choices of this round included


class FilterError(Exception):
    """A filter can't tell who is a candidate, because of these brokers (rows)."""

    def __init__(self, rule: Rule, brokers: Rows) -> None:
        super().__init__(rule.name)
        self.rule, self.brokers = rule, brokers


class Filter(Protocol):
    """One reason why a broker may not take a bundle.

    Made anew for each round, so that it may remember what it found out.
    """

    rule: Rule  # by which it takes a broker out

    def keep(self, context: FilterContext, /) -> Rows:
        """Those of `context.rows` that may, in their order.

        Raises FilterError when it can't tell. O(brokers).
        """
        ...


def with_least(rows: Rows, counts: Ints) -> Rows:
    """The given brokers with the smallest count."""
    if not len(rows):
        return rows
    mine = counts[rows]
    kept: Rows = rows[mine == mine.min()]
    return kept
