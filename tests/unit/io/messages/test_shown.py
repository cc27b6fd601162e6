"""Names are data: whatever a broker, bundle or cluster is called, a terminal, a page and a log show
it, and obey none of it."""

import io
import json
import tempfile
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from rich.console import Console

from lb_stream.cli.shared.output import styled, table
from lb_stream.io.messages.shown import in_html, in_json, shown
from tests.support.lbctl_runner import lbctl
from tests.support.shown_tables import obeyed, write

PARTS = (
    "b-1",
    "[/]",
    "[bold]",
    "[red]x[/red]",
    "[link=http://x]",
    ":smile:",
    "\\",
    "\x1b[31m",
    "\x1b]0;title\x07",
    "\x1b]8;;http://x\x1b\\",
    "\x9b2J",
    "\x00",
    "\x07",
    "\x7f",
    "\r",
    "\n",
    "\t",
    "\u202e",
    "\u2066",
    "\u200b",
    "\u2028",
    "\ufeff",
    "\U000e0041",
    "<script>",
    '"&',
    "ü",
    "名",
)
LETTERS = st.characters(exclude_categories=["Cs"])
NAMES = st.lists(st.sampled_from(PARTS) | st.text(LETTERS, max_size=4), min_size=1, max_size=5).map(
    "".join
)


@given(st.text(st.characters()))
@example("".join(PARTS))
@example("\ud800")
def test_what_is_shown_has_no_letter_that_is_not_seen_and_is_the_same_where_there_was_none(
    text: str,
) -> None:
    assert obeyed(shown(text), "") == []
    assert (shown(text) == text) == text.isprintable()
    shown(text).encode()


@given(st.text(st.characters()))
@example("".join(PARTS))
def test_json_stays_the_same_value_and_is_nothing_that_a_terminal_obeys(text: str) -> None:
    value = json.dumps({text: [text]}, ensure_ascii=False)
    assert json.loads(in_json(value)) == {text: [text]}
    assert obeyed(in_json(value), "") == []


@given(NAMES)
@example("</title><script>[/]\x00\u202e")
def test_a_page_has_a_name_as_text(name: str) -> None:
    found: list[str] = []

    class Parser(HTMLParser):
        def handle_data(self, data: str) -> None:
            found.append(data)

        def handle_starttag(self, tag: str, attrs: Any) -> None:
            assert tag == "b"

    parser = Parser()
    parser.feed(f"<b>{in_html(name)}</b>")
    parser.close()
    assert "".join(found) == shown(name)


@given(NAMES, NAMES)
def test_a_table_of_any_names_has_one_line_for_each_row(broker: str, bundle: str) -> None:
    made = Console(width=10_000, file=io.StringIO(), color_system=None)
    with made.capture() as captured:
        made.print(table(("broker", "bundle"), [(broker, styled((bundle, "red"))), ("b", "t/n/x")]))
    lines = captured.get().splitlines()
    assert len(lines) == 4
    assert [shown(broker) in lines[2], shown(bundle) in lines[2]] == [True, True]


COMMANDS_THAT_SHOW_NAMES = (
    ("brokers",),
    ("clusters", "list"),
    ("decisions",),
    ("explain", "last"),
    ("explain", "--broker", "BROKER"),
    ("explain", "--bundle", "BUNDLE"),
    ("explain", "--why-not", "BUNDLE"),
    ("explain", "--round", "eu-1:1"),
    ("monitor",),
    ("leader",),
    ("commands",),
    ("sql", "from decisions"),
    ("sql", "select broker from broker_loads"),
    ("sql", "from rounds", "--json"),
    ("brokers", "--json"),
    ("report", "--out", "page.html"),
)


@settings(max_examples=2, deadline=None, suppress_health_check=list(HealthCheck))
@given(NAMES, NAMES)
@example("[/]", "[/]/x/0x00000000_0xffffffff")
@example("\x1b[31m\x9b2J\u202e\x00\r\n\t", "\x1b]0;title\x07[bold]/n/0x0_0x1")
def test_every_command_shows_any_names(broker: str, bundle: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        write(Path(folder) / "tables", broker, bundle)
        for command in COMMANDS_THAT_SHOW_NAMES:
            arguments = [{"BROKER": broker, "BUNDLE": bundle}.get(part, part) for part in command]
            result = lbctl(*arguments, "--set", "stream.tables=tables", cwd=Path(folder))
            assert result.code in (0, 2), (
                command,
                result.err,
            )  # 2: it says that there is no such thing
            assert obeyed(result.out + result.err) == [], command
        assert obeyed((Path(folder) / "page.html").read_text()) == []
