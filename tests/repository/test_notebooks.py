"""Every notebook runs from its first cell to its last, by itself, and its plots show something."""

import re
import runpy
from collections.abc import Iterator
from pathlib import Path

import matplotlib
import numpy as np
import pytest

matplotlib.use("Agg")  # draws into memory: there may be no screen

from matplotlib import pyplot as plt
from matplotlib.image import imread

from tests.support.recorded_tables import record

FOLDER = Path(__file__).parents[2] / "notebooks"
NOTEBOOKS = {path.stem: path for path in sorted(FOLDER.glob("*.py"))}
PLOTS = {"averages": 3, "compare_strategies": 2, "follow_an_unload": 1}
SAID = {
    "averages": r"latest +\d+\.\d% +\d+\.\d% +\d+\.\d%",
    "compare_strategies": r"ThresholdShedder +\d\.\d\d +\d\.\d\d +\d+ s +\d+ +\d+",
    "follow_an_unload": r"\d+ bundles left \S+ in that round: expected usage \d\.\d\d, reported "
    r"\d\.\d\d",
}


@pytest.fixture(autouse=True)
def _no_figures_of_others() -> Iterator[None]:
    plt.close("all")
    yield
    plt.close("all")


def test_there_is_a_line_about_every_notebook() -> None:
    assert (
        set(re.findall(r"^\| \[(\w+)\.py\]", (FOLDER / "README.md").read_text(), re.MULTILINE))
        == set(NOTEBOOKS)
        == set(PLOTS)
    )


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_a_notebook_runs_by_itself_and_draws(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runpy.run_path(str(NOTEBOOKS[name]))
    assert re.search(SAID[name], capsys.readouterr().out)
    figures = plt.get_fignums()
    assert len(figures) == PLOTS[name]
    for number in figures:
        figure = plt.figure(number)
        file = tmp_path / f"{name}-{number}.png"
        figure.savefig(file, dpi=80)
        pixels = imread(file)[..., :3].reshape(-1, 3)
        assert len(np.unique(pixels, axis=0)) > 20, (
            "a plot has lines in colours, and letters with soft edges"
        )
        assert all(
            axes.get_title() and (axes.lines or axes.collections or axes.patches)
            for axes in figure.axes
        )


def test_an_unload_in_tables_of_ones_own_is_followed_as_the_notebook_says(tmp_path: Path) -> None:
    """`TABLES` set instead of the cell that records a run, of eight brokers."""
    record(tmp_path / "own", steps=40, brokers=8, bundles=96)
    cells = NOTEBOOKS["follow_an_unload"].read_text().split("\n# %%\n")
    (at,) = (number for number, cell in enumerate(cells) if cell.startswith("TABLES ="))
    cells[at] = f"TABLES = Path({str(tmp_path / 'own')!r})\n"
    exec(compile("\n# %%\n".join(cells), "follow_an_unload.py", "exec"), {"__name__": "notebook"})
    assert len(plt.figure(plt.get_fignums()[0]).axes[0].lines) > 8


def test_the_recorded_source_falls_further_than_expected_as_the_notebook_says(
    capsys: pytest.CaptureFixture[str],
) -> None:
    runpy.run_path(str(NOTEBOOKS["follow_an_unload"]))
    ((expected, reported),) = re.findall(
        r"expected usage (\d\.\d\d), reported (\d\.\d\d)", capsys.readouterr().out
    )
    assert float(reported) < float(expected) - 0.1


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_a_notebook_is_in_percent_form_and_explains_each_step(name: str) -> None:
    text = NOTEBOOKS[name].read_text()
    assert text.startswith("# ---\n# jupyter:\n#   jupytext:\n")
    cells = re.split(r"^# %%", text, flags=re.MULTILINE)[1:]
    words = [cell for cell in cells if cell.startswith(" [markdown]")]
    assert len(words) >= 3 and words[0] is cells[0]
    assert all(line.startswith("#") for cell in words for line in cell.splitlines()[1:] if line)
    for cell in cells:
        if cell not in words:
            compile(cell, name, "exec")
