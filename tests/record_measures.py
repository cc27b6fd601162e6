"""Random traces of the scenarios in tests/data, and what another program measured in them.

`python -m tests.record_measures COMMAND` writes tests/data/traces anew. COMMAND SCENARIO TRACE
prints one JSON object of measures.
"""

import gzip
import json
import shlex
import shutil
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from lb_stream.sim.scenario import Scenario, read_scenario, write_scenario
from tests.support.format_2 import whole_format_2
from tests.support.trace_maker import Line, random_trace

DATA = Path(__file__).parent / "data"
TRACES = DATA / "traces"
FIGURES = TRACES / "measures.json"


class Case(NamedTuple):
    """A trace of a scenario; `budgets`: its namespaces get some (no scenario in tests/data has
    any). `whole_format_2` is built, not read."""

    scenario: str
    moves: int | None  # None: no line at all
    budgets: bool = False
    sensible: bool = False
    rollout: bool = True  # of format 2: it has a rollout and topics

    @property
    def name(self) -> str:
        kinds = {"empty": self.moves is None, "budgets": self.budgets, "sensible": self.sensible}
        kinds |= {"without_rollout": not self.rollout}
        return "-".join([self.scenario, *(kind for kind, holds in kinds.items() if holds)])

    @property
    def trace(self) -> Path:
        return TRACES / f"{self.name}.jsonl.gz"

    def write(self, folder: Path) -> None:
        """The scenario's folder."""
        if self.scenario == "whole_format_2":
            built = whole_format_2()
            if not self.rollout:
                built = replace(built, rollout=None, topics=None, splits=None)
            write_scenario(built, folder)
            return
        shutil.copytree(DATA / "scenarios" / self.scenario, folder, copy_function=shutil.copyfile)
        if self.budgets:
            document = json.loads((folder / "scenario.json").read_text())
            names = dict.fromkeys(read_scenario(folder).namespaces)
            document["policies"] = {
                "budgets": [
                    {"namespace": name, "moves_per_hour": at % 3}
                    for at, name in enumerate(names)
                    if at % 4
                ]
            }
            (folder / "scenario.json").write_text(json.dumps(document))

    def read(self, folder: Path) -> tuple[Scenario, list[Line]]:
        """Scenario and recorded trace; the folder is a place to write to."""
        self.write(folder)
        return read_scenario(folder), [
            json.loads(line) for line in gzip.decompress(self.trace.read_bytes()).splitlines()
        ]


CASES = (
    *(
        Case(name, 60)
        for name in (
            "crash_return",
            "drain",
            "isolation_bound",
            "lost_acks",
            "stale_reports",
            "steady_skewed",
        )
    ),
    *(
        Case("drain", None),
        Case("steady_skewed", 120, budgets=True),
        Case("drain", 100, sensible=True),
        Case("steady_skewed", 100, sensible=True),
        Case("whole_format_2", 150),
        Case("whole_format_2", 120, rollout=False),
        Case("whole_format_2", 60, sensible=True, rollout=False),
    ),
)


def measured_by(command: str, folder: Path, trace: Path) -> dict[str, Any]:
    """What the other program says."""
    done = subprocess.run(
        [*shlex.split(command), str(folder), str(trace)],
        capture_output=True,
        text=True,
        check=False,
    )
    figures: dict[str, Any] = json.loads(done.stdout)
    assert "error" not in figures, figures
    return figures


def main(command: str) -> None:
    TRACES.mkdir(exist_ok=True)
    recorded = {}
    for case in CASES:
        with tempfile.TemporaryDirectory() as parent:
            folder, trace = Path(parent) / "scenario", Path(parent) / "trace.jsonl"
            case.write(folder)
            lines = (
                []
                if case.moves is None
                else random_trace(read_scenario(folder), len(recorded), case.moves, case.sensible)
            )
            text = "".join(json.dumps(line) + "\n" for line in lines)
            trace.write_text(text)
            case.trace.write_bytes(gzip.compress(text.encode(), mtime=0))
            recorded[case.name] = measured_by(command, folder, trace)
    FIGURES.write_text(json.dumps(recorded, indent=1) + "\n")


if __name__ == "__main__":
    main(sys.argv[1])
