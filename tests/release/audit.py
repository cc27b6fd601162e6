"""`make audit-deps`: what is locked has hashes, allowed licences, and no known vulnerability.

Hashes: every pin of requirements*.lock and every jar has one, and whatever installs packages asks
for them. Licences: as the installed packages' metadata say, against tests/release/supply_chain.toml,
which has the exceptions with their reasons. Vulnerabilities: against an export of OSV's database
(https://osv.dev), a zip or a folder, that `--database` names: nothing is looked up in the network.
Without one this is said, and is an error only with `--require-database`.

The last line is one JSON object. Exit code 1: a fault; 2: a wrong argument.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import tomllib
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import Distribution, distributions
from pathlib import Path
from typing import Any

from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from tests.release.sbom import Pin, describe_jars, find_license_texts, read_pins

PROJECT = Path(__file__).parents[2]
ALLOWED = Path(__file__).with_name("supply_chain.toml")
BESIDE = ("pulsar-client", "kubernetes", "fuzz", "docs/lib/python*/site-packages")
BESIDE += ("uv/lib/python*/site-packages",)
"""Where `.make` has packages that are not in the environment."""
INSTALLERS = ("Makefile", ".ci/run", "conf/deploy/Dockerfile", "conf/deploy/Dockerfile.agent")
_INSTALL = re.compile(r"(\bpip3?\b.* install|\buv pip install|\$\(INSTALL\))\s+(?P<rest>.*)")
_DEFINES = re.compile(r"^\w+ :?= ")
_OWN = re.compile(r"--no-deps (-e )?\.(\s|$)|-c requirements-dev\.lock")


@dataclass(frozen=True, slots=True)
class Locked:
    """A package that is locked: its name as its ecosystem (PyPI, Maven) has it."""

    ecosystem: str
    name: str
    version: str


@dataclass
class Audit:
    """What was checked, and what is wrong. `notes` say what could not be checked."""

    counts: dict[str, int] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def read_locks(project: Path) -> dict[str, list[Pin]]:
    """Return the pins of each lock file by the file's name."""
    return {path.name: read_pins(path.read_text()) for path in sorted(project.glob("*.lock"))}


def check_hashes(project: Path, audit: Audit) -> None:
    """Check that every pin and every jar has a hash, and that installers ask for them."""
    locks = read_locks(project)
    audit.counts["locks"] = len(locks)
    audit.counts["pins"] = sum(map(len, locks.values()))
    for name, pins in locks.items():
        audit.faults += [
            f"{name}: {pin.name} {pin.version} has no hash, expected --hash=sha256:…"
            for pin in pins
            if not pin.hashes
        ]
    try:
        audit.counts["jars"] = len(describe_jars(project / "conf"))
    except KeyError as error:
        audit.faults.append(f"conf/jars.sha256: no sum of {error.args[0]}")
    for name in INSTALLERS:
        if (project / name).is_file():
            for line in find_unhashed(project / name):
                audit.faults.append(f"{name}: {line}: expected --require-hashes")


def find_unhashed(file: Path) -> list[str]:
    """Return the commands of a file that install packages without asking for their hashes."""
    text = re.sub(r"\\\n\s*", "", file.read_text())
    found = []
    for line in text.splitlines():
        for command in re.split(r"&&|;", line):
            install = _INSTALL.search(command)
            if install is None or _DEFINES.match(command) or command.lstrip().startswith("#"):
                continue
            if "--require-hashes" not in command and not _OWN.search(install["rest"]):
                found.append(command.strip()[:100])
    return found


# --- licences ---


