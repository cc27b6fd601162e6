"""`make release`: which commits it takes, versions that agree, the bill of materials, same bytes."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from lb_stream import __version__
from lb_stream.io.local.jars import JarsLock
from tests.chart import programs
from tests.release import trial
from tests.release.__main__ import sign_sums, write_sums
from tests.release.build import NotReleasable, build_release, find_commit
from tests.release.sbom import read_pins, render_sbom
from tests.release.trial import check_sums
from tests.release.versions import find_faults, find_named, read_notes

PROJECT = Path(__file__).parents[2]
CHANGELOG = f"# Changelog\n\n## {__version__} - 2030-01-31\n\nThe first version.\n"


def git(folder: Path, *arguments: str) -> str:
    who = ("-c", "user.name=test", "-c", "user.email=test@example.org")
    command = ("git", "-C", folder, *who, *arguments)
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


NAMING = ("CHANGELOG.md", "README.md", "conf", "docs/*.md", "lb_stream/__init__.py")
"""The files that name the version, as git lists them."""


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A clone with one commit, which has the files that name the version as they are now."""
    return make_clone(tmp_path / "clone", *NAMING)


def make_clone(folder: Path, *paths: str) -> Path:
    """Make a repository with these files of this one, the changelog has a date."""
    listed = ("ls-files", "-z", "--cached", "--others", "--exclude-standard", "--", *paths)
    for name in filter(None, git(PROJECT, *listed).split("\0")):
        if (PROJECT / name).exists():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(PROJECT / name, folder / name, follow_symlinks=False)
    git(folder, "init", "-q")
    (folder / "CHANGELOG.md").write_text(CHANGELOG)
    commit(folder)
    return folder


def commit(folder: Path) -> None:
    git(folder, "add", "-A")
    git(folder, "commit", "-q", "--allow-empty", "-m", "A commit")


def refusal(folder: Path) -> str:
    with pytest.raises(NotReleasable) as caught:
        find_commit(folder)
    text = str(caught.value)
    assert "\n" not in text
    return text


# --- versions ---


def test_all_files_name_the_projects_version() -> None:
    assert find_faults(PROJECT) == []
    named = {found.file for found in find_named(PROJECT)}
    deploy = ("Dockerfile", "Dockerfile.agent", "kubernetes.yaml", "statefulset-brokers.yaml")
    chart = ("Chart.yaml", "README.md", "files/pulsar-values.yaml")
    assert named == {
        "CHANGELOG.md",
        "docs/deploy.md",
        *(f"conf/deploy/{name}" for name in deploy),
        *(f"conf/deploy/chart/{name}" for name in chart),
    }


@pytest.mark.parametrize(
    ("file", "what"),
    [
        ("CHANGELOG.md", "first heading"),
        ("conf/deploy/chart/Chart.yaml", "version"),
        ("conf/deploy/chart/Chart.yaml", "appVersion"),
        ("conf/deploy/kubernetes.yaml", "label"),
        ("docs/deploy.md", "image"),
    ],
)
def test_another_version_is_refused_with_its_file_and_value(
    clone: Path, file: str, what: str
) -> None:
    before = {
        "first heading": f"## {__version__}",
        "version": f"\nversion: {__version__}",
        "appVersion": f'appVersion: "{__version__}"',
        "label": f'app.kubernetes.io/version: "{__version__}"',
        "image": f"lb-stream:{__version__}",
    }[what]
    text = (clone / file).read_text()
    assert before in text
    (clone / file).write_text(text.replace(before, before.replace(__version__, "9.9.9")))
    commit(clone)
    assert refusal(clone) == f"{file}: {what} is 9.9.9, expected {__version__}"


def test_the_notes_are_the_section_of_the_version() -> None:
    changes = (
        "# Changelog\n\n## [0.2.0] - 2031-02-03\n\nNew.\n\n### Job\n\n- x\n\n## 0.1.0\n\nOld.\n"
    )
    assert read_notes(changes, "0.2.0") == ("2031-02-03", "New.\n\n### Job\n\n- x\n")
    assert read_notes(changes, "0.1.0") == ("", "Old.\n")
    for version, text in (("0.3.0", changes), ("0.1.0", "## 0.1.0\n")):
        with pytest.raises(ValueError, match=version):
            read_notes(text, version)


