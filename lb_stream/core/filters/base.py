"""The parts of all candidate filters: their protocol, their input, their error."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from lb_stream.core.model.rules import Rule
from lb_stream.core.model.view import Ints, Rows


@dataclass(frozen=True, slots=True)
class FilterContext:
    """The input of a filter: one bundle, and the brokers that earlier filters have left."""

    rows: Rows  # brokers, in order
    bundle: int  # row
    namespace: str  # of the bundle
    topics: Ints  # topics of each broker, the choices of this round included


class FilterError(Exception):
    """A filter can't decide, because of these brokers (rows): their reports lack what it needs."""

    def __init__(self, rule: Rule, brokers: Rows) -> None:
        super().__init__(rule.name)
        self.rule, self.brokers = rule, brokers


class Filter(Protocol):
    """One reason why a broker may not take a bundle.

    A filter lives for one round, and may keep what it has computed.
    """

    rule: Rule  # by which it removes a broker

    def keep(self, context: FilterContext, /) -> Rows:
        """Return those of `context.rows` that may take the bundle, in their order. O(brokers).

        Raises FilterError when the filter can't decide.
        """
        ...


def with_lowest(rows: Rows, counts: Ints) -> Rows:
    """Return the given brokers with the lowest count."""
    if not len(rows):
        return rows
    mine = counts[rows]
    kept: Rows = rows[mine == mine.min()]
    return kept