def check_licences(pins: Iterable[Pin], allowed: Mapping[str, Any], audit: Audit) -> None:
    """Check the licence of every pinned package that is installed here."""
    packages, seen, missing = allowed["packages"], set[str](), set[str]()
    for pin in pins:
        if pin.name in seen:
            continue
        found = find_installed(pin.name)
        if found is None:
            missing.add(pin.name)
            continue
        seen.add(pin.name)
        texts = find_license_texts(found)
        if (exception := packages.get(pin.name)) is not None:
            named = [simplify(text, allowed) for text in texts]
            if named and exception["licence"] not in named:
                audit.faults.append(
                    f"{pin.name}: its licence is {', '.join(named)}, not {exception['licence']} as "
                    f"{ALLOWED.name} says"
                )
        elif not texts:
            audit.faults.append(f"{pin.name}: its metadata name no licence: add one with a reason")
        elif not all(is_allowed(text, allowed) for text in texts):
            audit.faults.append(f"{pin.name}: licence {', '.join(texts)} is not allowed")
    audit.counts["licences"] = len(seen)
    if missing := missing - seen:
        audit.notes.append(
            f"{len(missing)} locked packages are not installed here, for other machines or other "
            f"targets: their licences were not read: {', '.join(sorted(missing))}"
        )


@cache
def _index() -> Mapping[str, Distribution]:
    places = [place for pattern in BESIDE for place in (PROJECT / ".make").glob(pattern)]
    found = {}
    for one in (*distributions(path=[str(place) for place in places]), *distributions()):
        found[canonicalize_name(one.metadata["Name"] or "")] = one
    return found


def find_installed(name: str) -> Distribution | None:
    """Return an installed package, of this environment or of one beside it."""
    return _index().get(canonicalize_name(name))


def simplify(text: str, allowed: Mapping[str, Any]) -> str:
    """Return a licence as an SPDX expression, if its spelling is known."""
    spelt: str = allowed["licences"]["spellings"].get(text, text)
    return spelt


def is_allowed(text: str, allowed: Mapping[str, Any]) -> bool:
    """Return whether a licence, or one side of an OR and all sides of an AND, is allowed."""
    known = set(allowed["licences"]["allowed"])
    expression = simplify(text, allowed).replace("(", " ").replace(")", " ")
    choices = re.split(r"\s+OR\s+", expression.strip(), flags=re.IGNORECASE)
    return any(
        all(part.strip() in known for part in re.split(r"\s+AND\s+", choice, flags=re.IGNORECASE))
        for choice in choices
    )


# --- vulnerabilities ---


def read_database(place: Path) -> Iterator[dict[str, Any]]:
    """Yield the entries of an export of OSV's: a zip, or a folder of zips and JSON files.

    Raises ValueError for what is none.
    """
    paths = sorted(place.rglob("*")) if place.is_dir() else [place]
    for path in paths:
        if path.suffix == ".zip":
            with zipfile.ZipFile(path) as archive:
                for name in archive.namelist():
                    if name.endswith(".json"):
                        yield _entry(archive.read(name), f"{path}: {name}")
        elif path.suffix == ".json":
            yield _entry(path.read_bytes(), str(path))


def _entry(content: bytes, name: str) -> dict[str, Any]:
    entry = json.loads(content)
    if not isinstance(entry, dict) or "id" not in entry:
        raise ValueError(f"{name}: expected an entry of OSV's, with an id")
    return entry


def find_vulnerable(
    entries: Iterable[Mapping[str, Any]], locked: Iterable[Locked]
) -> Iterator[tuple[str, Locked]]:
    """Yield the id of each vulnerability that is not withdrawn, and the package that has it."""
    by_name: dict[tuple[str, str], list[Locked]] = {}
    for package in locked:
        by_name.setdefault((package.ecosystem, package.name), []).append(package)
    for entry in entries:
        if entry.get("withdrawn"):
            continue
        for affected in entry.get("affected", ()):
            package = affected.get("package", {})
            name = package.get("name", "")
            ecosystem = package.get("ecosystem", "")
            if ecosystem == "PyPI":
                name = canonicalize_name(name)
            for found in by_name.get((ecosystem, name), ()):
                if is_affected(affected, found.version):
                    yield str(entry["id"]), found


