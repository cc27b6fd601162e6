"""Pages that many visitors share: each is made once, and those who ask meanwhile get the one
before."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from hashlib import blake2b


@dataclass(frozen=True, slots=True)
class Shared:
    """A page as it is sent. `tag` names what it holds: a visitor who has it needs no other."""

    body: bytes
    media_type: str
    tag: str = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "tag", f'"{blake2b(self.body, digest_size=12).hexdigest()}"')


class SharedPages:
    """The pages of one look at the tables, `most` at most.

    `before`: those of the look before it, for who would have to wait.
    """

    def __init__(self, most: int, before: SharedPages | None = None) -> None:
        self._most, self._made = most, dict[Hashable, Shared]()
        self._before = {} if before is None else before.kept
        self._turns: dict[Hashable, threading.Lock] = {}
        self._lock = threading.Lock()

    @property
    def kept(self) -> dict[Hashable, Shared]:
        """Those of this look, by their keys."""
        with self._lock:
            return dict(self._made)

    def there(self, key: Hashable) -> Shared | None:
        """A page to show at once; None: somebody has to make it.

        While one does, it is the page of the look before.
        """
        with self._lock:
            return self._made.get(key) or (self._before.get(key) if key in self._turns else None)

    def page(self, key: Hashable, make: Callable[[], Shared | None]) -> Shared | None:
        """The page of this look.

        One maker at a time; None and what is raised are not kept, but given to who called.
        """
        with self._lock:
            turn = self._turns.setdefault(key, threading.Lock())
        with turn:
            with self._lock:
                found = self._made.get(key)
            if found is not None:
                return found
            try:
                made = make()
                if made is not None:
                    self._keep(key, made)
                return made
            finally:
                with self._lock:
                    self._turns.pop(key, None)

    def _keep(self, key: Hashable, made: Shared) -> None:
        with self._lock:
            while len(self._made) >= self._most:
                del self._made[next(iter(self._made))]
            self._made[key] = made
            self._before.pop(key, None)
