"""Evaluate all shadows of a cluster in one round, from and to columns of the log."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

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

Settings = Mapping[str, Mapping[str, object]]
"""Shadow → its own settings."""
Evaluate = Callable[[], tuple[ShadowMemory, Entry]]
"""Evaluates one shadow: returns its memory and its entry."""
Attempt = Callable[[str, Evaluate], tuple[ShadowMemory | None, Entry]]
"""Evaluates the shadow of that name, or skips it.

Returns its memory (None: unchanged) and its entry.
"""


@dataclass(frozen=True, slots=True)
class ShadowColumns:
    """The log's columns about shadows in a round, as JSON."""

    shadows: str
    shadow_memory: str = "{}"


def evaluate_shadows(
    shadow_input: ShadowInput, shadows: Settings, remembered: str, attempt: Attempt
) -> ShadowColumns:
    """Return the entries and memories of all shadows, the cluster's own policy first.

    `remembered`: the column `shadow_memory` of the row before. `attempt`: evaluates each shadow, or
    skips it.
    """
    known = msgspec.json.decode(remembered, type=dict[str, ShadowMemory])
    entries, memories = [real_entry(shadow_input)], {}
    for name in sorted(shadows):
        # Its memory, which is dropped when its settings change (compared as the log has them).
        own = json.loads(canonical_json(shadows[name]))
        before = known.get(name)
        if before is None or before.own != own:
            before = ShadowMemory.begin(own, shadow_input.made.memory)
        before = before.without_moves_of(shadow_input)
        # Its round.
        after, entry = attempt(name, partial(evaluate_shadow, shadow_input, before))
        memories[name] = after or before
        entries.append(entry | {"policy": name})
    return ShadowColumns(canonical_json(entries), canonical_json(memories))


def replay_shadows(
    shadow_input: ShadowInput, shadows: Settings, remembered: str, logged: str
) -> ShadowColumns:
    """Repeat an evaluation from the log, with the same shadows skipped and failed.

    `logged`: the column `shadows` of that round.
    """
    then = {entry["policy"]: entry for entry in json.loads(logged)}

    def attempt(name: str, evaluate: Evaluate) -> tuple[ShadowMemory | None, Entry]:
        return evaluate() if then[name]["outcome"] == "done" else (None, then[name])

    return evaluate_shadows(shadow_input, shadows, remembered, attempt)


def failed(error: BaseException) -> Entry:
    """Return the entry of a shadow that has failed, with the error's first line."""
    detail = f"{type(error).__name__}: {error}".partition("\n")[0]
    return {"outcome": "failed", "detail": detail[:MAX_DETAIL_LENGTH]}
