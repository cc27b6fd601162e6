"""A third party's strategy: built as a wheel, installed, found by its name, with settings of its
own."""

import ast
import re
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args, get_type_hints

import pytest

from lb_stream import plugins

EXAMPLE = Path(__file__).parents[1] / "plugin_example"
PROJECT = Path(__file__).parents[2]
REPORTS = PROJECT / "tests" / "data" / "modular-load-reports.jsonl.gz"

USE = """
from lb_stream.settings.resolve import cluster_config
config = cluster_config({"drain_prefix": "old-", "shedding_strategy": "com.example.DrainShedder"})
print(config.shedder.name, config.shedder_config.drain_prefix)
"""
MISSING = """
from lb_stream.contracts.keys import SettingError\nfrom lb_stream.settings.resolve import cluster_config
try:
    cluster_config({"shedding_strategy": "NoSuchShedder"})
except SettingError as error:
    print(error)
"""


def pip(*arguments: str) -> None:
    options = ["--quiet", "--no-deps", "--no-index", "--disable-pip-version-check"]
    subprocess.run(
        [sys.executable, "-m", "pip", arguments[0], *options, *arguments[1:]], check=True
    )


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The example's wheel, built from a copy so that nothing is left beside its source."""
    source, folder = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("wheel")
    for file in ("pyproject.toml", "drain_example.py"):
        (source / file).write_text((EXAMPLE / file).read_text())
    pip("wheel", "--no-build-isolation", "--wheel-dir", str(folder), str(source))
    (found,) = folder.glob("*.whl")
    return found


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder into which pip has installed that wheel."""
    folder = tmp_path_factory.mktemp("site")
    pip("install", "--target", str(folder), str(wheel))
    return folder


def run(code: str, *paths: Path) -> str:
    """What a new Python prints that has these folders on its path."""
    path = ":".join(map(str, (*paths, PROJECT)))
    return subprocess.run(
        [sys.executable, "-c", code],
        env={"PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()


def test_the_example_is_a_package_of_its_own_that_depends_on_this_one(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as file:
        texts = {Path(name).name: file.read(name).decode() for name in file.namelist()}
    assert wheel.name == "drain_example-1.0-py3-none-any.whl"
    assert "Requires-Dist: lb_stream" in texts["METADATA"]
    assert texts["entry_points.txt"].split() == [
        "[lb_stream.shedders]",
        "DrainShedder",
        "=",
        "drain_example",
    ]


def test_an_installed_strategy_is_chosen_by_name_and_knows_its_own_keys(installed: Path) -> None:
    assert run(USE, installed) == "DrainShedder old-"


ASK = """
import lb_stream
from lb_stream.plugins import ShedContext
view = lb_stream.load_reports(REPORTS)
config = lb_stream.cluster_config({"drain_prefix": "127.0.0.1:26203", "shedding_strategy": "DrainShedder", "drain_most_bundles": 2})
unloads, memory = config.shedder.function(ShedContext.build(view, config.shedder_config, config.shedder.memory({})))
print([(view.brokers.names[one.source], one.rule.name) for one in unloads.proposals], memory)
done = lb_stream.ask(view, shedding_strategy="DrainShedder", drain_prefix="127.0.0.1:26203", drain_most_bundles=2)
print({(one.source, one.rule, one.strategy) for one in done.decisions})
"""


def test_an_installed_strategy_is_asked_by_itself_and_as_part_of_a_round(installed: Path) -> None:
    alone, in_round = run(ASK.replace("REPORTS", repr(str(REPORTS))), installed).splitlines()
    assert alone == str([("127.0.0.1:26203", "name_unwanted")] * 2) + " None"
    assert in_round == str({("127.0.0.1:26203", "name_unwanted", "DrainShedder")})


TELL = """
from lb_stream.query.wording import explain_rule
print(explain_rule("name_unwanted", "old-1", {"saw": 0.5, "unit": "ratio"}))
"""


def test_an_installed_strategys_rule_is_told_in_its_own_words(installed: Path) -> None:
    assert (
        run(TELL, installed)
        == "the name of old-1 says that it is to be emptied; it was at 50.0% usage"
    )
    assert run(TELL) == "rule name_unwanted: saw 50.0%"


def test_a_strategy_of_a_plug_in_imports_nothing_but_its_public_interface() -> None:
    tree = ast.parse((EXAMPLE / "drain_example.py").read_text())
    assert {one.module for one in ast.walk(tree) if isinstance(one, ast.ImportFrom)} == {
        "__future__",
        "lb_stream.plugins",
    }


def named_in(annotation: Any) -> Iterator[str]:
    """The names of this project's types in an annotation."""
    if getattr(annotation, "__module__", "").startswith("lb_stream.") and isinstance(
        annotation, type
    ):
        yield annotation.__name__
    for part in get_args(annotation):
        yield from named_in(part)


