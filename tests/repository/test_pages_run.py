"""docs/simulation.md followed from its top to its end, as printed: it needs neither Kafka nor Spark.

README.md: test_readme_runs.py and tests/e2e/test_readme_by_hand.py.
"""

from pathlib import Path

import pytest

from tests.support.lbctl_runner import lbctl
from tests.support.pages import blocks, lines, words
from tests.support.recorded_tables import record

PAGE = "docs/simulation.md"
LINES = [line for block in blocks(PAGE) for line in lines(block)]
CLUSTER = "eu-1"
"""As the page names a live cluster; the recorded one is `demo`."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where somebody follows the page: with a policy of their own, and the tables of a live cluster."""
    folder = tmp_path_factory.mktemp("simulation")
    strategies = "shedding_strategy = 'AvgShedder'\nplacement_strategy = 'AvgShedder'\n"
    (folder / "mine.toml").write_text(f"[balancer]\n{strategies}")
    record(folder / ".lb" / "demo" / "tables")
    return folder


@pytest.mark.parametrize("line", LINES)
def test_every_command_of_the_page_runs_in_its_order(line: str, folder: Path) -> None:
    program, *arguments = words(line.replace(CLUSTER, "demo"))
    assert program == "lbctl"
    result = lbctl(*arguments, cwd=folder)
    allowed = (0, 1) if "# exit code 1: it doesn't fit" in line else (0,)
    assert result.code in allowed, result.err
    assert result.out


def test_the_page_leaves_the_files_that_it_names(folder: Path) -> None:
    assert (folder / "my-drain.png").read_bytes().startswith(b"\x89PNG")
    assert "<html" in (folder / "zipf.html").read_text()[:200]
    assert '"event":"header"' in (folder / "zipf.jsonl").read_text().replace(" ", "").splitlines()[0]


def test_the_scenario_file_of_the_page_makes_a_folder_that_can_be_played(tmp_path: Path) -> None:
    (scenario,) = blocks(PAGE, "toml")
    (tmp_path / "evening.toml").write_text(scenario)
    assert lbctl("scenario", "new", "evening.toml", "evening", cwd=tmp_path).code == 0
    assert lbctl("scenario", "check", "evening", cwd=tmp_path).code == 0
