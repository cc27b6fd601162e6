"""--watch shows the same again and again until Ctrl-C."""

from __future__ import annotations

import os
import signal
import sys
from io import StringIO
from pathlib import Path

import pytest
import typer

from lb_stream.cli.shared.output import CommandError, ReaderGone, emit, note
from lb_stream.cli.shared.watching import repeat
from tests.support.lbctl_runner import lbctl
from tests.unit.console.site import fleet

EVERY_S = 0.01


class Reader:
    """A command that ends as `ends` says, call for call; then it presses Ctrl-C."""

    def __init__(self, *ends: Exception | None) -> None:
        self.ends = list(ends)
        self.calls = 0

    def __call__(self) -> None:
        self.calls += 1
        emit(f"{self.calls}\n")
        end = self.ends.pop(0) if self.ends else None
        if not self.ends:
            os.kill(os.getpid(), signal.SIGINT)
        if end is not None:
            raise end


class Terminal(StringIO):
    """Stdout that is a terminal."""

    def isatty(self) -> bool:
        return True


def test_without_the_option_it_is_shown_once(capsys: pytest.CaptureFixture[str]) -> None:
    repeat(None, lambda: emit("1\n"))
    assert capsys.readouterr().out == "1\n"


def test_it_goes_on_until_ctrl_c_and_a_pipe_is_not_cleared(
    capsys: pytest.CaptureFixture[str],
) -> None:
    repeat(EVERY_S, Reader(None, typer.Exit(1), None))
    assert capsys.readouterr().out == "1\n2\n3\n"


def test_an_error_is_noted_and_the_next_call_shows_again(
    capsys: pytest.CaptureFixture[str],
) -> None:
    repeat(EVERY_S, Reader(None, CommandError("a file is gone\nmore"), None))
    shown = capsys.readouterr()
    assert shown.out == "1\n2\n3\n"
    assert shown.err.endswith("a file is gone\n") and len(shown.err.splitlines()) == 1


def test_the_first_calls_error_ends_it() -> None:
    reader = Reader(CommandError("no tables"), None)
    with pytest.raises(CommandError, match="no tables"):
        repeat(EVERY_S, reader)
    assert reader.calls == 1


def test_it_ends_with_the_reader_of_its_output() -> None:
    reader = Reader(None, ReaderGone(0), None)
    with pytest.raises(ReaderGone):
        repeat(EVERY_S, reader)
    assert reader.calls == 2


def test_a_terminal_is_cleared_once_for_each_time_before_notes_too(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    screen = Terminal()
    monkeypatch.setattr(sys, "stdout", screen)
    reader = Reader(None, None)

    def show() -> None:
        note("first a note")
        assert screen.getvalue().count("\x1b[2J") == reader.calls + 1
        reader()

    repeat(EVERY_S, show)
    assert screen.getvalue().count("\x1b[2J") == 2
    assert screen.getvalue().endswith("Ctrl-C ends it\n2\n")


def test_a_reader_takes_it_and_following_goes_without_it(tmp_path: Path) -> None:
    fleet(tmp_path / "tables", more=0)
    given = ("--set", f"stream.tables={tmp_path / 'tables'}")
    result = lbctl("decisions", "--follow", "--watch", "1", *given, cwd=tmp_path)
    assert result.code == 2 and "--watch and --follow" in result.err
    assert lbctl("brokers", "--watch", "0", *given, cwd=tmp_path).code == 2
