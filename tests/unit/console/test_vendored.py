"""Vendored files are those that their makers published, and are listed."""

import hashlib
import tomllib
from pathlib import Path

STATIC = Path(__file__).parents[3] / "lb_stream" / "console" / "static"
OWN = {"charts.js", "console.css", "console.js", "icon.svg", "vendored.toml"}


def test_every_vendored_file_is_listed_with_its_licence_and_is_as_it_was_published() -> None:
    listed = tomllib.loads((STATIC / "vendored.toml").read_text())["file"]
    assert {path.name for path in STATIC.iterdir()} == OWN | {file["path"] for file in listed}
    assert all(file["version"] and file["licence"] for file in listed)
    assert {file["path"]: file["sha256"] for file in listed} == {
        file["path"]: hashlib.sha256((STATIC / file["path"]).read_bytes()).hexdigest()
        for file in listed
    }
