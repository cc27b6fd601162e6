"""A program on a terminal of a given size, and what its screen shows."""

import codecs
import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

_CONTROL = re.compile(
    r"\x1b\[(\??[0-9;]*)([A-Za-z])|\x1b[()][A-Z0-9]|[\r\n]|[^\x1b\r\n]+", re.DOTALL
)
_UNFINISHED = re.compile(r"\x1b(\[\??[0-9;]*)?$")


class Screen:
    """Enough of a terminal for what rich writes: lines, cursor to a place, erasing, colours, the
    alternate screen."""

    def __init__(self, columns: int, rows: int) -> None:
        self.columns, self.rows = columns, rows
        self.alternate = False
        self.coloured = False
        self.overflowed = False
        """A line was longer than the screen is wide."""
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._left = ""
        self._clear()

    def _clear(self) -> None:
        self._cells = [[" "] * self.columns for _ in range(self.rows)]
        self._row = self._column = 0

    @property
    def lines(self) -> list[str]:
        """The rows, without the blanks at their ends."""
        return ["".join(row).rstrip() for row in self._cells]

    def write(self, data: bytes) -> None:
        """What the program has written; letters and control sequences may be cut in two
        anywhere."""
        text = self._left + self._decoder.decode(data)
        cut = _UNFINISHED.search(text)
        self._left = cut.group(0) if cut else ""
        for token in _CONTROL.finditer(text.removesuffix(self._left)):
            self._token(token.group(0), token.group(1) or "", token.group(2) or "")

    def _token(self, text: str, arguments: str, command: str) -> None:
        if text == "\n":
            self._row, self._column = self._row + 1, 0
            if self._row == self.rows:
                self._cells, self._row = [*self._cells[1:], [" "] * self.columns], self.rows - 1
        elif text == "\r":
            self._column = 0
        elif command == "H":
            row, _, column = arguments.partition(";")
            self._row, self._column = int(row or 1) - 1, int(column or 1) - 1
        elif command == "J":
            self._clear()
        elif command == "K":
            self._cells[self._row] = [" "] * self.columns
        elif command == "m":
            codes = re.findall(r"\d+", arguments)
            self.coloured = self.coloured or any(
                code[0] in "349" and len(code) > 1 for code in codes
            )
        elif command in ("h", "l"):
            if arguments == "?1049":
                self.alternate = command == "h"
                self._clear()
        elif not command and not text.startswith("\x1b"):
            self._write_letters(text)

    def _write_letters(self, text: str) -> None:
        for letter in text:
            if self._column >= self.columns:
                self.overflowed = True
                return
            self._cells[self._row][self._column] = letter
            self._column += 1


class Session:
    """A program that runs on a terminal."""

    def __init__(
        self, process: "subprocess.Popen[bytes]", side: int, columns: int, rows: int
    ) -> None:
        self.process, self._side, self.screen = process, side, Screen(columns, rows)
        self._open = True

    def read(self, seconds: float) -> None:
        """Take in what the program writes within this time."""
        deadline = time.monotonic() + seconds
        while self._open and (left := deadline - time.monotonic()) > 0:
            if select.select([self._side], [], [], left)[0]:
                try:
                    data = os.read(self._side, 1 << 16)
                except OSError:  # its other end is closed
                    data = b""
                self._open = bool(data)
                self.screen.write(data)

    def wait_for(self, condition: Callable[[Screen], bool], seconds: float = 20.0) -> list[str]:
        """The screen's lines once the condition holds. Fails when it doesn't in time."""
        deadline = time.monotonic() + seconds
        while not condition(self.screen):
            assert self._open and time.monotonic() < deadline, "\n".join(self.screen.lines)
            self.read(0.1)
        return self.screen.lines

    def resize(self, columns: int, rows: int) -> None:
        """The window is made larger or smaller."""
        self.screen = Screen(columns, rows)
        fcntl.ioctl(self._side, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        self.process.send_signal(signal.SIGWINCH)

    def interrupt(self) -> int:
        """What Ctrl-C sends. Returns the exit code."""
        self.process.send_signal(signal.SIGINT)
        self.read(10.0)
        return self.process.wait(10)


@contextmanager
def on_terminal(
    command: Sequence[str], columns: int, rows: int, cwd: Path, env: Mapping[str, str] = {}
) -> Iterator[Session]:
    """Run a command on a terminal of its own; it is ended at last."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(ours, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
    clean = {
        name: value
        for name, value in os.environ.items()
        if name not in ("COLUMNS", "LINES", "NO_COLOR", "FORCE_COLOR")
    }

    whole = clean | {"TERM": "xterm-256color"} | dict(env)
    process = subprocess.Popen(
        command,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        cwd=cwd,
        env=whole,
        start_new_session=True,
    )
    os.close(theirs)
    try:
        yield Session(process, ours, columns, rows)
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        process.wait(10)
        os.close(ours)
