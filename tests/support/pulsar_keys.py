"""The keys of Pulsar's load balancer, and their defaults in each release, as its classes have them."""

import json
from pathlib import Path
from typing import Any

FILE = Path(__file__).parents[1] / "data" / "vectors" / "configuration_keys.json"
KEYS: dict[str, dict[str, Any]] = json.loads(FILE.read_text())["keys"]
RELEASES = ("4.0", "4.2", "5.0")


def defaults_of(release: str) -> dict[str, tuple[str, str | None]]:
    """Each key of a release → its type, and its default there as a broker.conf has it; None: it
    has no default."""
    found = {}
    known = RELEASES[: RELEASES.index(release) + 1]
    for name, key in KEYS.items():
        if key.get("since", RELEASES[0]) in known:
            changed = [text for at, text in key.get("changed", {}).items() if at in known]
            found[name] = (key["type"], [key["default"], *changed][-1])
    return found
