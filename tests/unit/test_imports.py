"""Who may import whom: the core is pure, and the arrows between the packages point one way only."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

PROJECT = Path(__file__).parents[2]
PACKAGE = PROJECT / "lb_stream"
CORE_FORBIDDEN = {"pyspark", "kafka", "deltalake", "delta", "time", "random", "logging", "os"}
# contracts ← core ← {stream, sim} ← {io, agent} ← {cli, jobs}: each may import itself and what stands left of it.
LEVELS = (("contracts",), ("core",), ("stream", "sim"), ("io", "agent"), ("cli",))
# Modules that put parts together: what they reach out for, against the arrows.
WIRING = {
    "lb_stream.sim.__main__": {"agent", "io"},
}


def modules() -> dict[str, Path]:
    """Every module of the package by its dotted name."""
    paths = sorted(PACKAGE.rglob("*.py"))
    return {".".join(path.relative_to(PROJECT).with_suffix("").parts).removesuffix(".__init__"): path for path in paths}


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
            yield base
            yield from (f"{base}.{alias.name}" for alias in node.names if f"{base}.{alias.name}" in MODULES)


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


def of(package: str) -> list[str]:
    return [name for name in MODULES if name.startswith(f"lb_stream.{package}.") or name == f"lb_stream.{package}"]


@pytest.mark.parametrize("name", of("core"))
def test_the_core_knows_no_engine_clock_chance_log_or_environment(name: str) -> None:
    wrong = {other: by for other, by in reachable(name).items() if other.partition(".")[0] in CORE_FORBIDDEN}
    assert not wrong, f"{name} reaches {wrong}"


def against_the_arrows(package: str) -> set[tuple[str, str, str]]:
    """(module, what it imports, that one's package) for each import that no arrow allows."""
    level = next(index for index, names in enumerate(LEVELS) if package in names)
    allowed = {package, *(name for names in LEVELS[:level] for name in names)}
    pairs = ((name, other) for name in of(package) for other in imported(name) if other.startswith("lb_stream."))
    return {(name, other, other.split(".")[1]) for name, other in pairs if other.split(".")[1] not in allowed}


@pytest.mark.parametrize("package", [name for names in LEVELS for name in names])
def test_imports_follow_the_arrows_of_the_design(package: str) -> None:
    wrong = {f"{name} imports {other}" for name, other, theirs in against_the_arrows(package) if theirs not in WIRING.get(name, ())}
    assert not wrong, "\n".join(sorted(wrong))


def test_the_list_of_wiring_modules_names_none_that_could_follow_the_arrows() -> None:
    needed = {(name, theirs) for names in LEVELS for package in names for name, _, theirs in against_the_arrows(package)}
    assert needed == {(name, theirs) for name, packages in WIRING.items() for theirs in packages}


def test_there_is_no_cycle_between_packages() -> None:
    uses = {
        package: {
            other.split(".")[1] for name in of(package) if name not in WIRING for other in imported(name) if other.startswith("lb_stream.")
        }
        for names in LEVELS
        for package in names
    }
    for package, used in uses.items():
        assert not any(package in uses.get(other, ()) for other in used - {package}), package


def test_every_module_of_the_package_belongs_to_a_level() -> None:
    known = {name for names in LEVELS for name in names}
    assert {name.split(".")[1] for name in MODULES if "." in name} == known


def test_the_walk_sees_imports_inside_functions_and_through_other_modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.py").write_text("def late():\n    from lb_stream.b import thing\n")
    (tmp_path / "b.py").write_text("import os.path\nthing = 1\n")
    monkeypatch.setitem(globals(), "MODULES", {"lb_stream.a": tmp_path / "a.py", "lb_stream.b": tmp_path / "b.py"})
    assert reachable("lb_stream.a") == {"lb_stream.b": "lb_stream.a", "os.path": "lb_stream.b"}
