"""All shadows of a cluster look at one round: from the columns of the log, into the columns of the log."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from lb_stream.contracts.base import canonical_json
from lb_stream.core.shadow.look_on import Entry, Looked, ShadowMemory, look_on, real_entry

NOTHING = {"shadows": "[]", "shadow_memory": "{}"}
"""What the log says of a cluster without shadows."""
LONGEST_SAID = 300

Settings = Mapping[str, Mapping[str, Any]]
"""Shadow → its own settings."""
Look = Callable[[], tuple[ShadowMemory, Entry]]
Attempt = Callable[[str, Look], tuple[ShadowMemory | None, Entry]]
"""Let the shadow of that name look on, or not. Returns what it remembers then (None: what it did) and its entry."""


def looked_on(
    looked: Looked, shadows: Settings, remembered: str, attempt: Attempt
) -> dict[str, str]:
    """The columns `shadows` and `shadow_memory`. `remembered`: the latter, of the row before. The first entry is the cluster's own."""
    known = json.loads(remembered)
    entries, memories = [real_entry(looked)], {}
    for name in sorted(shadows):
        own = json.loads(canonical_json(shadows[name]))  # as the log has it
        before = (
            ShadowMemory.of(known[name])
            if known.get(name, {}).get("own") == own
            else ShadowMemory.begin(own, looked.made.memory)
        )
        before = before.without_moves_of(looked)

        def look(before: ShadowMemory = before) -> tuple[ShadowMemory, Entry]:
            return look_on(looked, before)

        after, entry = attempt(name, look)
        memories[name] = (after or before).to_dict()
        entries.append(entry | {"policy": name})
    return {"shadows": canonical_json(entries), "shadow_memory": canonical_json(memories)}


def looked_on_again(
    looked: Looked, shadows: Settings, remembered: str, logged: str
) -> dict[str, str]:
    """The same once more, from the log: those that were skipped or failed then are so again. `logged`: the column `shadows`."""
    then = {entry["policy"]: entry for entry in json.loads(logged)}

    def attempt(name: str, look: Look) -> tuple[ShadowMemory | None, Entry]:
        return look() if then[name]["outcome"] == "done" else (None, then[name])

    return looked_on(looked, shadows, remembered, attempt)


def failed(error: BaseException) -> Entry:
    """The entry of a shadow that has failed."""
    return {
        "outcome": "failed",
        "detail": f"{type(error).__name__}: {error}".partition("\n")[0][:LONGEST_SAID],
    }
