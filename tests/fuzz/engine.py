"""Runs one target under libFuzzer, by atheris: `python -m tests.fuzz.engine TARGET [OPTIONS] …`.

It needs atheris on the path, and is started by `tests.fuzz`. All of lb_stream is instrumented as it
is imported, so that the fuzzer sees which lines an input reaches.
"""

from __future__ import annotations

import logging
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
    logging.disable(logging.CRITICAL)  # programs log what they leave out, a line for each input

    def parse(data: bytes) -> None:
        TARGET.parse(data)

    atheris.Setup([sys.argv[0], *sys.argv[2:]], parse)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
