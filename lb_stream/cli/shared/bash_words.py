"""The words of a line that bash completes: it splits ids and names of brokers at their colons."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from io import StringIO

ASKED, WORDS, CURRENT = "_LBCTL_COMPLETE", "COMP_WORDS", "COMP_CWORD"
"""Variables of the script that `lbctl --install-completion` installs."""
OTHER_SHELLS = "_TYPER_COMPLETE_ARGS"
_SEPARATORS = frozenset(":=")


def find_wanted_command() -> str | None:
    """Return the command of the line that a shell completes; None: it is not given yet."""
    words = os.environ.get(WORDS) or os.environ.get(OTHER_SHELLS) or ""
    first = words.split()[1:2]
    return first[0] if first and len(words.split()) > 2 else None


@contextmanager
def whole_words() -> Iterator[None]:
    """While bash completes a word, give typer whole words, and bash the ends that it lacks."""
    if os.environ.get(ASKED) != "complete_bash":
        yield
        return
    text = os.environ.get(WORDS, "")
    split = text.split("\n" if "\n" in text else " ")
    words, current = join_words(split, int(os.environ.get(CURRENT, "0")))
    os.environ |= {WORDS: "\n".join(words), CURRENT: str(current)}
    word = words[current] if current < len(words) else ""
    offered = StringIO()
    try:
        with redirect_stdout(offered):
            yield
    finally:
        lines = offered.getvalue().splitlines()
        sys.stdout.write("".join(f"{cut_begin(line, word)}\n" for line in lines))


def join_words(split: Sequence[str], current: int) -> tuple[list[str], int]:
    """Return the words that bash has split at colons and equals signs, and the current one's place.

    `current`: its place among the split ones.
    """
    words: list[str] = []
    place, is_open = current, False
    for number, part in enumerate(split):
        is_separator = bool(part) and set(part) <= _SEPARATORS
        if words and number <= current and (is_separator or is_open):
            words[-1] += part
            place -= 1
        else:
            words.append(part)
        is_open = is_separator
    return words, place


def cut_begin(offered: str, word: str) -> str:
    """Return what bash is to put behind the last separator of the word that is completed."""
    begin = word[: max(word.rfind(separator) for separator in _SEPARATORS) + 1]
    for known in (begin, begin.partition("=")[2]):
        if known and offered.startswith(known):
            return offered.removeprefix(known)
    return offered
