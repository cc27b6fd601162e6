"""Pages that many visitors share."""

from __future__ import annotations

import threading

import pytest

from lb_stream.console.sources.page_cache import CachedPage, PageCache


def page(text: str) -> CachedPage:
    return CachedPage(text.encode(), "text/html")


def test_concurrent_requests_have_a_page_made_once() -> None:
    pages, made, go = PageCache(10), list[str](), threading.Event()

    def make() -> CachedPage:
        go.wait(60)
        made.append("a")
        return page("a")

    found: list[CachedPage | None] = []
    threads = [
        threading.Thread(target=lambda: found.append(pages.find_or_make("a", make)))
        for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    go.set()
    for thread in threads:
        thread.join()
    assert made == ["a"] and found == [page("a")] * 8


def test_while_a_page_is_made_others_get_that_of_the_view_before_and_then_the_new_one() -> None:
    before = PageCache(10)
    before.find_or_make("a", lambda: page("old"))
    pages = PageCache(10, before)
    assert pages.find("a") is None, "the caller has to make it"
    meanwhile: list[CachedPage | None] = []

    def make() -> CachedPage:
        meanwhile.append(pages.find("a"))
        return page("new")

    pages.find_or_make("a", make)
    assert meanwhile == [page("old")] and pages.find("a") == page("new")


def test_no_page_is_older_than_the_view_before() -> None:
    first = PageCache(10)
    first.find_or_make("a", lambda: page("a"))
    third = PageCache(10, PageCache(10, first))
    meanwhile: list[CachedPage | None] = []
    third.find_or_make("a", lambda: meanwhile.append(third.find("a")))
    assert meanwhile == [None]


def test_the_newest_pages_are_kept() -> None:
    pages = PageCache(2)
    for name in "abc":
        pages.find_or_make(name, lambda name=name: page(name))
    assert list(pages.pages) == ["b", "c"]


def test_a_page_that_could_not_be_made_is_tried_again() -> None:
    pages = PageCache(10)

    def fail() -> CachedPage:
        raise ValueError("no table")

    with pytest.raises(ValueError, match="no table"):
        pages.find_or_make("a", fail)
    assert pages.find_or_make("a", lambda: None) is None
    assert pages.find_or_make("a", lambda: page("a")) == page("a")


def test_a_tag_tells_pages_apart() -> None:
    assert page("a").tag == page("a").tag != page("b").tag
