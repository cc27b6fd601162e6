"""A page of HTML as a browser reads it, and a name that would harm one."""

import json
from html.parser import HTMLParser
from typing import Any

EVIL = '</script><script>document.title="x"</script>&"<b>'


class Page(HTMLParser):
    """What a page says: tiles, tables (a list of rows each, by data-table), ids of charts, lines'
    points, its data."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tables: dict[str, list[list[str]]] = {}
        self.tiles: list[tuple[str, str]] = []
        self.charts: dict[str, dict[str, str]] = {}
        self.lines: dict[str, dict[str, str]] = {}
        self.fetched: list[str] = []
        self.data: Any = None
        self._open: list[str] = []
        self._table, self._chart, self._name, self._text, self._is_data = "", "", "", "", False
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.fetched += [given[name] for name in ("src", "href", "xlink:href") if name in given]
        if tag == "table":
            self._table = given["data-table"]
            self.tables[self._table] = []
        elif tag == "tr":
            self.tables[self._table].append([])
        elif tag == "svg":
            self._chart = given["id"]
            self.charts[self._chart], self.lines[self._chart] = given, {}
        elif tag == "g":
            self._name = given["data-name"]
        elif tag == "polyline":
            self.lines[self._chart][self._name] = given["points"]
        self._is_data = given.get("id") == "data"
        self._text = ""

    def handle_data(self, data: str) -> None:
        self._text += data

    def handle_endtag(self, tag: str) -> None:
        if tag in ("td", "th"):
            self.tables[self._table][-1].append(self._text)
        elif tag == "b":
            self.tiles.append((self._text, ""))
        elif tag == "span" and self.tiles and not self.tiles[-1][1]:
            self.tiles[-1] = (self.tiles[-1][0], self._text)
        elif tag == "script" and self._is_data:
            self.data = json.loads(self._text)
