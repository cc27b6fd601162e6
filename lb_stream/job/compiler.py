"""Lets a job's other threads go before the better one of Java's two compilers.

That compiler takes a third of a start's processor time, for code that pays only later.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

BETTER_COMPILER = "C2 CompilerThre"
"""Name of its threads, as the system cuts it off."""
NICENESS = 10
"""What it gets: a tenth of a core that another thread wants, and all of an idle one."""


def lower_compiler_priority(jvm: int) -> int:
    """Lower the priority of the compiler's threads in a process; return how many there are.

    It stays low, because only an administrator may raise it.
    """
    lowered = 0
    with suppress(OSError):  # a system without /proc, or a process of somebody else
        for thread in Path(f"/proc/{jvm}/task").iterdir():
            if (thread / "comm").read_text().startswith(BETTER_COMPILER):
                number = int(thread.name)
                niceness = max(NICENESS, os.getpriority(os.PRIO_PROCESS, number))
                os.setpriority(os.PRIO_PROCESS, number, niceness)
                lowered += 1
    return lowered