def test_the_page_shows_the_example_as_it_is_and_the_kinds_as_they_are() -> None:
    page = (PROJECT / "docs" / "plugins.md").read_text()
    blocks = dict(re.findall(r"```(\w+)\n(.*?)```", page, re.DOTALL))
    assert blocks["python"] == (EXAMPLE / "drain_example.py").read_text()
    assert blocks["toml"] == (EXAMPLE / "pyproject.toml").read_text()
    rows = re.findall(r"^\| .*\|$", str(plugins.__doc__), re.MULTILINE)
    assert rows and all(row in page for row in rows)


CONTEXTS = (plugins.ShedContext, plugins.PlacementContext, plugins.SplitContext)
ANSWERS = (plugins.Unloads, plugins.Best, plugins.Boundaries)


@pytest.mark.parametrize(
    "model", (*CONTEXTS, *ANSWERS, plugins.Unload, plugins.Range, plugins.Targets)
)
def test_every_type_that_a_strategy_meets_is_part_of_the_public_interface(model: Any) -> None:
    hints = get_type_hints(model)
    met = {
        name
        for field, hint in hints.items()
        if not field.startswith("_")
        for name in named_in(hint)
    }
    assert met <= set(plugins.__all__)


def test_the_public_interface_says_of_each_kind_where_it_is_found_and_what_it_is_asked_with() -> (
    None
):
    rows = re.findall(
        r"^\| \S.*? \| `(\w+)` \| `([\w.]+)` \| `(\w+)` \|", str(plugins.__doc__), re.MULTILINE
    )
    assert {(name, getattr(plugins, name).group) for name, _, _ in rows} == {
        (name, group) for name, group, _ in rows
    }
    assert {context for _, _, context in rows} == {model.__name__ for model in CONTEXTS} and len(
        rows
    ) == 4


OTHERS = """
from lb_stream.settings.resolve import resolve
resolved = resolve({"load_manager": "simple", "simple_placement_strategy": "FirstServer", "split_algorithm": "third_divide"})
print(resolved.config.placement.name, resolved.config.split_algorithms.named().name, resolved.warnings)
"""
OTHERS_MODULE = """
from lb_stream.plugins import KeyModel, simple_placement, split_algorithm
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
    points = (
        "[lb_stream.simple_placements]\nFirstServer = "
        "others\n[lb_stream.split_algorithms]\nthird_divide = others\n"
    )
    folder = distribution(tmp_path / "others", points)
    (folder / "others.py").write_text(OTHERS_MODULE)
    assert run(OTHERS, folder) == "FirstServer third_divide ()"


def test_an_unknown_strategy_is_told_those_there_are_plug_ins_included(installed: Path) -> None:
    assert "DrainShedder" in run(MISSING, installed)
    assert "DrainShedder" not in run(MISSING)


def test_a_plug_in_that_cannot_be_loaded_says_why_and_harms_nobody_else(
    installed: Path, tmp_path: Path
) -> None:
    broken = distribution(
        tmp_path / "broken", "[lb_stream.shedders]\nNoSuchShedder = no_such_module\n"
    )
    assert run(USE, installed, broken) == "DrainShedder old-"
    assert "no_such_module" in run(MISSING, broken)


def test_a_plug_in_written_for_another_interface_says_so_when_it_is_loaded(tmp_path: Path) -> None:
    folder = distribution(tmp_path / "old", "[lb_stream.shedders]\nNoSuchShedder = old_shedder\n")
    module = (
        "from lb_stream.plugins import KeyModel, shedder\nold = lambda view, config, memory, "
        "eligible: None\n"
    )
    (folder / "old_shedder.py").write_text(
        module + "shedder('NoSuchShedder', config=KeyModel)(old)\n"
    )
    told = run(MISSING, folder)
    assert (
        "expected a function of one context (docs/plugins.md): missing a required argument: "
        "'config'" in told
    )
