"""One view of the tables for many requests."""

from __future__ import annotations

import threading
import weakref
from pathlib import Path

import pytest

from lb_stream.console.sources.page_cache import CachedPage
from lb_stream.console.sources.reader import (
    LIFETIME_PER_CPU_TIME,
    MAX_ANSWERS,
    MAX_DELAY_S,
    MAX_LIFETIME_S,
    MIN_LIFETIME_S,
    Reader,
)
from lb_stream.query import QueryError
from lb_stream.store import Store
from tests.unit.console.site import fleet, settings_of


def test_a_question_is_asked_once_for_each_view(
    tmp_path: Path,
) -> None:
    fleet(tmp_path / "tables")
    now = [100.0]
    reader = Reader(
        Store.at(tmp_path / "tables"), settings_of(tmp_path / "tables"), None, clock=lambda: now[0]
    )
    asked: list[float] = []

    def question(lake: object) -> int:
        asked.append(now[0])
        return len(asked)

    assert [reader.current_view().ask("x", question) for _ in range(3)] == [1, 1, 1]
    now[0] += MIN_LIFETIME_S + 1
    assert reader.current_view().ask("x", question) == 2
    assert asked == [100.0, 101.0 + MIN_LIFETIME_S]


def test_tables_that_are_written_later_are_found(tmp_path: Path) -> None:
    now = [0.0]
    reader = Reader(
        Store.at(tmp_path / "tables"), settings_of(tmp_path / "tables"), None, clock=lambda: now[0]
    )
    with pytest.raises(QueryError, match="no tables in"):
        reader.current_view().ask("x", lambda lake: 1)
    assert reader.current_view().verdict.state == "down"
    fleet(tmp_path / "tables")
    now[0] += MIN_LIFETIME_S + 1
    assert [cluster.cluster for cluster in reader.current_view().facts.clusters] == ["eu-1"]


def test_a_view_that_takes_more_cpu_time_lives_longer(tmp_path: Path) -> None:
    fleet(tmp_path / "tables")
    now = [0.0]
    reader = Reader(
        Store.at(tmp_path / "tables"), settings_of(tmp_path / "tables"), None, clock=lambda: now[0]
    )
    first = reader.current_view()
    first.cpu_s = 2 * MIN_LIFETIME_S
    now[0] = LIFETIME_PER_CPU_TIME * first.cpu_s - 0.1
    assert reader.current_view() is first and reader.find_fresh_view() is first
    first.cpu_s = 1_000.0
    now[0] = MAX_LIFETIME_S - 0.1
    assert reader.current_view() is first
    now[0] = MAX_LIFETIME_S
    assert reader.find_fresh_view() is None
    assert reader.current_view() is not first
    assert 0 < reader.current_view().cpu_s < 1_000, "the CPU time of the view before doesn't count"


def test_while_a_view_is_opened_requests_get_the_one_before_unless_it_is_late(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fleet(tmp_path / "tables")
    now, making, go = [0.0], threading.Event(), threading.Event()
    reader = Reader(
        Store.at(tmp_path / "tables"), settings_of(tmp_path / "tables"), None, clock=lambda: now[0]
    )
    first = reader.current_view()
    first.cpu_s = 0.0
    made = reader._open

    def slow() -> object:
        making.set()
        go.wait(60)
        return made()

    monkeypatch.setattr(reader, "_open", slow)
    now[0] = MIN_LIFETIME_S
    thread = threading.Thread(target=reader.current_view)
    thread.start()
    assert making.wait(60)
    assert reader.find_fresh_view() is first and reader.current_view() is first
    now[0] = MIN_LIFETIME_S + MAX_DELAY_S
    assert reader.find_fresh_view() is None
    go.set()
    thread.join()
    assert reader.current_view() is not first


def test_pages_of_the_view_before_are_sent_while_new_ones_are_made_unless_they_are_late(
    tmp_path: Path,
) -> None:
    fleet(tmp_path / "tables")
    now = [0.0]
    reader = Reader(
        Store.at(tmp_path / "tables"), settings_of(tmp_path / "tables"), None, clock=lambda: now[0]
    )
    found = []
    for wait_s in (MIN_LIFETIME_S, MIN_LIFETIME_S + MAX_DELAY_S):
        view = reader.current_view()
        view.pages.find_or_make("a", lambda: CachedPage(b"old", "text/html"))
        view.cpu_s = 0.0
        now[0] += wait_s
        pages = reader.current_view().pages
        pages.find_or_make("a", lambda pages=pages: found.append(pages.find("a")))
    assert found == [CachedPage(b"old", "text/html"), None]


def test_the_connection_of_a_replaced_view_is_closed(tmp_path: Path) -> None:
    fleet(tmp_path / "tables")
    now = [0.0]
    reader = Reader(
        Store.at(tmp_path / "tables"), settings_of(tmp_path / "tables"), None, clock=lambda: now[0]
    )
    first = reader.current_view()
    assert first.lake is not None
    lake = weakref.ref(first.lake)
    del first
    now[0] = MAX_LIFETIME_S
    reader.current_view()
    assert lake() is None


def test_the_number_of_kept_answers_is_limited(tmp_path: Path) -> None:
    fleet(tmp_path / "tables")
    view = Reader(
        Store.at(tmp_path / "tables"), settings_of(tmp_path / "tables"), None
    ).current_view()
    for number in range(MAX_ANSWERS + 10):
        view.ask(number, lambda lake, number=number: number)
    asked: list[int] = []
    for number in (MAX_ANSWERS + 9, 0):
        view.ask(number, lambda lake, number=number: asked.append(number))
    assert asked == [0]
