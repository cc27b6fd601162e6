"""Crash points: named moments at which a test has the whole job killed, to see that nothing is lost
and nothing happens twice.

`stream.crash_at = "after_log:3"` kills every process of the job's group (SIGKILL) when that point
is reached for the third time in one process. Without it a point costs a comparison.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping

from lb_stream.contracts.keys import SettingError
from lb_stream.contracts.settings import parse_crash_at

VARIABLE = "LB_CRASH"
"""Tells the Python workers, which don't see the settings: `after_log:3:1234`, 1234 being the group
to kill."""


class _Armed:
    """One point that is waited for."""

    def __init__(self, text: str) -> None:
        at, _, group = text.rpartition(":")
        (self.name, self.hits), self.group = parse_crash_at(at), int(group)

    def reached(self) -> None:
        """Count, and kill when it is time: the group first, as a worker is in another one."""
        self.hits -= 1
        if self.hits == 0:
            os.killpg(self.group, signal.SIGKILL)
            os.kill(os.getpid(), signal.SIGKILL)


_armed: _Armed | None = _Armed(os.environ[VARIABLE]) if VARIABLE in os.environ else None


def arm(setting: str) -> Mapping[str, str]:
    """Wait for a point from now on ("" for none).

    Returns the environment that Python workers need to wait for it too.

    Raises SettingError when the job isn't in a process group of its own: its parents would be
    killed with it.
    """
    # a point is reached deep in everything; passing it there would blur what it watches
    global _armed  # noqa: PLW0603
    _armed = None
    if not setting:
        return {}
    group = os.getpgrp()
    if group not in (os.getpid(), os.getppid()):
        raise SettingError(
            "stream.crash_at",
            setting,
            "a job in a process group of its own (setsid), as all of the group is killed",
        )
    text = f"{setting}:{group}"
    _armed = _Armed(text)
    return {VARIABLE: text}


def crash_point(name: str) -> None:
    """Here a test may kill the job. `name` is one of contracts.settings.CRASH_POINTS."""
    if _armed is not None and _armed.name == name:
        _armed.reached()
