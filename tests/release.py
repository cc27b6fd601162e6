"""`make release`: build wheel and sdist into dist, try each, and write their SHA-256 sums.

Each is installed into an empty environment.

The last line is one JSON object. Exit code 1: an archive could not be built, installed or run.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import sys
import tempfile
from pathlib import Path

from lb_stream import __version__
from tests.support.environments import PROJECT, build, copy_sources, make_environment

DIST = PROJECT / "dist"


def check(archive: Path, folder: Path) -> None:
    """Install an archive into an empty environment and run what the base is for."""
    made = make_environment(folder, archive)
    version = made.run("lbctl", "--version").strip()
    if version != f"lbctl {__version__}":
        raise AssertionError(f"{archive.name} says {version!r}, expected lbctl {__version__}")
    reports = PROJECT / "tests" / "data" / "modular-load-reports.jsonl.gz"
    made.run(
        "python", "-c", f"import lb_stream; lb_stream.ask(lb_stream.load_reports({str(reports)!r}))"
    )
    made.run("lbctl", "config", "show", "--json")


def main() -> int:
    """Build both archives, check them, write SHA256SUMS."""
    shutil.rmtree(DIST, ignore_errors=True)
    with tempfile.TemporaryDirectory() as place:
        source, built = Path(place, "source"), Path(place, "dist")
        source.mkdir()
        copy_sources(source)
        archives = build(source, built)
        try:
            for archive in archives:
                folder = Path(place, archive.suffix)
                folder.mkdir()
                check(archive, folder)
                print(f"{archive.name}: installed into an empty environment, runs", file=sys.stderr)
        except AssertionError as error:
            print(error, file=sys.stderr)
            return 1
        DIST.mkdir()
        archives = [Path(shutil.copy(archive, DIST)) for archive in archives]
    sums = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in archives}
    lines = "".join(f"{digest}  {name}\n" for name, digest in sums.items())
    (DIST / "SHA256SUMS").write_text(lines)
    print(json.dumps({"version": __version__, "sha256": sums}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
