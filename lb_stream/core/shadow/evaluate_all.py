"""Evaluate all shadows of a cluster in one round: from columns of the log to columns of the log."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from lb_stream.contracts.base import canonical_json
from lb_stream.core.shadow.evaluate import (
    Entry,
    ShadowInput,
    ShadowMemory,
    evaluate_shadow,
    real_entry,
)

MAX_DETAIL_LENGTH = 300

Settings = Mapping[str, Mapping[str, Any]]
"""Shadow → its own settings."""
Look = Callable[[], tuple[ShadowMemory, Entry]]
Attempt = Callable[[str, Look], tuple[ShadowMemory | None, Entry]]
"""Let the shadow of that name look on, or not.

Returns what it remembers then (None: what it did) and its entry.
"""


@dataclass(frozen=True, slots=True)
class ShadowColumns:
    """What the log's columns of shadows say of a round."""

    shadows: str
    shadow_memory: str = "{}"


def evaluate_shadows(
    shadow_input: ShadowInput, shadows: Settings, remembered: str, attempt: Attempt
) -> ShadowColumns:
    """Evaluate each shadow in a round, the cluster's own policy first.

    `remembered`: the column `shadow_memory` of the row before.
    """
    known = msgspec.json.decode(remembered, type=dict[str, ShadowMemory])
    entries, memories = [real_entry(shadow_input)], {}
    for name in sorted(shadows):
        own = json.loads(canonical_json(shadows[name]))  # as the log has it
        before = (
            known[name]
            if name in known and known[name].own == own
            else ShadowMemory.begin(own, shadow_input.made.memory)
        )
        before = before.without_moves_of(shadow_input)

        def look(before: ShadowMemory = before) -> tuple[ShadowMemory, Entry]:
            return evaluate_shadow(shadow_input, before)

        after, entry = attempt(name, look)
        memories[name] = after or before
        entries.append(entry | {"policy": name})
    return ShadowColumns(canonical_json(entries), canonical_json(memories))


def replay_shadows(
    shadow_input: ShadowInput, shadows: Settings, remembered: str, logged: str
) -> ShadowColumns:
    """Repeat the evaluation from the log: skipped and failed shadows are so again.

    `logged`: the column `shadows`.
    """
    then = {entry["policy"]: entry for entry in json.loads(logged)}

    def attempt(name: str, look: Look) -> tuple[ShadowMemory | None, Entry]:
        return look() if then[name]["outcome"] == "done" else (None, then[name])

    return evaluate_shadows(shadow_input, shadows, remembered, attempt)


def failed(error: BaseException) -> Entry:
    """The entry of a shadow that has failed."""
    return {
        "outcome": "failed",
        "detail": f"{type(error).__name__}: {error}".partition("\n")[0][:MAX_DETAIL_LENGTH],
    }
