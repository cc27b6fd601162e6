"""Builds the files of a release from a commit, with the same bytes each time."""

from __future__ import annotations

import gzip
import hashlib
import io
import shutil
import subprocess
import tarfile
import tempfile
from dataclasses import dataclass
from pathlib import Path

from tests.release.sbom import render_sbom
from tests.release.versions import find_faults, read_notes, read_version
from tests.support.environments import build, run


class NotReleasable(Exception):
    """A commit that can't be released; the text says why."""


@dataclass(frozen=True)
class Commit:
    """The commit that is checked out: its id, its time in seconds, the version that it holds."""

    id: str
    epoch: int
    version: str


def find_commit(project: Path) -> Commit:
    """Return what is checked out in a clone.

    Raises NotReleasable: it is no clone, has changes, names several versions, or its tag is of
    another version.
    """
    try:
        changed = _git(project, "status", "--porcelain").splitlines()
    except subprocess.CalledProcessError as error:
        raise NotReleasable(f"{project} is no clone: {error.stderr.decode().strip()}") from None
    if changed:
        raise NotReleasable(
            f"{len(changed)} files differ from the commit, the first is {changed[0][3:]}: "
            "commit or remove them"
        )
    if faults := find_faults(project):
        raise NotReleasable("; ".join(faults))
    commit, epoch = _git(project, "log", "-1", "--format=%H %ct").split()
    version = read_version(project)
    try:
        date, _ = read_notes((project / "CHANGELOG.md").read_text(encoding="utf-8"), version)
    except ValueError as error:
        raise NotReleasable(str(error)) from None
    _require_tag(project, commit, version, date)
    return Commit(commit, int(epoch), version)


def build_release(project: Path, commit: Commit, out: Path, helm: Path | None) -> None:
    """Build the files of a release into a new folder; without helm, all but the chart."""
    out.mkdir(parents=True)
    with tempfile.TemporaryDirectory() as place:
        source = Path(place, "source")
        _check_out(project, source)
        built = Path(place, "built")
        for archive in build(source, built, SOURCE_DATE_EPOCH=str(commit.epoch)):
            shutil.copy(archive, out)
        sdist = out / f"lb_stream-{commit.version}.tar.gz"
        sdist.write_bytes(_normalise(sdist.read_bytes(), commit.epoch))
        if helm is not None:
            run((helm, "package", source / "conf/deploy/chart", "-d", out), source)
        sums = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in out.iterdir()}
        bill = render_sbom(source, commit.version, commit.id, commit.epoch, sums)
        (out / f"lb_stream-{commit.version}.cdx.json").write_text(bill, encoding="utf-8")
        _, notes = read_notes((source / "CHANGELOG.md").read_text(encoding="utf-8"), commit.version)
        (out / "notes.md").write_text(notes, encoding="utf-8")
    name = f"lb_stream-schemas-{commit.version}"
    schemas = _archive(project, f"--prefix={name}/", "HEAD:schemas")
    (out / f"{name}.tar.gz").write_bytes(_normalise(gzip.compress(schemas), commit.epoch))


def _require_tag(project: Path, commit: str, version: str, date: str) -> None:
    """Raise NotReleasable if a tag of this commit, or of this version, belongs to another one."""
    here = [tag for tag in _git(project, "tag", "--points-at", "HEAD").split() if tag[0] == "v"]
    for tag in here:
        if tag != f"v{version}":
            raise NotReleasable(
                f"tag {tag}: lb_stream.__version__ is {version}, expected {tag[1:]}"
            )
    if here and not date:
        raise NotReleasable(
            f"CHANGELOG.md: the heading of {version} has no date, expected "
            f"## {version} - YYYY-MM-DD, as tag v{version} is here"
        )
    if not here and _git(project, "tag", "--list", f"v{version}").strip():
        tagged = _git(project, "rev-list", "-n", "1", f"v{version}").strip()
        raise NotReleasable(
            f"tag v{version} is of commit {tagged[:12]}, expected {commit[:12]}: "
            "check it out, or raise lb_stream.__version__"
        )


def _git(project: Path, *arguments: str) -> str:
    command = ("git", "-C", project, *arguments)
    return subprocess.run(command, capture_output=True, check=True).stdout.decode()


def _archive(project: Path, *arguments: str) -> bytes:
    command = ("git", "-C", project, "archive", "--format=tar", *arguments)
    return subprocess.run(command, capture_output=True, check=True).stdout


def _check_out(project: Path, folder: Path) -> None:
    """Write the commit's files; each has the commit's time."""
    with tarfile.open(fileobj=io.BytesIO(_archive(project, "HEAD"))) as tar:
        tar.extractall(folder, filter="data")


def _normalise(archive: bytes, epoch: int) -> bytes:
    """Return a tar.gz without what differs between two builds: times, users, order."""
    out = io.BytesIO()
    with (
        tarfile.open(fileobj=io.BytesIO(archive)) as given,
        gzip.GzipFile("", "wb", fileobj=out, mtime=epoch) as packed,
        tarfile.open(fileobj=packed, mode="w") as made,
    ):
        for member in sorted(given.getmembers(), key=lambda member: member.name):
            member.mtime = epoch
            member.uid = member.gid = 0
            member.uname = member.gname = ""
            member.pax_headers = {}
            made.addfile(member, given.extractfile(member) if member.isfile() else None)
    return out.getvalue()
