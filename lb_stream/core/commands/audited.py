"""What the audit says of a command beside its answer: the things that it names, what it changed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from hashlib import blake2b
from itertools import accumulate
from typing import Any

from lb_stream.contracts.base import canonical_json
from lb_stream.core.commands.base import NamedObject
from lb_stream.core.model.operator_state import OperatorState

LONGEST_OBJECTS = 1_000
"""Characters of the things that a row names, but one is always named: the arguments have all."""
LONGEST_VALUE = 10_000
"""Characters of an old or a new value; a longer one is named by its digest."""
_NOT_SET = frozenset({"answers", "forgotten_ms", "waiting"})
"""Fields of operators' state that follow from answers."""


@dataclass(frozen=True, slots=True)
class Audited:
    """The fields of an answer that only the audit has.

    `objects`: things that the command names. `old_value`, `new_value`: JSON of what it changed in
    the operators' state; None: nothing.
    """

    key_id: str | None = None
    right: str | None = None
    objects: tuple[str, ...] = ()
    old_value: str | None = None
    new_value: str | None = None

    def to_dict(self) -> dict[str, object]:
        """Return the fields that are set, for JSON."""
        values = {name: getattr(self, name) for name in _NAMES}
        return {
            name: list(value) if isinstance(value, tuple) else value
            for name, value in values.items()
            if value
        }


OWN_SETTINGS = "own-settings"
"""Kind of the change that a job has other settings of its own than the job before."""
TAKE_OVER = "take-over"
"""Kind of the change that a standby leads."""
JOB_CHANGES = (OWN_SETTINGS, TAKE_OVER)
"""Kinds of rows of the audit that no command has caused. They have no command id."""


@dataclass(frozen=True, slots=True)
class JobChange:
    """A change that comes with a job's start, for the audit. `by`: which job."""

    kind: str
    by: str
    text: str
    objects: tuple[str, ...] = ()
    values: tuple[str | None, str | None] = (None, None)  # old and new one, JSON


_NAMES = tuple(declared.name for declared in fields(Audited))
NOT_AUDITED = Audited()


@dataclass(frozen=True, slots=True)
class Changed:
    """What a command changed: field of operators' state → the parts of it that differ."""

    old: Mapping[str, object] = field(default_factory=dict)
    new: Mapping[str, object] = field(default_factory=dict)

    @property
    def values(self) -> tuple[str | None, str | None]:
        """Return old and new value as JSON; None: nothing has changed."""
        if self.old == self.new:
            return None, None
        return _to_text(self.old), _to_text(self.new)


def find_changes(before: OperatorState, changes: Mapping[str, object]) -> Changed:
    """Return what these changes change. Of mappings and lists only the parts that differ."""
    old, new = dict[str, object](), dict[str, object]()
    for name, after in changes.items():
        former = getattr(before, name)
        if name in _NOT_SET or former == after:
            continue
        old[name], new[name] = _differing_parts(former, after)
    return Changed(old, new)


def _differing_parts(former: Any, after: Any) -> tuple[object, object]:
    if isinstance(former, Mapping) and isinstance(after, Mapping):
        absent = object()
        names = [
            name
            for name in sorted(former.keys() | after.keys())
            if former.get(name, absent) != after.get(name, absent)
        ]
        return (
            {name: former[name] for name in names if name in former},
            {name: after[name] for name in names if name in after},
        )
    if isinstance(former, tuple) and isinstance(after, tuple):
        return (
            [item for item in former if item not in after],
            [item for item in after if item not in former],
        )
    return former, after


def find_own_changes(former: Mapping[str, Any], own: Mapping[str, Any], epoch: int) -> JobChange:
    """Return the change from the settings of an earlier job to those of this one, which differ."""
    old, new = _differing_parts(former, own)
    assert isinstance(old, Mapping) and isinstance(new, Mapping)
    names = sorted(old.keys() | new.keys())
    return JobChange(
        OWN_SETTINGS,
        "the job",
        f"epoch {epoch} began with other settings of its own: files, environment, arguments",
        describe_objects(NamedObject("setting", name) for name in names),
        Changed({"own_settings": old}, {"own_settings": new}).values,
    )


def _to_text(value: Mapping[str, object]) -> str:
    text = canonical_json(value)
    if len(text) <= LONGEST_VALUE:
        return text
    digest = blake2b(text.encode(errors="replace"), digest_size=8).hexdigest()
    return canonical_json({"digest": digest, "characters": len(text)})


def describe_objects(objects: Iterable[NamedObject]) -> tuple[str, ...]:
    """Return the things that a command names, each with its kind: `broker b-1:8080`."""
    found = [f"{kind} {name}" for kind, name in objects]
    lengths = accumulate(map(len, found))
    named = max(1, sum(length <= LONGEST_OBJECTS for length in lengths))
    more = len(found) - named
    return (*found[:named], f"{more} more") if more > 0 else tuple(found)
