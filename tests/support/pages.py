"""Commands as pages print them, for the tests that run each page from its top to its end."""

import re
import shlex
from pathlib import Path

PROJECT = Path(__file__).parents[2]


def blocks(page: str, language: str = "sh") -> list[str]:
    """The fenced blocks of a page (its path below the project) in that language."""
    text = (PROJECT / page).read_text()
    return re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)


def lines(block: str) -> list[str]:
    """The commands of a block, as printed, comments included."""
    return [line for line in block.splitlines() if shlex.split(line, comments=True)]


def words(line: str) -> list[str]:
    """The words of a command without its comment."""
    return shlex.split(line, comments=True)
