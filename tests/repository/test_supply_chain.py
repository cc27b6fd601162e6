"""`make audit-deps` finds a missing hash, a licence that is not allowed, a known vulnerability; the
bill of materials of an image names what is in its files."""

from __future__ import annotations

import io
import json
import tarfile
import tomllib
import zipfile
from email.message import Message
from pathlib import Path
from typing import Any

import pytest

from tests.release import audit
from tests.release.audit import (
    ALLOWED,
    PROJECT,
    Audit,
    Locked,
    check_hashes,
    check_licences,
    find_unhashed,
    find_vulnerable,
    is_affected,
    is_allowed,
    list_locked,
    main,
)
from tests.release.image_bill import render_image_bill
from tests.release.sbom import Pin

RULES = tomllib.loads(ALLOWED.read_text())


def pypi(name: str, *events: dict[str, str], **more: Any) -> dict[str, Any]:
    """An entry of OSV's about one package."""
    package = {"ecosystem": "PyPI", "name": name}
    affected = {"package": package, "ranges": [{"type": "ECOSYSTEM", "events": list(events)}]}
    return {"id": f"OSV-{name}", "affected": [affected], **more}


def last_line(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(capsys.readouterr().out.splitlines()[-1])
    return found


def test_all_that_is_locked_has_hashes_and_an_allowed_licence(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main([]) == 0
    out = capsys.readouterr().out
    found = json.loads(out.splitlines()[-1])
    assert found["ok"] and found["pins"] > 200 and found["jars"] > 20 and found["licences"] > 50
    assert "no database of vulnerabilities was given" in out
    assert main(["--require-database"]) == 1


def test_a_pin_without_a_hash_is_a_fault(tmp_path: Path) -> None:
    (tmp_path / "requirements.lock").write_text("a==1 \\\n    --hash=sha256:0\nb==2\n")
    (tmp_path / "conf").symlink_to(PROJECT / "conf")
    found = Audit()
    check_hashes(tmp_path, found)
    assert [fault.partition(",")[0] for fault in found.faults] == [
        "requirements.lock: b 2 has no hash"
    ]


@pytest.mark.parametrize(
    ("line", "is_fault"),
    [
        ("\tpip install requests", True),
        ("\t$(UV) pip install -q --python x requests", True),
        ("\t$(INSTALL) -q \\\n\t  -r requirements.lock", True),
        ("\t$(INSTALL) -q --require-hashes \\\n\t  -r requirements.lock", False),
        ("\t$(INSTALL) -q --no-deps -e .", False),
        ("INSTALL := $(UV) pip install --python x", False),
        ("# pip install requests", False),
        (
            "RUN /opt/pip/bin/pip --python x install --require-hashes -r a.lock && pip install b",
            True,
        ),
    ],
)
def test_what_installs_packages_asks_for_their_hashes(
    tmp_path: Path, line: str, is_fault: bool
) -> None:
    (file := tmp_path / "Makefile").write_text(f"x:\n{line}\n")
    assert bool(find_unhashed(file)) is is_fault


@pytest.mark.parametrize(
    ("licence", "allowed"),
    [
        ("MIT", True),
        ("MIT License", True),
        ("Apache-2.0 OR GPL-3.0-only", True),
        ("(MIT AND GPL-3.0-only) OR ISC", True),
        ("MIT AND GPL-3.0-only", False),
        ("GPL-3.0-only", False),
    ],
)
def test_one_side_of_or_and_both_of_and_must_be_allowed(licence: str, allowed: bool) -> None:
    assert is_allowed(licence, RULES) is allowed


def test_a_licence_that_is_not_allowed_and_one_that_changed_are_faults(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def installed(name: str) -> Any:
        metadata = Message()
        metadata["License"] = {"a": "GPL-3.0-only", "certifi": "MIT", "b": "MIT"}.get(name, "")
        return type("Installed", (), {"metadata": metadata})

    monkeypatch.setattr(audit, "find_installed", installed)
    found = Audit()
    pins = [Pin(name, "1", "", ("0",)) for name in ("a", "b", "c", "certifi")]
    check_licences(pins, RULES, found)
    assert [fault.partition(":")[0] for fault in found.faults] == ["a", "c", "certifi"]


def test_every_exception_is_of_something_that_is_locked_and_has_a_reason() -> None:
    names = {package.name for package in list_locked(PROJECT)}
    for name, exception in RULES["packages"].items():
        assert name in names and exception["reason"] and exception["licence"]


@pytest.mark.parametrize(
    ("version", "expected"), [("1.9", False), ("2.0", True), ("2.4", True), ("2.5", False)]
)
def test_a_range_ends_where_it_is_fixed(version: str, expected: bool) -> None:
    (affected,) = pypi("x", {"introduced": "2.0"}, {"fixed": "2.5"})["affected"]
    assert is_affected(affected, version) is expected


def test_a_range_from_the_beginning_to_the_last_affected_one_and_a_list_of_versions() -> None:
    (affected,) = pypi("x", {"introduced": "0"}, {"last_affected": "2"})["affected"]
    assert is_affected(affected, "2") and not is_affected(affected, "2.1")
    assert is_affected({"versions": ["1-weird"]}, "1-weird")
    assert not is_affected(affected, "no-version")


def test_names_of_packages_and_ecosystems_must_be_the_same_and_withdrawn_entries_do_not_count() -> (
    None
):
    locked = [Locked("PyPI", "typing-extensions", "1"), Locked("Maven", "a:b", "1")]
    ever = {"introduced": "0"}
    java = {"id": "J", "affected": [{"package": {"ecosystem": "Maven", "name": "a:b"}}]}
    java["affected"][0]["versions"] = ["1"]  # type: ignore[index]
    entries = [
        pypi("Typing_Extensions", ever),
        pypi("a:b", ever),
        pypi("typing-extensions", ever, id="gone", withdrawn="2026-01-01T00:00:00Z"),
        java,
    ]
    found = [name for name, _ in find_vulnerable(entries, locked)]
    assert found == ["OSV-Typing_Extensions", "J"]


def test_a_vulnerable_package_is_found_in_an_export_without_the_network(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with zipfile.ZipFile(tmp_path / "all.zip", "w") as archive:
        archive.writestr("1.json", json.dumps(pypi("cronsim", {"introduced": "0"})))
        archive.writestr("2.json", json.dumps(pypi("cronsim", {"fixed": "0.1"}, id="old")))
    assert main(["--database", str(tmp_path)]) == 1
    found = last_line(capsys)
    assert (found["faults"], found["vulnerabilities"]) == (1, 2)
    (tmp_path / "all.zip").unlink()
    (tmp_path / "1.json").write_text(json.dumps(pypi("nobody", {"introduced": "0"})))
    assert main(["--database", str(tmp_path), "--require-database"]) == 0
    assert last_line(capsys)["vulnerabilities"] == 1


@pytest.mark.parametrize("content", ["[]", "{", "{}"])
def test_what_is_no_database_is_a_wrong_argument(tmp_path: Path, content: str) -> None:
    (tmp_path / "1.json").write_text(content)
    assert main(["--database", str(tmp_path)]) == 2
    assert main(["--database", str(tmp_path / "nowhere")]) == 2


def test_the_bill_of_an_image_names_its_packages_and_jars_by_what_is_in_its_files() -> None:
    files = {
        "var/lib/dpkg/status.d/libc6": "Package: libc6\nStatus: install ok installed\n"
        "Architecture: amd64\nVersion: 2.36-9\n",
        "var/lib/dpkg/status": "Package: gone\nStatus: deinstall ok config-files\nVersion: 1\n",
        "opt/x/site-packages/msgspec-0.22.0.dist-info/METADATA": "Name: msgspec\n"
        "Version: 0.22.0\nLicense-Expression: BSD-3-Clause\n\n# text\n",
        "opt/x/jars/kafka-clients-4.1.0.jar": "jar",
        "etc/passwd": "root",
    }
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as made:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            made.addfile(member, io.BytesIO(content.encode()))

    def render() -> dict[str, Any]:
        archive.seek(0)
        with tarfile.open(fileobj=archive, mode="r|") as given:
            found: dict[str, Any] = json.loads(
                render_image_bill(given, "lb-stream", "0.1.0", "sha256:0", 1_767_225_600)
            )
        return found

    bill = render()
    assert sorted(component["purl"] for component in bill["components"]) == [
        "pkg:deb/debian/libc6@2.36-9?arch=amd64",
        "pkg:generic/kafka-clients@4.1.0",
        "pkg:pypi/msgspec@0.22.0",
    ]
    by_name = {component["name"]: component for component in bill["components"]}
    assert by_name["msgspec"]["licenses"][0]["license"]["id"] == "BSD-3-Clause"
    assert len(by_name["kafka-clients"]["hashes"][0]["content"]) == 64
    assert bill["metadata"]["component"]["type"] == "container"
    assert bill == render()
