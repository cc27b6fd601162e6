"""Pages that many visitors share."""

from __future__ import annotations

import threading

import pytest

from lb_stream.console.sources.shared import Shared, SharedPages


def page(text: str) -> Shared:
    return Shared(text.encode(), "text/html")


def test_many_who_ask_at_once_have_one_page_made() -> None:
    pages, made, go = SharedPages(10), list[str](), threading.Event()

    def make() -> Shared:
        go.wait(60)
        made.append("a")
        return page("a")

    found: list[Shared | None] = []
    threads = [
        threading.Thread(target=lambda: found.append(pages.page("a", make))) for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    go.set()
    for thread in threads:
        thread.join()
    assert made == ["a"] and found == [page("a")] * 8


def test_while_a_page_is_made_others_get_that_of_the_look_before_and_then_the_new_one() -> None:
    before = SharedPages(10)
    before.page("a", lambda: page("old"))
    pages = SharedPages(10, before)
    assert pages.there("a") is None, "somebody has to make it"
    meanwhile: list[Shared | None] = []

    def make() -> Shared:
        meanwhile.append(pages.there("a"))
        return page("new")

    pages.page("a", make)
    assert meanwhile == [page("old")] and pages.there("a") == page("new")


def test_no_page_comes_from_a_look_before_the_one_before() -> None:
    first = SharedPages(10)
    first.page("a", lambda: page("a"))
    third = SharedPages(10, SharedPages(10, first))
    meanwhile: list[Shared | None] = []
    third.page("a", lambda: meanwhile.append(third.there("a")))  # type: ignore[func-returns-value]
    assert meanwhile == [None]


def test_only_so_many_are_kept_the_newest() -> None:
    pages = SharedPages(2)
    for name in "abc":
        pages.page(name, lambda name=name: page(name))  # type: ignore[misc]
    assert list(pages.kept) == ["b", "c"]


def test_what_could_not_be_made_is_tried_again() -> None:
    pages = SharedPages(10)

    def fail() -> Shared:
        raise ValueError("no table")

    with pytest.raises(ValueError, match="no table"):
        pages.page("a", fail)
    assert pages.page("a", lambda: None) is None
    assert pages.page("a", lambda: page("a")) == page("a")


def test_a_tag_tells_pages_apart() -> None:
    assert page("a").tag == page("a").tag != page("b").tag
