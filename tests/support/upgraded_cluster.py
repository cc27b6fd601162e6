"""A cluster whose brokers were upgraded while it ran: its profile is to change."""

from __future__ import annotations

from pathlib import Path

from tests.support.round_stage import Stage

DELAY_MINUTES = 3
OLD, NEW = ({name: version for name in "abc"} for version in ("4.0.7", "5.0.1"))


def run_upgraded(folder: Path) -> Stage:
    """Run a round for each minute of the upgrade; the change is announced in the last one."""
    stage = Stage(folder, shadows={})
    stage.settings.balancer["profile_change_delay_ms"] = DELAY_MINUTES * 60_000
    for versions in (OLD, OLD, NEW | {"c": "4.0.7"}, NEW):
        stage.versions = versions
        stage.run()
    return stage