# --- commits that can't be released ---


def test_a_clean_commit_is_taken_with_its_tag_or_without_any(clone: Path) -> None:
    found = find_commit(clone)
    assert found.version == __version__ and found.id == git(clone, "rev-parse", "HEAD").strip()
    git(clone, "tag", f"v{__version__}")
    assert find_commit(clone) == found


def test_a_changed_file_is_refused(clone: Path) -> None:
    (clone / "README.md").write_text("changed")
    assert "README.md" in refusal(clone)


def test_a_folder_that_is_no_clone_is_refused(tmp_path: Path) -> None:
    assert str(tmp_path) in refusal(tmp_path)


def test_a_tag_of_another_version_is_refused(clone: Path) -> None:
    git(clone, "tag", "v9.9.9")
    assert refusal(clone) == f"tag v9.9.9: lb_stream.__version__ is {__version__}, expected 9.9.9"


def test_a_version_that_another_commit_was_released_as_is_refused(clone: Path) -> None:
    tagged = git(clone, "rev-parse", "HEAD")[:12]
    git(clone, "tag", "-m", "annotated", f"v{__version__}")
    commit(clone)
    here = git(clone, "rev-parse", "HEAD")[:12]
    assert f"tag v{__version__} is of commit {tagged}, expected {here}" in refusal(clone)


def test_a_tagged_version_needs_its_date(clone: Path) -> None:
    (clone / "CHANGELOG.md").write_text(CHANGELOG.replace(" - 2030-01-31", ""))
    commit(clone)
    assert find_commit(clone).version == __version__
    git(clone, "tag", f"v{__version__}")
    assert f"## {__version__} - YYYY-MM-DD" in refusal(clone)