def is_affected(affected: Mapping[str, Any], version: str) -> bool:
    """Return whether a version is among those that an entry says are affected."""
    if version in affected.get("versions", ()):
        return True
    ours = _version(version)
    if ours is None:
        return False
    return any(
        _is_within(ranged.get("events", ()), ours)
        for ranged in affected.get("ranges", ())
        if ranged.get("type") in ("ECOSYSTEM", "SEMVER")
    )


def _is_within(events: Sequence[Mapping[str, str]], ours: Version) -> bool:
    """Follow a range's events up to a version."""
    ordered = []
    for event in events:
        ((kind, text),) = event.items()
        at = Version("0.dev0") if text == "0" else _version(text)
        if at is not None and kind in ("introduced", "fixed", "last_affected"):
            ordered.append((at, kind))
    inside = False
    for at, kind in sorted(ordered, key=lambda event: event[0]):
        if kind == "introduced" and ours >= at:
            inside = True
        elif (kind == "fixed" and ours >= at) or (kind == "last_affected" and ours > at):
            inside = False
    return inside


def _version(text: str) -> Version | None:
    try:
        return Version(text)
    except InvalidVersion:
        return None  # of Maven; then its list of versions counts alone


def list_locked(project: Path) -> set[Locked]:
    """Return everything that is locked: packages of Python, and jars."""
    pins = [pin for some in read_locks(project).values() for pin in some]
    found = {Locked("PyPI", canonicalize_name(pin.name), pin.version) for pin in pins}
    for jar in describe_jars(project / "conf"):
        found.add(Locked("Maven", f"{jar.group}:{jar.name}", str(jar.version)))
    return found


def check_vulnerabilities(
    project: Path, database: Path | None, allowed: Mapping[str, Any], audit: Audit
) -> None:
    """Check what is locked against a database. Raises ValueError, OSError."""
    if database is None:
        audit.notes.append(
            "no database of vulnerabilities was given (--database FILE|FOLDER, an export of "
            "osv.dev's for PyPI and Maven): whether what is locked has known ones was not checked"
        )
        return
    entries, known = 0, allowed.get("vulnerabilities", {})

    def counted() -> Iterator[dict[str, Any]]:
        nonlocal entries
        for entry in read_database(database):
            entries += 1
            yield entry

    for name, package in find_vulnerable(counted(), list_locked(project)):
        if name in known:
            audit.notes.append(f"{name}: {package.name}: {known[name]['reason']}")
        else:
            audit.faults.append(f"{name}: {package.name} {package.version} is vulnerable")
    if not entries:
        raise ValueError(f"{database}: no entry of OSV's in it")
    audit.counts["vulnerabilities"] = entries


def main(arguments: Sequence[str] | None = None) -> int:
    """Check everything; return the exit code."""
    parser = argparse.ArgumentParser(prog="make audit-deps", description=__doc__)
    parser.add_argument("--database", type=Path, help="an export of OSV's: a zip, or a folder")
    parser.add_argument("--require-database", action="store_true", help="without one: an error")
    given = parser.parse_args(arguments)
    allowed = tomllib.loads(ALLOWED.read_text())
    audit = Audit()
    check_hashes(PROJECT, audit)
    pins = [pin for some in read_locks(PROJECT).values() for pin in some]
    check_licences(pins, allowed, audit)
    try:
        check_vulnerabilities(PROJECT, given.database, allowed, audit)
    except (ValueError, OSError, zipfile.BadZipFile) as error:
        print(f"audit-deps: --database: {error}", file=sys.stderr)
        return 2
    if given.database is None and given.require_database:
        audit.faults.append("no database of vulnerabilities, and --require-database asks for one")
    for note in audit.notes:
        print(f"note: {note}")
    for fault in audit.faults:
        print(f"FAULT: {fault}")
    print(json.dumps({"ok": not audit.faults, "faults": len(audit.faults), **audit.counts}))
    return 1 if audit.faults else 0


if __name__ == "__main__":
    sys.exit(main())
