"""Other words for a command: Pulsar's own, and those of earlier versions.

They work, and `--help` doesn't list them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import typer


def also(
    app: typer.Typer, *names: str, of: str
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Let `app` take the command under these names, too.

    `of`: how it is called now, which the help of the others says.
    """

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        for name in names:
            app.command(name, hidden=True, epilog=f"Another word for: lbctl {of}")(command)
        return command

    return decorate