def test_without_helm_and_go_the_missing_program_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(programs, "FOLDER", tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert programs.main(["helm"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert f"helm-{programs.HELM[0]}" in line and "Go" in line


# --- the bill of materials ---


@pytest.fixture(scope="module")
def bill() -> dict[str, object]:
    """The bill of materials of this tree; `render_sbom` has compared it with the schema."""
    text = render_sbom(PROJECT, __version__, "0" * 40, 1_900_000_000, {"a.whl": "ab" * 32})
    assert text == render_sbom(PROJECT, __version__, "0" * 40, 1_900_000_000, {"a.whl": "ab" * 32})
    return json.loads(text)


Components = Callable[[str], dict[str, dict[str, object]]]


@pytest.fixture
def components(bill: dict[str, list[dict[str, object]]]) -> Components:
    """Return the components of a kind by their address."""
    return lambda kind: {
        str(component["purl"]): component
        for component in bill["components"]
        if str(component["purl"]).startswith(f"pkg:{kind}/")
    }


def test_every_locked_package_is_in_the_bill_with_its_hashes(components: Components) -> None:
    pins = read_pins((PROJECT / "requirements.lock").read_text())
    lines = re.findall(r"^[a-z0-9-]+==", (PROJECT / "requirements.lock").read_text(), re.MULTILINE)
    assert len(pins) == len(lines)
    found = components("pypi")
    assert found.keys() == {f"pkg:pypi/{pin.name}@{pin.version}" for pin in pins}
    for pin in pins:
        (archives,) = found[f"pkg:pypi/{pin.name}@{pin.version}"]["externalReferences"]
        assert {hashed["content"] for hashed in archives["hashes"]} == set(pin.hashes) != set()


def test_only_packages_of_other_machines_lack_a_licence(components: Components) -> None:
    pins = read_pins((PROJECT / "requirements.lock").read_text())
    elsewhere = {f"pkg:pypi/{pin.name}@{pin.version}" for pin in pins if pin.marker}
    without = {name for name, found in components("pypi").items() if not found.get("licenses")}
    assert without <= elsewhere


def test_every_jar_is_in_the_bill_with_its_hash(components: Components) -> None:
    sums = {name: digest for name, digest in JarsLock().expected().items()}
    found = {
        (str(jar["name"]), jar["version"], use["value"]): jar["hashes"]
        for jar in components("maven").values()
        for use in jar["properties"]
    }
    assert {f"{use}/{name}-{version}.jar" for name, version, use in found} == sums.keys()
    for (name, version, use), hashes in found.items():
        (hashed,) = hashes
        assert hashed["content"] == sums[f"{use}/{name}-{version}.jar"]


def test_each_component_is_needed_by_another_one(
    bill: dict[str, list[dict[str, list[str]]]], components: Components
) -> None:
    needed = {name for entry in bill["dependencies"] for name in entry.get("dependsOn", ())}
    pins = read_pins((PROJECT / "requirements.lock").read_text())
    assert needed == components("pypi").keys() | components("maven").keys()
    assert len(pins) < len(needed)


# --- the files ---


def test_a_file_that_differs_from_its_sum_is_missing_or_new_is_named(tmp_path: Path) -> None:
    for name in ("a.whl", "b.tgz", "notes.md"):
        (tmp_path / name).write_text(name)
    write_sums(tmp_path)
    assert check_sums(tmp_path) == []
    assert "SHA256SUMS" not in (tmp_path / "SHA256SUMS").read_text()
    (tmp_path / "a.whl").write_text("other")
    (tmp_path / "b.tgz").unlink()
    (tmp_path / "c.md").write_text("")
    assert [line.partition(":")[0] for line in check_sums(tmp_path)] == ["a.whl", "b.tgz", "c.md"]


def test_a_check_without_a_release_is_one_line_and_exit_code_2(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(trial, "DIST", tmp_path)
    assert trial.main() == 2
    assert len(capsys.readouterr().err.splitlines()) == 1


@pytest.mark.slow
def test_two_builds_of_a_commit_have_the_same_bytes(tmp_path: Path) -> None:
    clone = make_clone(tmp_path / "clone", ":!tests", ":!notebooks")
    found = find_commit(clone)
    sums = []
    for name in ("first", "second"):
        build_release(clone, found, tmp_path / name, None)
        sums.append(
            {
                path.name: hashlib.sha256(path.read_bytes()).hexdigest()
                for path in (tmp_path / name).iterdir()
            }
        )
    assert sums[0] == sums[1]
    assert sums[0].keys() == {
        f"lb_stream-{__version__}-py3-none-any.whl",
        f"lb_stream-{__version__}.tar.gz",
        f"lb_stream-{__version__}.cdx.json",
        f"lb_stream-schemas-{__version__}.tar.gz",
        "notes.md",
    }


@pytest.mark.skipif(shutil.which("ssh-keygen") is None, reason="no ssh-keygen")
def test_the_sums_are_signed_and_checked_as_the_page_says(tmp_path: Path) -> None:
    page = (PROJECT / "docs" / "check-a-release.md").read_text()
    key = tmp_path / "key"
    new = ("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "release", "-f", key)
    subprocess.run(new, check=True)
    public = key.with_suffix(".pub").read_text()
    (tmp_path / "lb-stream-signers").write_text(f"release@lb-stream {public}")
    (tmp_path / "a.whl").write_text("a")
    write_sums(tmp_path)
    sign_sums(tmp_path, key)
    assert (tmp_path / "SHA256SUMS.sig").is_file()
    (command,) = (line for line in page.splitlines() if line.strip().startswith("ssh-keygen -Y"))

    def check() -> int:
        return subprocess.run(command, shell=True, cwd=tmp_path, check=False).returncode

    assert check() == 0
    (tmp_path / "SHA256SUMS").write_text("other")
    assert check() != 0
    with pytest.raises(AssertionError, match="LB_RELEASE_KEY"):
        sign_sums(tmp_path, tmp_path / "no-key")
