"""The measures are those that another program, made from the same definitions, found in recorded traces."""

import json
import math
from pathlib import Path
from typing import Any

import pytest

from lb_stream.sim.measures import measure
from tests.record_measures import CASES, FIGURES, Case

RECORDED: dict[str, dict[str, Any]] = json.loads(FIGURES.read_text())


def differing(ours: dict[str, Any], theirs: dict[str, Any]) -> dict[str, Any]:
    """What is not alike to a millionth: name → both."""
    assert list(ours) == list(theirs)
    found = {}
    for name, one in ours.items():
        other = theirs[name]
        if isinstance(one, dict):
            found |= {f"{name}.{key}": both for key, both in differing(one, other).items()}
        elif isinstance(one, float) and isinstance(other, float):
            if not math.isclose(one, other, rel_tol=1e-6, abs_tol=1e-9):
                found[name] = (one, other)
        elif one != other or type(one) is not type(other):
            found[name] = (one, other)
    return found


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_recorded_trace_measures_as_it_was_measured_elsewhere(case: Case, tmp_path: Path) -> None:
    assert differing(measure(*case.read(tmp_path / "scenario")), RECORDED[case.name]) == {}


def test_the_recorded_traces_show_every_measure() -> None:
    """A measure that is 0 or nothing in every case is compared with nothing."""
    seen = {name for figures in RECORDED.values() for name, value in (figures | figures["violations"]).items() if value}
    assert {name for figures in RECORDED.values() for name in (figures | figures["violations"])} - seen == {"overload_s_100"}


def test_a_difference_is_found() -> None:
    one = {"scenario": "a", "moves": 1, "thrash": 0.5, "violations": {"pinned_moves": 0}}
    other = {"scenario": "a", "moves": 1.0, "thrash": 0.500001, "violations": {"pinned_moves": 2}}
    assert differing(one, one) == {}
    assert set(differing(one, other)) == {"moves", "thrash", "violations.pinned_moves"}
