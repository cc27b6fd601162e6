"""Output of commands: results on stdout, notes and errors on stderr.

Control characters and markup in names are shown as text.
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
from typing import TYPE_CHECKING

import typer

from lb_stream.io.messages.shown import in_json, shown
from lb_stream.settings.secrets import hide

if TYPE_CHECKING:
    from pathlib import Path

    from rich.console import Console, RenderableType
    from rich.text import Text


INTERRUPTED = 130
FORMULA_BEGINS = ("=", "+", "-", "@", "\t", "\r")
"""How a text begins that a spreadsheet may take for a formula."""
ASCII = "lbctl-ascii"
"""The error handler for characters that a terminal's encoding lacks.

Arrows and the like become similar ASCII characters, letters of names become their numbers.
"""

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
    """Write one line for people to stdout, whatever the names in it hold."""
    emit(shown(text) + "\n")


class ReaderGone(typer.Exit):
    """The reader of stdout has ended, as `head` does: the command ends, too, without an error."""


_CLEAR_SCREEN = "\x1b[H\x1b[2J\x1b[3J"
_before_output: list[str] = []
"""What stands before the next output: the sequence that clears the screen, and a first line."""


def clear_before_output(header: str) -> None:
    """Clear the terminal when the next output comes, and not before, and write `header` above it.

    What is shown stays on the screen while the next figures are read.
    """
    _before_output[:] = [_CLEAR_SCREEN, header]


def _take_before_output() -> str:
    text = "".join(_before_output)
    _before_output.clear()
    return text


def emit_data(text: str) -> None:
    """Write text to stdout unchanged; if its reader has ended (`| head`), end without an error.

    Raises ReaderGone.
    """
    try:
        sys.stdout.write(_take_before_output() + text)
        sys.stdout.flush()
    except BrokenPipeError:
        discard_stdout()
        raise ReaderGone(0) from None


def discard_stdout() -> None:
    """Discard what is still buffered for stdout, so that Python's flush at exit doesn't fail."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def note(text: str) -> None:
    """Write a line for people to stderr."""
    if _before_output:
        emit_data("")
    print(shown(hide(text), "\n"), file=sys.stderr, flush=True)


def note_whole_id(given: str, whole: str) -> None:
    """Note on stderr which name or id its begin was taken for, if it was a begin."""
    if given != whole:
        note(f"{given} is taken for {whole}")


def warn_if_exposed(path: Path, holds: str) -> None:
    """Warn on stderr if other users can open a file of secrets."""
    from lb_stream.settings.files import describe_exposure

    if exposed := describe_exposure(path, holds):
        note(f"warning: {exposed}")


def emit_json(value: object) -> None:
    """Write one JSON value as a line to stdout. NaN and infinity, which JSON lacks, become null."""
    emit_data(in_json(json.dumps(_plain(value), ensure_ascii=False, allow_nan=False)) + "\n")


def emit_rows(
    rows: Iterable[Mapping[str, object]],
    form: str,
    as_json: bool = False,
    *,
    name: str | None = None,
) -> bool:
    """Write rows for programs to stdout; return False, without output, for forms for people.

    Form `json`, or `as_json`: one object a line. Form `yaml`: one list. Form `csv`: the columns of
    the first row; values that are neither numbers nor text are JSON. Form `name`: the column
    `name`, by default the first one, with a row's value on each line.
    """
    form = "json" if as_json else form
    if form == "json":
        for row in rows:
            emit_json(row)
    elif form == "yaml":
        _emit_yaml(rows)
    elif form == "csv":
        for number, row in enumerate(rows):
            if number == 0:
                emit_csv([list(row)])
            emit_csv([[_plain(value) for value in row.values()]])
    elif form == "name":
        for row in rows:
            value = row[name or next(iter(row))]
            if value is not None:
                emit_line(str(value))
    else:
        return False
    return True


def emit_object(value: Mapping[str, object], form: str) -> bool:
    """Write one object for programs to stdout; return False, without output, for form `table`.

    Raises CommandError for the forms that only rows have.
    """
    if form in ("csv", "name"):
        raise CommandError(
            f"--output {form}: expected table, json or yaml: the answer is one object, no rows", 2
        )
    if form == "json":
        emit_json(value)
    elif form == "yaml":
        from lb_stream.cli.shared.yaml_text import to_yaml

        emit_data(to_yaml(_plain(value)))
    return form != "table"


def _emit_yaml(rows: Iterable[Mapping[str, object]]) -> None:
    from lb_stream.cli.shared.yaml_text import to_yaml

    empty = True
    for row in rows:
        emit_data(to_yaml([_plain(dict(row))]))
        empty = False
    if empty:
        emit_data("[]\n")


def emit_csv(rows: Iterable[Sequence[object]]) -> None:
    """Write CSV to stdout; on a terminal control characters are visible."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(map(_csv_cell, row) for row in rows)
    (emit if sys.stdout.isatty() else emit_data)(text.getvalue())


def _csv_cell(value: object) -> object:
    """Return a cell of CSV that no spreadsheet takes for a formula: senders choose names.

    Such a text gets an apostrophe before it.
    """
    if isinstance(value, list | dict):
        return json.dumps(value, ensure_ascii=False)
    is_formula = isinstance(value, str) and value.startswith(FORMULA_BEGINS) and len(value) > 1
    return f"'{value}" if is_formula else value


def _plain(value: object) -> object:
    """Return a value as JSON can hold it."""
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
    """Return a console of rich that renders for stdout; `emit` writes what it renders."""
    from rich.console import Console  # (rich is slow to import; machine output needs none)

    return Console(highlight=False)


def emit_rich(*parts: RenderableType) -> None:
    """Write tables, styled text and lines to stdout, without styles if it is no terminal.

    Markup in plain text is shown as text.
    """
    screen = console()
    with screen.capture() as captured:
        for part in parts:
            screen.print(styled(*part.split("\n")) if isinstance(part, str) else part)
    emit_data(captured.get())


def styled(*lines: str | tuple[str, str]) -> Text:
    """Return lines of text, or pairs of text and style, for rich, also for cells.

    Control characters and markup in them are shown as text.
    """
    from rich.text import Text

    pairs = [(line, "") if isinstance(line, str) else line for line in lines]
    return Text("\n").join(Text(shown(text), style) for text, style in pairs)


def table(
    columns: Sequence[str], rows: Sequence[Sequence[object]], *, right: Sequence[str] = ()
) -> RenderableType:
    """Return a plain table; columns named in `right` are right-aligned.

    Cells are values, or texts that `styled` has made.
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
