"""Crash points: named moments at which a test kills the whole job, to check its recovery.

`stream.crash_at = "after_log:3"` kills every process of the job's group (SIGKILL) when one process
reaches that point for the third time. Without the setting a crash point costs one comparison.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping

from lb_stream.contracts.keys import SettingError
from lb_stream.contracts.settings import parse_crash_at

VARIABLE = "LB_CRASH"
"""Environment variable for Python workers, which don't see the settings.

Its value is the setting and the process group to kill: `after_log:3:1234`.
"""


class _ArmedPoint:
    """The crash point that kills the job, and the number of hits left until it does."""

    def __init__(self, text: str) -> None:
        at, _, group = text.rpartition(":")
        self.name, self.hits = parse_crash_at(at)
        self.group = int(group)

    def hit(self) -> None:
        """Count one hit, and kill the job at the last one.

        A Python worker is in a process group of its own: it kills the job's group, then itself.
        """
        self.hits -= 1
        if self.hits == 0:
            os.killpg(self.group, signal.SIGKILL)
            os.kill(os.getpid(), signal.SIGKILL)


_armed: _ArmedPoint | None = _ArmedPoint(os.environ[VARIABLE]) if VARIABLE in os.environ else None


def arm(setting: str) -> Mapping[str, str]:
    """Arm the crash point that the setting names; "" disarms.

    Returns the environment that arms the Python workers. Raises SettingError when the job isn't in
    a process group of its own: the processes that started it would be killed, too.
    """
    # A global, as an argument would have to pass through all functions above a crash point.
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
    _armed = _ArmedPoint(text)
    return {VARIABLE: text}


def crash_point(name: str) -> None:
    """Kill the job here if a test has armed the point of that name.

    `name` is one of contracts.settings.CRASH_POINTS.
    """
    if _armed is not None and _armed.name == name:
        _armed.hit()
