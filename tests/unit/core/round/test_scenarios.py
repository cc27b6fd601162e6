"""Every scenario file prints what it says.

REWRITE=1 writes what is printed now into the files, to be reviewed as a diff.
"""

import os
from pathlib import Path

import pytest

from tests.support.scenario import bundle_name, parse, run, short_name

FILES = sorted((Path(__file__).parent / "scenarios").glob("*.txt"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_the_balancer_does_what_the_scenario_says(path: Path) -> None:
    text, played = run(path)
    if os.environ.get("REWRITE") == "1":
        path.write_text(played, encoding="utf-8")
        text = played
    assert played == text


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_every_scenario_says_why_it_is_there(path: Path) -> None:
    assert path.read_text(encoding="utf-8").startswith("# ")


def test_short_bundle_names_stand_for_slices_of_the_ring() -> None:
    assert bundle_name("t/n/0") == "t/n/0x00000000_0x10000000"
    assert bundle_name("t/n/12-15") == "t/n/0xc0000000_0xffffffff"
    assert [
        short_name(bundle_name(name)) for name in ("t/n/0", "t/n/15", "t/n/0-15", "t/n/4-7")
    ] == [
        "t/n/0",
        "t/n/15",
        "t/n/0-15",
        "t/n/4-7",
    ]


def test_a_block_without_its_ruler_is_refused() -> None:
    with pytest.raises(ValueError, match="without ----"):
        parse("round\nnothing\n")
