"""Every scenario beside this repository, played and measured: another program, made from the same
definitions, finds the same."""

import json
import os
import sys
from pathlib import Path

import pytest

from lb_stream.sim.measures import measure_figures
from lb_stream.sim.scenario import read_scenario
from lb_stream.sim.simulation import read_policy, run_simulation
from tests.record_measures import measured_by
from tests.unit.sim.measures.differing import differing

PROJECT = Path(__file__).parents[4]
FOLDER = Path(
    os.environ.get("SCENARIOS_DIR")
    or next(PROJECT.parent.glob("*/scenarios/check.py"), PROJECT / "check.py").parent
)
SCENARIOS = sorted(path.parent for path in FOLDER.glob("*/*/scenario.json"))

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(
        not SCENARIOS, reason="no scenarios beside this repository: SCENARIOS_DIR=FOLDER"
    ),
]


@pytest.mark.parametrize("policy", ["ThresholdShedder+LeastLongTermMessageRate", "AvgShedder"])
@pytest.mark.parametrize("folder", SCENARIOS, ids=lambda folder: folder.name)
def test_what_is_played_is_a_trace_and_measures_as_elsewhere(
    folder: Path, policy: str, tmp_path: Path
) -> None:
    scenario = read_scenario(folder)
    played = run_simulation(scenario, read_policy(policy))
    trace = tmp_path / "trace.jsonl"
    trace.write_text("".join(json.dumps(line) + "\n" for line in (played.header, *played.lines)))
    theirs = measured_by(f"{sys.executable} {FOLDER / 'check.py'}", folder, trace)
    assert differing(measure_figures(scenario, played.lines), theirs) == {}
