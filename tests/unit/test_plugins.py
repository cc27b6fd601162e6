"""A third party's strategy: really installed, found by its name, with settings of its own."""

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parents[1] / "plugin_example"
PROJECT = Path(__file__).parents[2]

USE = """
from lb_stream.core.config.cluster_config import cluster_config
config = cluster_config({"drain_prefix": "old-", "shedding_strategy": "com.example.DrainShedder"})
print(config.shedder.name, config.shedder_config.drain_prefix)
"""
MISSING = """
from lb_stream.core.config.cluster_config import SettingError, cluster_config
try:
    cluster_config({"shedding_strategy": "NoSuchShedder"})
except SettingError as error:
    print(error)
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder into which pip has installed the example, built from a copy so that nothing is left beside its source."""
    folder = tmp_path_factory.mktemp("site")
    source = tmp_path_factory.mktemp("source")
    for file in ("pyproject.toml", "drain_example.py"):
        (source / file).write_text((EXAMPLE / file).read_text())
    options = ["--quiet", "--no-deps", "--no-index", "--no-build-isolation", "--disable-pip-version-check", "--target", str(folder)]
    subprocess.run([sys.executable, "-m", "pip", "install", *options, str(source)], check=True)
    return folder


def run(code: str, *paths: Path) -> str:
    """What a new Python prints that has these folders on its path."""
    path = ":".join(map(str, (*paths, PROJECT)))
    return subprocess.run([sys.executable, "-c", code], env={"PYTHONPATH": path}, capture_output=True, text=True, check=True).stdout.strip()


def test_an_installed_strategy_is_chosen_by_name_and_knows_its_own_keys(installed: Path) -> None:
    assert run(USE, installed) == "DrainShedder old-"


OTHERS = """
from lb_stream.core.config.cluster_config import cluster_config
config = cluster_config({"load_manager": "simple", "simple_placement_strategy": "FirstServer", "split_algorithm": "third_divide"})
print(config.placement.name, config.split_algorithms.named().name, config.warnings)
"""
OTHERS_MODULE = """
from lb_stream.contracts.keys import KeyModel
from lb_stream.core.placement import simple_placement
from lb_stream.core.splitting import split_algorithm
simple_placement("FirstServer", config=KeyModel, memory=dict)(print)
split_algorithm("third_divide", config=KeyModel, memory=dict)(print)
"""


def distribution(folder: Path, entry_points: str) -> Path:
    """A folder that looks like one with an installed package of these entry points."""
    info = folder / "other-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: other\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(entry_points)
    return folder


def test_placements_and_split_algorithms_are_found_by_name_too(tmp_path: Path) -> None:
    points = "[lb_stream.simple_placements]\nFirstServer = others\n[lb_stream.split_algorithms]\nthird_divide = others\n"
    folder = distribution(tmp_path / "others", points)
    (folder / "others.py").write_text(OTHERS_MODULE)
    assert run(OTHERS, folder) == "FirstServer third_divide ()"


def test_an_unknown_strategy_is_told_those_there_are_plug_ins_included(installed: Path) -> None:
    assert "DrainShedder" in run(MISSING, installed)
    assert "DrainShedder" not in run(MISSING)


def test_a_plug_in_that_cannot_be_loaded_says_why_and_harms_nobody_else(installed: Path, tmp_path: Path) -> None:
    broken = distribution(tmp_path / "broken", "[lb_stream.shedders]\nNoSuchShedder = no_such_module\n")
    assert run(USE, installed, broken) == "DrainShedder old-"
    assert "no_such_module" in run(MISSING, broken)
