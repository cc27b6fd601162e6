"""Runs one target under libFuzzer, by atheris: `python -m tests.fuzz.engine TARGET FILE [OPTIONS]`.

FILE gets the input that is being tried: four bytes with its length, then the input.

It needs atheris on the path, and is started by `tests.fuzz`. All of lb_stream is instrumented as it
is imported, so that the fuzzer sees which lines an input reaches.
"""

from __future__ import annotations

import logging
import mmap
import sys
from functools import cache

import atheris

with atheris.instrument_imports(include=["lb_stream", "tomllib"]):
    from tests.fuzz.registry import load_target

    TARGET = load_target(sys.argv[1])

from lb_stream.settings import names

names.list_pulsar_names = cache(names.list_pulsar_names)
names.load_plugins = lambda: None
"""Settings are read a thousand times a second here: what no input changes is found once."""


def main() -> None:
    """Fuzz until libFuzzer's options end it; its exit code is 77 for a finding."""
    with open(sys.argv[2], "w+b") as file:
        file.truncate(4 + TARGET.max_bytes)
        mapped = memoryview(mmap.mmap(file.fileno(), 0))
    size, last = mapped[:4], mapped[4:]
    logging.disable(logging.CRITICAL)  # programs log what they leave out, a line for each input

    def parse(data: bytes) -> None:
        # The fuzzer can't write down an input that never ends: Python's own signals come later.
        last[: len(data)] = data
        size[:4] = len(data).to_bytes(4, "little")
        TARGET.parse(data)

    atheris.Setup([sys.argv[0], *sys.argv[3:]], parse)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
