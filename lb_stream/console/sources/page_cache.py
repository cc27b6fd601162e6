"""Pages that visitors share: each is made once; until then others get the previous page."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from hashlib import blake2b


@dataclass(frozen=True, slots=True)
class CachedPage:
    """A page as it is sent. `tag` identifies its bytes: a visitor who has them gets no others."""

    body: bytes
    media_type: str
    tag: str = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "tag", f'"{blake2b(self.body, digest_size=12).hexdigest()}"')


class PageCache:
    """The pages of one view of the tables, at most `max_pages`.

    `before`: the cache of the view before, whose pages are sent while new ones are made.
    """

    def __init__(self, max_pages: int, before: PageCache | None = None) -> None:
        self._max_pages = max_pages
        self._pages: dict[Hashable, CachedPage] = {}
        self._before = {} if before is None else before.pages
        self._making: dict[Hashable, threading.Lock] = {}
        self._lock = threading.Lock()

    @property
    def pages(self) -> dict[Hashable, CachedPage]:
        """Return the pages of this view by their keys."""
        with self._lock:
            return dict(self._pages)

    def find(self, key: Hashable) -> CachedPage | None:
        """Return a page that can be sent at once; None: the caller has to make it.

        While another thread makes the page, it is that of the view before.
        """
        with self._lock:
            return self._pages.get(key) or (self._before.get(key) if key in self._making else None)

    def find_or_make(
        self, key: Hashable, make: Callable[[], CachedPage | None]
    ) -> CachedPage | None:
        """Return the page of this view, made now if there is none.

        One thread at a time makes a page. Its None or exception is passed on, and not kept.
        """
        with self._lock:
            making = self._making.setdefault(key, threading.Lock())
        with making:
            with self._lock:
                page = self._pages.get(key)
            if page is not None:
                return page
            try:
                page = make()
                if page is not None:
                    self._keep(key, page)
                return page
            finally:
                with self._lock:
                    self._making.pop(key, None)

    def _keep(self, key: Hashable, page: CachedPage) -> None:
        with self._lock:
            while len(self._pages) >= self._max_pages:
                del self._pages[next(iter(self._pages))]
            self._pages[key] = page
            self._before.pop(key, None)
