"""What was considered and not done: one row for each round, rule and broker."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from lb_stream.contracts.base import dataclass_fields
from lb_stream.core.model.rules import Rule

MOST_SUBJECTS = 20


@dataclass(frozen=True, slots=True)
class Refusal:
    """A rule that said no, with what it saw and its limit, in `unit`."""

    rule: str
    broker: str | None
    count: int
    limit: float | None
    least: float | None
    greatest: float | None
    unit: str
    subjects: tuple[str, ...]
    namespace: str | None = None  # whose limit it is
    until_ms: int | None = None  # when it refuses no more, where that is known

    def to_dict(self) -> dict[str, Any]:
        """As JSON-able fields; without the last two where they say nothing."""
        said = {name: value for name in _LATER if (value := getattr(self, name)) is not None}
        return (
            {name: value for name, value in dataclass_fields(self).items() if name not in _LATER}
            | {"subjects": list(self.subjects)}
            | said
        )


_LATER = ("namespace", "until_ms")
"""Fields that are left out where they say nothing: few refusals have them."""


def refusal(
    rule: Rule,
    broker: str | None,
    subjects: Iterable[str] = (),
    *,
    saw: Iterable[float] = (),
    limit: float | None = None,
    unit: str | None = None,
    namespace: str | None = None,
    until_ms: int | None = None,
) -> Refusal:
    """A refusal of some subjects (bundles or brokers), with the value seen of each.

    Twenty subjects are named, all are counted.

    Figures are in the rule's unit, unless another one is given; where there are none, there is no
    unit.
    """
    named, seen = list(subjects), [float(value) for value in saw]
    if unit is None:
        unit = rule.unit if seen or limit is not None else ""
    return Refusal(
        rule=rule.name,
        broker=broker,
        count=max(len(named), 1),
        limit=limit,
        least=min(seen, default=None),
        greatest=max(seen, default=None),
        unit=unit,
        subjects=tuple(sorted(named)[:MOST_SUBJECTS]),
        namespace=namespace,
        until_ms=until_ms,
    )


def merged(refusals: Iterable[Refusal]) -> tuple[Refusal, ...]:
    """One row for each rule, broker and namespace, in the order of their names."""
    groups: dict[tuple[str, str, str], list[Refusal]] = {}
    for row in refusals:
        groups.setdefault((row.rule, row.broker or "", row.namespace or ""), []).append(row)
    return tuple(_union(groups[key]) for key in sorted(groups))


def _union(rows: list[Refusal]) -> Refusal:
    seen = [value for row in rows for value in (row.least, row.greatest) if value is not None]
    subjects = sorted({subject for row in rows for subject in row.subjects})
    first = rows[0]
    return Refusal(
        rule=first.rule,
        broker=first.broker,
        count=sum(row.count for row in rows),
        limit=first.limit,
        least=min(seen, default=None),
        greatest=max(seen, default=None),
        unit=first.unit,
        subjects=tuple(subjects[:MOST_SUBJECTS]),
        namespace=first.namespace,
        until_ms=max((row.until_ms for row in rows if row.until_ms is not None), default=None),
    )
