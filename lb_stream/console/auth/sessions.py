"""Sessions and failed logins, in memory: a console that restarts has none."""

from __future__ import annotations

import hmac
import secrets
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

MAX_IDLE_S = 8 * 3600.0
"""A session without a request for this long ends."""
MAX_AGE_S = 24 * 3600.0
MAX_SESSIONS = 10_000
FREE_ATTEMPTS = 5
"""Failed logins of a name before it must wait; each further one doubles the wait."""
MAX_WAIT_S = 60.0
MAX_NAMES = 10_000


@dataclass(slots=True)
class Session:
    """One login. Times are the monotonic clock's, in s."""

    name: str
    begun_s: float
    used_s: float


@dataclass(frozen=True, slots=True)
class FailedLogins:
    """Failed logins of a name: how many, and the time (s) until which the name must wait."""

    count: int = 0
    wait_until_s: float = 0.0


class Sessions:
    """The sessions by their tokens. Only the user's cookie and this object have a token.

    Any thread may call.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock, self._lock = clock, threading.Lock()
        self._secret = secrets.token_bytes(32)
        self._open: dict[str, Session] = {}

    def begin(self, name: str) -> str:
        """Begin a session of a user, and return its token."""
        token, now_s = secrets.token_urlsafe(32), self._clock()
        with self._lock:
            self._open = {
                token: session
                for token, session in self._open.items()
                if not self._has_ended(session, now_s)
            }
            while len(self._open) >= MAX_SESSIONS:
                self._open.pop(min(self._open, key=lambda token: self._open[token].used_s))
            self._open[token] = Session(name, now_s, now_s)
        return token

    def find_user(self, token: str) -> str | None:
        """Return the name of a session's user. None: no session has the token, or it has ended."""
        now_s = self._clock()
        with self._lock:
            session = self._open.get(token)
            if session is None or self._has_ended(session, now_s):
                self._open.pop(token, None)
                return None
            session.used_s = now_s
            return session.name

    def end(self, token: str) -> None:
        """End a session."""
        with self._lock:
            self._open.pop(token, None)

    def csrf_token(self, key: str) -> str:
        """Return what the forms of a session (or user) must send; other sites can't know it."""
        return hmac.new(self._secret, key.encode(), "sha256").hexdigest()

    def is_csrf_token(self, key: str, given: str) -> bool:
        """Return whether a form's token is that of a session (or user)."""
        return hmac.compare_digest(self.csrf_token(key).encode(), given.encode())

    @staticmethod
    def _has_ended(session: Session, now_s: float) -> bool:
        return now_s - session.used_s >= MAX_IDLE_S or now_s - session.begun_s >= MAX_AGE_S


class LoginAttempts:
    """Counts the failed logins of each name, and makes names with many of them wait.

    Any thread may call.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock, self._lock = clock, threading.Lock()
        self._failed: dict[str, FailedLogins] = {}

    def wait_s(self, name: str) -> float:
        """Return for how many seconds no password of this name is checked; 0: none."""
        with self._lock:
            wait_until_s = self._failed.get(name, FailedLogins()).wait_until_s
            return max(0.0, wait_until_s - self._clock())

    def record(self, name: str, succeeded: bool) -> None:
        """Count a failed login, or forget the failed ones after a successful login."""
        now_s = self._clock()
        with self._lock:
            before = self._failed.pop(name, FailedLogins())
            if succeeded:
                return
            count = before.count + 1
            beyond = count - FREE_ATTEMPTS
            wait_s = min(MAX_WAIT_S, 2.0**beyond) if beyond >= 0 else 0.0
            self._failed[name] = FailedLogins(count, now_s + wait_s)
            while len(self._failed) > MAX_NAMES:
                self._failed.pop(next(iter(self._failed)))
