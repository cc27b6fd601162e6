"""The keys of pages: one list, which pages and docs/console.md show."""

from __future__ import annotations

from pathlib import Path

from lb_stream.console.keys import KEYS
from tests.unit.console.site import Tags, client, fleet

DOCS = Path(__file__).parents[3] / "docs" / "console.md"


def test_the_table_of_the_docs_has_the_keys_of_the_code() -> None:
    rows = [f"| {', '.join(f'`{name}`' for name in names)} | {effect} |" for names, effect in KEYS]
    lines = DOCS.read_text().splitlines()
    begin = lines.index("| key | does |") + 2
    assert lines[begin : lines.index("", begin)] == rows


def test_every_page_lists_all_keys_in_a_dialog_with_a_name(tmp_path: Path) -> None:
    fleet(tmp_path / "tables")
    page = Tags(client(tmp_path / "tables").get("/").text)
    (dialog,) = page.all("dialog")
    assert {"id": dialog["aria-labelledby"]} in page.all("h2")
    for names, effect in KEYS:
        assert effect in page.text and all(name in page.text for name in names)
