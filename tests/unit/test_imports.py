"""Who may import whom: the core is pure, the arrows between floors and rooms point one way, and no room is crowded."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

import pytest

PROJECT = Path(__file__).parents[2]
PACKAGE = PROJECT / "lb_stream"
CORE_FORBIDDEN = {"pyspark", "kafka", "deltalake", "delta", "time", "random", "logging", "os"}
MOST_MODULES = 14
# The house, from the ground up: each floor may know the floors before it. The wings of one floor know nothing of each other; the rooms of a
# wing are folders, in order: each knows itself and those before it. So io knows nothing of the job that uses it.
FLOORS: tuple[dict[str, tuple[str, ...]], ...] = (
    {"contracts": ("contracts.columns", "contracts")},
    {
        "core": (
            *(
                "core",
                "core.model",
                "core.averages",
                "core.reporting",
                "core.placement",
                "core.shedding",
                "core.splitting",
                "core.filters",
            ),
            *(
                "core.least_moves",
                "core.config",
                "core.observing",
                "core.ownership",
                "core.commands",
                "core.disruption",
                "core.round",
            ),
            "core.shadow",
        ),
        "access": ("access",),
    },
    {"store": ("store",)},
    {"stream": ("stream.task", "stream.shards", "stream")},
    {
        "io": (
            "io",
            "io.messages",
            "io.local",
            "io.kafka",
            "io.tables",
            "io.leadership",
            "io.metrics",
            "io.lookup",
        ),
        "agent": ("agent", "agent.pulsar"),
    },
    {
        "job": ("job",),
        "query": ("query", "query.past", "query.present", "query.screens"),
        "sim": ("sim.scenario", "sim.families", "sim.measures", "sim", "sim.play"),
    },
    {
        "backtest": ("backtest",),
        "console": ("console.who", "console.sources", "console"),
        "notify": ("notify",),
    },
    {
        "cli": (
            *(
                "cli.shared",
                "cli.inspect",
                "cli.operate",
                "cli.run",
                "cli.demo",
                "cli.report",
                "cli.scenario",
                "cli.simulate",
            ),
            *("cli.backtest", "cli.notify", "cli.monitor", "cli"),
        )
    },
)


def modules() -> dict[str, Path]:
    """Every module of the package by its dotted name."""
    paths = sorted(PACKAGE.rglob("*.py"))
    return {
        ".".join(path.relative_to(PROJECT).with_suffix("").parts).removesuffix(".__init__"): path
        for path in paths
    }


MODULES = modules()


@cache
def imported(name: str) -> frozenset[str]:
    """Dotted names that a module imports, wherever in it, submodules of the package included."""
    return frozenset(_imports(name))


def _imports(name: str) -> Iterator[str]:
    path = MODULES[name]
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package.rsplit(".", node.level - 1)[0] if node.level else ""
            base = ".".join(part for part in (above, node.module) if part)
            names = [f"{base}.{alias.name}" for alias in node.names]
            within = [full for full in names if full in MODULES]
            yield from within
            if len(within) < len(names):  # something of the package itself, too
                yield base


def reachable(name: str) -> dict[str, str]:
    """Everything that comes with a module, directly or by other modules of the package → the module that imports it."""
    found: dict[str, str] = {}
    waiting = [name]
    while waiting:
        here = waiting.pop()
        for other in imported(here):
            if other not in found:
                found[other] = here
                if other in MODULES:
                    waiting.append(other)
    return found


def room_of(name: str) -> str:
    """The folder that a module is in, without `lb_stream.`."""
    return (
        (name if MODULES[name].name == "__init__.py" else name.rpartition(".")[0])
        .removeprefix("lb_stream")
        .removeprefix(".")
    )


def allowed() -> dict[str, set[str]]:
    """Room → the rooms that it may know."""
    known: dict[str, set[str]] = {}
    above: set[str] = set()
    for floor in FLOORS:
        for rooms in floor.values():
            known |= {room: above | set(rooms[: number + 1]) for number, room in enumerate(rooms)}
        above = above | {room for rooms in floor.values() for room in rooms}
    return known


def against_the_arrows(names: Iterable[str]) -> list[tuple[str, str, str]]:
    """(module, what it imports, that one's room) for each import that no arrow allows."""
    may = allowed()
    return [
        (name.removeprefix("lb_stream."), other.removeprefix("lb_stream."), room_of(other))
        for name in names
        for other in sorted(imported(name) & MODULES.keys())
        if room_of(other) and room_of(other) not in may[room_of(name)]
    ]


def circles() -> list[list[str]]:
    """Modules that import each other, by whatever way round; each circle once. An import for the type checker alone counts as well."""
    waiting = {
        name: {other for other in imported(name) if other in MODULES and other != name}
        for name in MODULES
    }
    while done := {name for name, others in waiting.items() if not others}:
        waiting = {name: others - done for name, others in waiting.items() if name not in done}
    # What is left is in a circle, or leads to one; walking on from any of them ends in one.
    found = set()
    for start in waiting:
        way = [start]
        while (after := min(waiting[way[-1]])) not in way:
            way.append(after)
        circle = way[way.index(after) :]
        first = circle.index(min(circle))
        found.add((*circle[first:], *circle[:first]))
    return [list(circle) for circle in sorted(found)]


def crowded() -> dict[str, int]:
    """Rooms with too many modules, `__init__` counted → how many they have."""
    return {
        room: count
        for room, count in Counter(map(room_of, MODULES)).items()
        if count > MOST_MODULES
    }


def in_room(room: str) -> list[str]:
    return [name for name in MODULES if room_of(name) == room]


@pytest.mark.parametrize("name", [name for name in MODULES if name.startswith("lb_stream.core")])
def test_the_core_knows_no_engine_clock_chance_log_or_environment(name: str) -> None:
    wrong = {
        other: by
        for other, by in reachable(name).items()
        if other.partition(".")[0] in CORE_FORBIDDEN
    }
    assert not wrong, f"{name} reaches {wrong}"


@pytest.mark.parametrize("room", allowed())
def test_imports_follow_the_arrows_of_the_design(room: str) -> None:
    wrong = [f"{name} imports {other}" for name, other, _ in against_the_arrows(in_room(room))]
    assert not wrong, "\n".join(wrong)


def test_the_public_face_is_for_others_alone_and_plug_ins_see_the_core_only() -> None:
    within = {name for name in MODULES if room_of(name)}
    face = {"lb_stream.plugins", "lb_stream.recorded"}
    assert [name for name in within if imported(name) & face] == []
    seen = {room_of(name) for name in reachable("lb_stream.plugins") if name in MODULES}
    assert {room.partition(".")[0] for room in seen} == {"contracts", "core"}


def test_no_module_imports_itself_by_whatever_way_round() -> None:
    assert circles() == []


def test_every_folder_is_a_room_of_the_house_and_every_room_a_folder() -> None:
    assert {room_of(name) for name in MODULES} - {""} == allowed().keys()


def test_no_room_is_crowded() -> None:
    assert crowded() == {}, f"more than {MOST_MODULES} modules: make rooms of them"


# --- that these tests can fail ---


@pytest.fixture
def house(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Path]:
    """A package of one's own making: add modules by `write`."""
    made: dict[str, Path] = {}
    monkeypatch.setitem(globals(), "MODULES", made)
    imported.cache_clear()
    return made


def write(house: dict[str, Path], folder: Path, name: str, text: str) -> None:
    path = folder / f"{name}.py"
    path.write_text(text)
    house[f"lb_stream.{name}"] = path


def test_the_walk_sees_imports_inside_functions_and_through_other_modules(
    house: dict[str, Path], tmp_path: Path
) -> None:
    write(house, tmp_path, "a", "def late():\n    from lb_stream.b import thing\n")
    write(house, tmp_path, "b", "import os.path\nthing = 1\n")
    assert reachable("lb_stream.a") == {"lb_stream.b": "lb_stream.a", "os.path": "lb_stream.b"}


@pytest.mark.parametrize(
    ("name", "other"),
    [
        ("core.model.view", "core.round.decide"),
        ("io.kafka.outbox", "job.pipeline"),
        ("job.pipeline", "query.lake"),
        ("sim.cluster", "job.pipeline"),
    ],
)
def test_an_arrow_that_runs_up_or_across_is_found(
    house: dict[str, Path], tmp_path: Path, name: str, other: str
) -> None:
    write(house, tmp_path, name, f"def late():\n    from lb_stream.{other} import thing\n")
    write(house, tmp_path, other, "from lb_stream.contracts.base import thing\n")
    write(house, tmp_path, "contracts.base", "thing = 1\n")
    assert against_the_arrows(house) == [(name, other, other.rpartition(".")[0])]


def test_a_crowded_room_is_found(house: dict[str, Path], tmp_path: Path) -> None:
    for number in range(MOST_MODULES):
        write(house, tmp_path, f"core.model.m{number}", "")
    assert crowded() == {}
    write(house, tmp_path, "core.model.one_more", "")
    assert crowded() == {"core.model": MOST_MODULES + 1}


def test_a_circle_is_found_wherever_it_is_entered(house: dict[str, Path], tmp_path: Path) -> None:
    write(house, tmp_path, "core.a", "from lb_stream.core import b\n")
    write(house, tmp_path, "core.b", "def late():\n    import lb_stream.core.c\n")
    write(house, tmp_path, "core.c", "from lb_stream.core.b import thing\n")
    assert circles() == [["lb_stream.core.b", "lb_stream.core.c"]]
