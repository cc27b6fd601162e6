"""The job and the agents as processes of one command: started, watched, ended."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from lb_stream.cli.run.balance import GRACE_S
from lb_stream.cli.shared.output import CommandError, note
from lb_stream.io.local import processes
from lb_stream.io.local.processes import end_with_parent
from lb_stream.settings.handing_on import hide_secret_arguments

TAIL_LINES = 15
STEP_S = 0.1
KILL_AFTER_S = GRACE_S + 10.0
"""The job's own command ends everything it has started within its grace."""


class Part:
    """One command of lbctl that runs beside this one. Its output is added to a file."""

    def __init__(
        self, name: str, arguments: Sequence[str], log: Path, environment: Mapping[str, str]
    ) -> None:
        self.name, self.log = name, log
        self._arguments, self._environment = arguments, environment
        self._is_asked = False
        self._state = log.with_suffix(".json")
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it in a session of its own, so that Ctrl-C reaches only this command.

        What a killed command has left of it ends first: it may still finish a batch.
        """
        self._end_leftover()
        arguments, environment = hide_secret_arguments(
            self._arguments, {**os.environ, **self._environment}
        )
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "lb_stream.cli.main", *arguments],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                preexec_fn=end_with_parent,  # noqa: PLW1509 (no threads yet)
            )
        processes.write_running(self._state, self._process.pid)

    def _end_leftover(self) -> None:
        """End the process that the last `start` in this folder began, if it still runs."""
        found = processes.read_running(self._state)
        if found is not None:
            note(f"ending the {self.name} that another lbctl run has left")
            processes.end(*found, KILL_AFTER_S)

    def require_running(self) -> None:
        """Raise CommandError, with the end of its output, if it has ended."""
        code = None if self._process is None else self._process.poll()
        if code is not None:
            tail = self.log.read_text(errors="replace").rstrip().splitlines()[-TAIL_LINES:]
            raise CommandError(
                f"the {self.name} ended with exit code {code}. The end of {self.log}:\n"
                + "\n".join(tail)
            )

    def request_stop(self) -> None:
        """Send SIGTERM once: a second one would tell the job not to finish its batch."""
        if self._process is not None and not self._is_asked:
            self._process.terminate()
            self._is_asked = True

    def stop(self, hurry: Callable[[], bool] = lambda: False) -> None:
        """End it: SIGTERM, once more when `hurry` says so, and SIGKILL if it takes too long."""
        if self._process is None:
            return
        self.request_stop()
        deadline, hurried = time.monotonic() + KILL_AFTER_S, False
        while self._process.poll() is None and time.monotonic() < deadline:
            if not hurried and hurry():
                self._process.terminate()
                hurried = True
            time.sleep(STEP_S)
        self._process.kill()  # does nothing if it has ended
        self._process.wait()
