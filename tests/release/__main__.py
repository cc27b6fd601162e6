"""`make release`: what a release consists of, built from the commit that is checked out, into dist.

With LB_RELEASE_KEY, a private key of OpenSSH's, the sums are signed: SHA256SUMS.sig.

That is the wheel and the sdist, each tried in an empty environment; the Helm chart as a package;
the schemas as an archive; the bill of materials; the notes, which are the changelog's section; and
SHA256SUMS of them all. The same commit gives the same bytes.

The last line is one JSON object. Exit code 1: an archive could not be built, installed or run; 2:
this commit can't be released, or helm is missing.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.chart import programs
from tests.release.build import NotReleasable, build_release, find_commit
from tests.release.checks import check_base
from tests.support.environments import PROJECT, make_environment

DIST = PROJECT / "dist"


def write_sums(folder: Path) -> dict[str, str]:
    """Write SHA256SUMS of a folder's files; return the sums by name."""
    paths = sorted(path for path in folder.iterdir() if path.name != "SHA256SUMS")
    sums = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in paths}
    lines = "".join(f"{digest}  {name}\n" for name, digest in sums.items())
    (folder / "SHA256SUMS").write_text(lines)
    return sums


def sign_sums(folder: Path, key: Path) -> None:
    """Sign SHA256SUMS as OpenSSH signs files, into SHA256SUMS.sig. Raises AssertionError."""
    sums = folder / "SHA256SUMS"
    command = ("ssh-keygen", "-q", "-Y", "sign", "-f", key, "-n", "file", sums)
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise AssertionError(f"LB_RELEASE_KEY = {key}: {done.stderr.strip()}")


def main() -> int:
    """Build everything, try wheel and sdist, then replace dist."""
    try:
        commit = find_commit(PROJECT)
    except NotReleasable as error:
        print(f"release: {error}", file=sys.stderr)
        return 2
    if (code := programs.main(["helm"])) != 0:
        return code
    with tempfile.TemporaryDirectory() as place:
        out = Path(place, "dist")
        try:
            build_release(PROJECT, commit, out, programs.helm(programs.HELM[-1]))
            for archive in (*out.glob("*.whl"), *out.glob(f"lb_stream-{commit.version}.tar.gz")):
                folder = Path(place, archive.suffix)
                folder.mkdir()
                check_base(make_environment(folder, archive), commit.version)
                print(f"{archive.name}: installed into an empty environment, runs", file=sys.stderr)
        except AssertionError as error:
            print(error, file=sys.stderr)
            return 1
        sums = write_sums(out)
        if key := os.environ.get("LB_RELEASE_KEY"):
            try:
                sign_sums(out, Path(key))
            except (AssertionError, OSError) as error:
                print(f"release: {error}", file=sys.stderr)
                return 2
        shutil.rmtree(DIST, ignore_errors=True)
        shutil.copytree(out, DIST)
    print(json.dumps({"version": commit.version, "commit": commit.id, "sha256": sums}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
