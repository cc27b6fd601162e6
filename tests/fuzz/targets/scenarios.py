"""Scenarios and their traces: files that people write or other programs make."""

from __future__ import annotations

import json

from lb_stream.sim.families.recipe import build_from_file
from lb_stream.sim.measures.trace import TraceError, read_trace
from lb_stream.sim.scenario.document import read_document
from lb_stream.sim.scenario.errors import ScenarioError
from tests.fuzz.registry import require_message, target
from tests.fuzz.targets.files import written


@target(
    "sim.scenario.document",
    words=('"format":2', '"brokers":[', '"events":[{"kind":', '"faults":[]', '"judged":['),
    max_bytes=16_384,
)
def scenario_document(data: bytes) -> bool:
    """A scenario's scenario.json."""
    try:
        read_document(written(data, "scenario.json"))
    except ScenarioError as error:
        require_message(error)
        return False
    return True


@target(
    "sim.families.recipe",
    words=('family = "drain"\n', "[cluster]\n", "brokers = 3\n", "[[shapes]]\n", "seed = 1\n"),
)
def scenario_recipe(data: bytes) -> bool:
    """A TOML file from which a scenario is built; what would be a large one is left out."""
    path = written(data, "recipe.toml")
    if any(len(digits) > 2 for digits in _numbers(data)):
        return False
    try:
        build_from_file(path)
    except ScenarioError as error:
        require_message(error)
        return False
    return True


def _numbers(data: bytes) -> list[str]:
    text = "".join(chr(byte) if chr(byte).isdigit() else " " for byte in data)
    return text.split()


@target("sim.measures.trace", words=('{"event":"decision"', '"t_s":', '"kind":"unload"', "NaN"))
def trace(data: bytes) -> bool:
    """A trace, a JSON object on each line."""
    try:
        for line in read_trace(written(data, "trace.jsonl")):
            json.dumps(line)
    except TraceError as error:
        require_message(error)
        return False
    return True
