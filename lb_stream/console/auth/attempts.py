"""Failed logins, in memory: names and addresses with many of them wait."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass

FREE_ATTEMPTS = 5
"""Failed logins of a name from one address before it must wait; each further one doubles the wait.
"""
FREE_ATTEMPTS_OF_ALL = 20
"""The same of an address under any names, and of a name from any addresses."""
MAX_WAIT_S = 60.0
FORGET_S = 3_600.0
"""Time without a failed login after which the earlier ones count no more."""
MAX_KEYS = 10_000


@dataclass(frozen=True, slots=True)
class FailedLogins:
    """Failed logins of a name, an address, or both.

    How many, the time (s) until which logins must wait, and the time at which they are forgotten.
    """

    count: int = 0
    wait_until_s: float = 0.0
    forget_s: float = 0.0


class _Counter:
    """Failed logins by key. Each count beyond `free` doubles the wait."""

    def __init__(self, free: int) -> None:
        self._free, self._failed = free, dict[Hashable, FailedLogins]()

    def wait_until_s(self, key: Hashable) -> float:
        return self._failed.get(key, FailedLogins()).wait_until_s

    def record(self, key: Hashable, now_s: float) -> None:
        before = self._failed.pop(key, FailedLogins())
        count = 1 if before.forget_s <= now_s else before.count + 1
        beyond = count - self._free
        wait_s = min(MAX_WAIT_S, 2.0**beyond) if beyond >= 0 else 0.0
        self._failed[key] = FailedLogins(count, now_s + wait_s, now_s + wait_s + FORGET_S)
        while len(self._failed) > MAX_KEYS:
            self._failed.pop(next(iter(self._failed)))

    def forget(self, key: Hashable) -> None:
        self._failed.pop(key, None)


class LoginAttempts:
    """Counts failed logins of each name and address, and makes those with many wait.

    Failures from elsewhere don't make a user wait at an address where this user has logged in
    before. Address "": it is not known. Any thread may call.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock, self._lock = clock, threading.Lock()
        self._pairs = _Counter(FREE_ATTEMPTS)
        self._addresses = _Counter(FREE_ATTEMPTS_OF_ALL)
        self._names = _Counter(FREE_ATTEMPTS_OF_ALL)
        self._known: dict[tuple[str, str], None] = {}  # in the order of the last login

    def wait_s(self, name: str, address: str = "") -> float:
        """Return for how many seconds no password of this name is checked here; 0: none."""
        with self._lock:
            waits = [self._pairs.wait_until_s((name, address))]
            if (name, address) not in self._known:
                waits += [self._names.wait_until_s(name), self._addresses.wait_until_s(address)]
            return max(0.0, max(waits) - self._clock())

    def record(self, name: str, succeeded: bool, address: str = "") -> None:
        """Count a failed login, or forget the failed ones of a name here after a good login."""
        now_s, pair = self._clock(), (name, address)
        with self._lock:
            if succeeded:
                self._pairs.forget(pair)
                self._known.pop(pair, None)
                if address:
                    self._known[pair] = None
                while len(self._known) > MAX_KEYS:
                    self._known.pop(next(iter(self._known)))
                return
            self._pairs.record(pair, now_s)
            self._names.record(name, now_s)
            if address:
                self._addresses.record(address, now_s)
