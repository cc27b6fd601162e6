"""How commands talk: results on stdout (nothing else), notes and errors on stderr.

What names hold is shown, never obeyed.
"""

from __future__ import annotations

import codecs
import csv
import io
import json
import math
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import typer

from lb_stream.io.messages.shown import in_json, shown
from lb_stream.settings.secrets import hide

if TYPE_CHECKING:
    from pathlib import Path

    from rich.console import Console, RenderableType
    from rich.text import Text


INTERRUPTED = 130
ASCII = "lbctl-ascii"
"""How letters are written that a terminal's encoding lacks: arrows and the like by others that look
alike, names by their numbers."""

_ALIKE = {
    "→": "->",
    "←": "<-",
    "…": "...",
    "·": "-",
    "×": "x",
    "÷": "/",
    "–": "-",
    "—": "-",
    "✓": "+",
    "✗": "x",
    "█": "#",
}


def _alike(error: UnicodeError) -> tuple[str, int]:
    assert isinstance(error, UnicodeEncodeError)
    letters = error.object[error.start : error.end]
    return "".join(
        _ALIKE.get(letter) or letter.encode("ascii", "backslashreplace").decode()
        for letter in letters
    ), error.end


codecs.register_error(ASCII, _alike)


class CommandError(Exception):
    """A command can't go on.

    The text says why and what to do; `code` is the exit code (1 failed, 2 wrong usage).
    """

    def __init__(self, text: str, code: int = 1) -> None:
        super().__init__(text)
        self.code = code


def emit(text: str) -> None:
    """Write text for people to stdout at once."""
    emit_data(shown(text, "\n"))


def emit_line(text: str) -> None:
    """One line, whatever names it holds."""
    emit(shown(text) + "\n")


def emit_data(text: str) -> None:
    """Write to stdout as it is. When its reader has gone (`| head`), end quietly: it had enough."""
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        discard_stdout()
        raise typer.Exit(0) from None


def discard_stdout() -> None:
    """Let what is still buffered for stdout go nowhere, so that Python's own flush at exit has
    nothing to complain about."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def note(text: str) -> None:
    """Write a line for people to stderr."""
    print(shown(hide(text), "\n"), file=sys.stderr, flush=True)


def warn_if_exposed(path: Path, holds: str) -> None:
    """Say on stderr that other users can open a file of secrets."""
    from lb_stream.settings.files import describe_exposure

    if exposed := describe_exposure(path, holds):
        note(f"warning: {exposed}")


def emit_json(value: Any) -> None:
    """One JSON value on a line of its own. NaN and infinity, which JSON lacks, become null."""
    emit_data(in_json(json.dumps(_plain(value), ensure_ascii=False, allow_nan=False)) + "\n")


def emit_rows(rows: Iterable[Mapping[str, Any]], form: str, as_json: bool = False) -> bool:
    """Rows for programs, as json (one object a line) or csv (columns of the first row; what is no
    figure and no text is JSON).

    `as_json`: --json was given, which is another word for that form. Returns False, and prints
    nothing, for another form: they are for people then.
    """
    form = "json" if as_json else form
    if form not in ("json", "csv"):
        return False
    for number, row in enumerate(rows):
        if form == "json":
            emit_json(row)
            continue
        if number == 0:
            emit_csv([list(row)])
        emit_csv([list(_plain(dict(row)).values())])
    return True


def emit_csv(rows: Iterable[Sequence[Any]]) -> None:
    """Lines of CSV, as they are for a program; a terminal is shown what it would obey."""
    text = io.StringIO()
    cells = (
        [
            json.dumps(value, ensure_ascii=False) if isinstance(value, list | dict) else value
            for value in row
        ]
        for row in rows
    )
    csv.writer(text, lineterminator="\n").writerows(cells)
    (emit if sys.stdout.isatty() else emit_data)(text.getvalue())


def _plain(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, dict):
        return {str(name): _plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, Decimal):
        return float(value)
    return value if isinstance(value, str | int | float | bool | None) else str(value)


def console() -> Console:
    """Renders for stdout; what it renders is written by `emit`."""
    from rich.console import Console  # (rich is slow to import; machine output needs none)

    return Console(highlight=False)


def emit_rich(*parts: RenderableType) -> None:
    """Tables, styled text and lines; plain where stdout is no terminal.

    A plain text is no markup.
    """
    screen = console()
    with screen.capture() as captured:
        for part in parts:
            screen.print(styled(*part.split("\n")) if isinstance(part, str) else part)
    emit_data(captured.get())


def styled(*lines: str | tuple[str, str]) -> Text:
    """Lines of text, or pairs of text and style, for rich: what names hold adds no line, no colour,
    no markup. For cells, too."""
    from rich.text import Text

    pairs = [(line, "") if isinstance(line, str) else line for line in lines]
    return Text("\n").join(Text(shown(text), style) for text, style in pairs)


def table(
    columns: Sequence[str], rows: Sequence[Sequence[Any]], *, right: Sequence[str] = ()
) -> RenderableType:
    """A plain table; columns named in `right` are right-aligned.

    Cells that `styled` has not made are plain values.
    """
    from rich import box
    from rich.table import Table
    from rich.text import Text

    made = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, show_edge=False)
    for name in columns:
        made.add_column(styled(name), justify="right" if name in right else "left", overflow="fold")
    for row in rows:
        made.add_row(*(cell if isinstance(cell, Text) else styled(str(cell)) for cell in row))
    return made
