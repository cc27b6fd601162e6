"""One look at the tables for many requests."""

from __future__ import annotations

from pathlib import Path

import pytest

from lb_stream.console.sources.reader import REFRESH_S, Reader
from lb_stream.query import QueryError
from lb_stream.store import Store
from tests.unit.console.site import fleet, settings_of


def test_a_question_is_put_once_and_again_when_the_tables_are_looked_at_again(tmp_path: Path) -> None:
    fleet(tmp_path / "tables")
    now = [100.0]
    reader = Reader(Store.at(tmp_path / "tables"), settings_of(tmp_path / "tables"), None, clock=lambda: now[0])
    asked: list[float] = []

    def question(lake: object) -> int:
        asked.append(now[0])
        return len(asked)

    assert [reader.look().ask("x", question) for _ in range(3)] == [1, 1, 1]
    now[0] += REFRESH_S + 1
    assert reader.look().ask("x", question) == 2
    assert asked == [100.0, 101.0 + REFRESH_S]


def test_tables_that_come_later_are_found(tmp_path: Path) -> None:
    now = [0.0]
    reader = Reader(Store.at(tmp_path / "tables"), settings_of(tmp_path / "tables"), None, clock=lambda: now[0])
    with pytest.raises(QueryError, match="no tables in"):
        reader.look().ask("x", lambda lake: 1)
    assert reader.look().verdict.state == "down"
    fleet(tmp_path / "tables")
    now[0] += REFRESH_S + 1
    assert [one.cluster for one in reader.look().facts.clusters] == ["eu-1"]
