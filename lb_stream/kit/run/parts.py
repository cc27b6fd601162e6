"""The job and the agents as processes of one command: started, watched, ended."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from lb_stream.cli.run.balance import GRACE_S
from lb_stream.cli.shared.output import CommandError
from lb_stream.io.local.processes import end_with_parent

TAIL_LINES = 15
KILL_AFTER_S = GRACE_S + 10.0
"""The job's own command ends everything it has started within its grace."""


class Part:
    """One command of lbctl that runs beside this one. Its output is added to a file."""

    def __init__(
        self, name: str, arguments: Sequence[str], log: Path, environment: Mapping[str, str]
    ) -> None:
        self.name, self.log = name, log
        self._arguments, self._environment = arguments, environment
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it in a session of its own, so that Ctrl-C reaches only this command."""
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "lb_stream.cli.main", *self._arguments],
                env={**os.environ, **self._environment},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                preexec_fn=end_with_parent,  # noqa: PLW1509 (no threads yet)
            )

    def require_running(self) -> None:
        """Raise CommandError, with the end of its output, if it has ended."""
        code = None if self._process is None else self._process.poll()
        if code is not None:
            tail = self.log.read_text(errors="replace").rstrip().splitlines()[-TAIL_LINES:]
            raise CommandError(
                f"the {self.name} ended with exit code {code}. The end of {self.log}:\n"
                + "\n".join(tail)
            )

    def stop(self) -> None:
        """End it: SIGTERM, and SIGKILL if it takes too long."""
        if self._process is None:
            return
        self._process.terminate()
        try:
            self._process.wait(KILL_AFTER_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
