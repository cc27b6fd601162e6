"""Refusals: actions that rules have forbidden, with a row for each round, rule and broker."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from lb_stream.contracts.base import dataclass_fields
from lb_stream.core.model.rules import Rule

MOST_SUBJECTS = 20


@dataclass(frozen=True, slots=True)
class Refusal:
    """A rule that forbade an action, with the values that it saw and its limit, in `unit`."""

    rule: str
    broker: str | None
    count: int  # of subjects
    limit: float | None
    least: float | None  # lowest value seen
    greatest: float | None  # highest value seen
    unit: str
    subjects: tuple[str, ...]  # bundles or brokers, the first MOST_SUBJECTS by name
    namespace: str | None = None  # the namespace whose limit it is
    until_ms: int | None = None  # until when it refuses, where known

    def to_dict(self) -> dict[str, object]:
        """Return the fields for JSON, without those of _OPTIONAL that are None."""
        fields = {
            name: value
            for name, value in dataclass_fields(self).items()
            if name not in _OPTIONAL or value is not None
        }
        return fields | {"subjects": list(self.subjects)}


_OPTIONAL = ("namespace", "until_ms")
"""Fields that few refusals have: they are logged only if set."""


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
    """Return a refusal of subjects (bundles or brokers), with the values seen.

    All subjects are counted, MOST_SUBJECTS are named. `unit`: of the values and the limit; None:
    the rule's. Without values and limit there is no unit.
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
    """Merge refusals into one for each rule, broker and namespace, in the order of their names."""
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
