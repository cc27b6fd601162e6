"""docs/tools/recording.py: what a terminal printed, as a picture that moves."""

import re
from itertools import pairwise
from pathlib import Path
from xml.etree import ElementTree

from docs.tools.recording import (
    COLUMNS,
    FIRST_S,
    LONGEST_PAUSE_S,
    ROWS,
    SHORTEST_PAUSE_S,
    RecordedLine,
    find_shown_times,
    render_recording,
)

PICTURE = Path(__file__).parents[2] / "docs" / "pictures" / "demo.svg"
SVG = "{http://www.w3.org/2000/svg}"


def texts(svg: str) -> list[str]:
    return ["".join(text.itertext()) for text in ElementTree.fromstring(svg).iter(f"{SVG}text")]


def test_each_line_is_shown_in_its_order_whatever_it_contains() -> None:
    lines = [RecordedLine(1.0, "a < b & c"), RecordedLine(2.0, "  indented"), RecordedLine(3.0, "")]
    assert texts(render_recording("make it", lines)) == ["$ make it", "a < b & c", "  indented", ""]


def test_long_pauses_are_shortened_and_lines_that_came_at_once_follow_each_other() -> None:
    came_s = [5.0, 5.0, 5.5, 60.0]
    shown_s = find_shown_times([RecordedLine(at_s, "line") for at_s in came_s])
    pauses = [round(after - before, 3) for before, after in pairwise(shown_s)]
    assert pauses == [SHORTEST_PAUSE_S, 0.5, LONGEST_PAUSE_S]
    assert shown_s[0] == FIRST_S + SHORTEST_PAUSE_S


def test_lines_go_up_once_the_terminal_is_full_and_what_is_too_wide_is_cut_off() -> None:
    few = render_recording("make", [RecordedLine(0.0, "x")] * (ROWS - 1))
    many = render_recording("make", [RecordedLine(0.0, "x")] * (ROWS + 1))
    steps = [len(re.findall(r"translateY\(-", svg.split("@media")[0])) for svg in (few, many)]
    assert steps == [1, 3]  # the last one is where it stands still
    (_, wide) = texts(render_recording("make", [RecordedLine(0.0, "w" * 500)]))
    assert len(wide) == COLUMNS


def test_the_recording_of_the_readme_ends_balanced_and_names_no_path_of_a_machine() -> None:
    svg = PICTURE.read_text(encoding="utf-8")
    shown = texts(svg)
    assert (shown[0], shown[-1]) == ("$ make demo", "balanced")
    assert re.findall(r"https?://[^\"]+", svg) == ["http://www.w3.org/2000/svg"]
    assert [line for line in shown if re.search(r"(?<![\w.])/\w+/", line)] == []
