"""Runs `lbctl` within the test's own process, in a folder of its own."""

import contextlib
import io
import json
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

from lb_stream.cli.main import main


@dataclass(frozen=True)
class Result:
    code: int
    out: str
    err: str

    @property
    def objects(self) -> list[Any]:
        """Stdout as JSON lines: fails when anything else is there."""
        return [json.loads(line) for line in self.out.splitlines()]


def lbctl(
    *arguments: str, cwd: Path, env: dict[str, str] | None = None, stdin: bytes = b""
) -> Result:
    """What one call of lbctl did.

    No variable LB_* of the machine is seen; the screen is 80 columns wide.
    """
    clean = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("LB_") or name == "LB_JARS_DIR"
    } | {"LB_CONTEXTS": str(cwd / ".contexts.json")}
    out, err, entry = io.StringIO(), io.StringIO(), io.TextIOWrapper(io.BytesIO(stdin))
    with (
        contextlib.chdir(cwd),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
        mock.patch.dict(os.environ, clean | {"COLUMNS": "80"} | (env or {}), clear=True),
        mock.patch.object(sys, "argv", ["lbctl", *arguments]),
        mock.patch.object(sys, "stdin", entry),
    ):
        try:
            main()
            code: Any = 0
        except SystemExit as end:
            code = end.code
    return Result(code or 0, out.getvalue(), err.getvalue())
