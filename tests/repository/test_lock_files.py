"""requirements*.lock install anywhere: hashes for everything, no index, no path."""

import re
import tomllib
from pathlib import Path

import pytest

PROJECT = Path(__file__).parents[2]
LOCKS = {
    path.name.removeprefix("requirements").removeprefix("-").removesuffix(".lock"): path.read_text()
    for path in PROJECT.glob("requirements*.lock")
}
PYPROJECT = tomllib.loads((PROJECT / "pyproject.toml").read_text())
EXTRAS, GROUPS = PYPROJECT["project"]["optional-dependencies"], PYPROJECT["dependency-groups"]
BASE = PYPROJECT["project"]["dependencies"]
OURS = re.compile(r"lb_stream\[(.+)\]")


def pins(lock: str) -> dict[str, str]:
    """Return name → version and marker; some packages are pinned twice, for different machines."""
    found: dict[str, str] = {}
    for line in re.findall(r"^[a-z0-9-]+==.*$", lock, re.MULTILINE):
        name, _, version = line.rstrip("\\ ").partition("==")
        found[name] = f"{found.get(name, '')} {version}".strip()
    return found


def requirements(*extras: str) -> list[str]:
    """Return what the base and some extras ask for, extras of extras included."""
    found = list(BASE)
    for extra in extras:
        for requirement in EXTRAS[extra]:
            within = OURS.fullmatch(requirement)
            found += requirements(*within[1].split(",")) if within else [requirement]
    return found


def test_no_line_names_an_index_or_a_path() -> None:
    assert LOCKS.keys() == {"", "dev", "base", "uv", "pulsar", "kubernetes", "docs", "fuzz"}
    for line in "".join(LOCKS.values()).splitlines():
        assert re.fullmatch(
            r"[a-z0-9-]+==[\w.]+( ; [\w .<>='!]+)? \\|    --hash=sha256:[0-9a-f]{64}( \\)?", line
        ), line


@pytest.mark.parametrize(
    ("lock", "needed"),
    [
        ("base", requirements("otel")),
        ("", requirements("job", "console", "notify", "otel") + GROUPS["build"]),
        ("dev", requirements("all") + GROUPS["build"] + GROUPS["dev"]),
        ("pulsar", EXTRAS["pulsar"]),
        ("kubernetes", EXTRAS["kubernetes"]),
        ("uv", GROUPS["uv"]),
        ("docs", GROUPS["docs"]),
        ("fuzz", GROUPS["fuzz"]),
    ],
)
def test_each_range_begins_with_the_locked_version_which_is_the_tested_one(
    lock: str, needed: list[str]
) -> None:
    assert needed
    for requirement in needed:
        found = re.match(r"([\w-]+)>=([\w.]+)", requirement)
        assert found is not None, requirement
        name, lowest = found.groups()
        locked = pins(LOCKS[lock])[name]
        assert locked == lowest or locked.startswith(f"{lowest}."), requirement


def test_no_range_of_the_package_is_a_pin_and_each_has_an_upper_end() -> None:
    for requirement in BASE + [one for extra in EXTRAS.values() for one in extra]:
        if OURS.fullmatch(requirement):
            continue
        assert re.fullmatch(r"[\w-]+>=[\w.]+(,<[\d.]+)?", requirement), requirement
        assert "<" in requirement or requirement.startswith("tzdata"), requirement


def test_what_two_locks_have_in_common_is_the_same() -> None:
    whole = versions(LOCKS["dev"])
    for name in ("", "base"):
        for package, found in versions(LOCKS[name]).items():
            assert found <= whole[package], package


def versions(lock: str) -> dict[str, set[str]]:
    """Return name → versions. Markers differ where one lock has more that needs the package."""
    found: dict[str, set[str]] = {}
    for name, version in re.findall(r"^([a-z0-9-]+)==([^ ;]+)", lock, re.MULTILINE):
        found.setdefault(name, set()).add(version)
    return found


def test_pandas_is_older_than_3() -> None:
    assert "\npandas==2." in LOCKS[""]  # PySpark 4.2 asks for it, and breaks with 3
