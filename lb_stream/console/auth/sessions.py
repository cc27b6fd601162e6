"""Sessions, in memory: a console that restarts has none."""

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


@dataclass(slots=True)
class Session:
    """One login. Times are the monotonic clock's, in s.

    `groups`: those that the login named. `login`: what the file said of the user's login then.
    """

    name: str
    begun_s: float
    used_s: float
    groups: frozenset[str] = frozenset()
    login: str = ""


class Sessions:
    """The sessions by their tokens. Only the user's cookie and this object have a token.

    Any thread may call.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock, self._lock = clock, threading.Lock()
        self._secret = secrets.token_bytes(32)
        self._open: dict[str, Session] = {}

    def begin(self, name: str, groups: frozenset[str] = frozenset(), login: str = "") -> str:
        """Begin a session of a user, and return its token; see `Session`."""
        token, now_s = secrets.token_urlsafe(32), self._clock()
        with self._lock:
            self._open = {
                token: session
                for token, session in self._open.items()
                if not self._has_ended(session, now_s)
            }
            while len(self._open) >= MAX_SESSIONS:
                self._open.pop(min(self._open, key=lambda token: self._open[token].used_s))
            self._open[token] = Session(name, now_s, now_s, groups, login)
        return token

    def find_user(self, token: str) -> str | None:
        """Return the name of a session's user. None: no session has the token, or it has ended."""
        session = self.find(token)
        return None if session is None else session.name

    def find(self, token: str) -> Session | None:
        """Return a session. None: no session has the token, or it has ended."""
        now_s = self._clock()
        with self._lock:
            session = self._open.get(token)
            if session is None or self._has_ended(session, now_s):
                self._open.pop(token, None)
                return None
            session.used_s = now_s
            return session

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
