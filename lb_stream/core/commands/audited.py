"""What the audit says of a command beside its answer: the things that it names, what it changed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from hashlib import blake2b
from itertools import accumulate
from typing import Any

from lb_stream.contracts.base import canonical_json
from lb_stream.core.commands.base import broker_of
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


def _to_text(value: Mapping[str, object]) -> str:
    text = canonical_json(value)
    if len(text) <= LONGEST_VALUE:
        return text
    digest = blake2b(text.encode(errors="replace"), digest_size=8).hexdigest()
    return canonical_json({"digest": digest, "characters": len(text)})


def find_objects(arguments: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the things that a command names, each with its kind: `broker b-1:8080`."""
    found = list(dict.fromkeys(_list_objects(arguments)))
    lengths = accumulate(map(len, found))
    named = max(1, sum(length <= LONGEST_OBJECTS for length in lengths))
    more = len(found) - named
    return (*found[:named], f"{more} more") if more > 0 else tuple(found)


def _list_objects(arguments: Mapping[str, Any]) -> Iterator[str]:
    for name in ("broker", "destination", "canary"):
        if broker := arguments.get(name):
            yield f"broker {broker_of(str(broker))}"
    for broker in (*arguments.get("in_order", ()), *arguments.get("failure_domains", ())):
        yield f"broker {broker_of(str(broker))}"
    yield from _list_bundles(arguments)
    if rollout := arguments.get("rollout"):
        yield f"rollout {rollout}"
    for kind, names in (
        ("setting", [arguments["key"]] if "key" in arguments else ()),
        ("setting", arguments.get("values", ())),
        ("namespace", arguments.get("anti_affinity", ())),
        ("policy", arguments.get("remove_isolation", ())),
        ("proposal", arguments.get("proposals", ())),
    ):
        yield from (f"{kind} {name}" for name in names)
    # An import has namespaces and policies in its content.
    for content in (arguments, arguments.get("content", {})):
        for kind, named in (("namespace", "namespaces"), ("policy", "isolation")):
            yield from (f"{kind} {entry['name']}" for entry in content.get(named, ()))


def _list_bundles(arguments: Mapping[str, Any]) -> Iterator[str]:
    """Yield bundles, or the namespace where no bundle is named."""
    namespace, bundles = arguments.get("namespace"), arguments.get("bundles")
    names = [str(name) for name in bundles] if isinstance(bundles, list) else []
    if bundle := arguments.get("bundle"):
        names.append(str(bundle))
    for name in names:
        # Pins name whole bundles, other commands a range of their namespace.
        yield f"bundle {namespace}/{name}" if namespace else f"bundle {name}"
    if namespace and not names:
        yield f"namespace {namespace}"
    if topic := arguments.get("topic"):
        yield f"topic {topic}"
