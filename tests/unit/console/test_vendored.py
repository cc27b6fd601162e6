"""Files of others are those that their makers published, and are named."""

import hashlib
import tomllib
from pathlib import Path

STATIC = Path(__file__).parents[3] / "lb_stream" / "console" / "static"
OWN = {"console.css", "console.js", "icon.svg", "vendored.toml"}


def test_every_file_of_others_is_listed_with_its_licence_and_is_as_it_was_published() -> None:
    listed = tomllib.loads((STATIC / "vendored.toml").read_text())["file"]
    assert {path.name for path in STATIC.iterdir()} == OWN | {one["path"] for one in listed}
    assert all(one["version"] and one["licence"] for one in listed)
    assert {one["path"]: one["sha256"] for one in listed} == {
        one["path"]: hashlib.sha256((STATIC / one["path"]).read_bytes()).hexdigest()
        for one in listed
    }
