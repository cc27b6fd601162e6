"""Who is logged in, in memory: a console that is started anew knows nobody."""

from __future__ import annotations

import hmac
import secrets
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

IDLE_S = 8 * 3600.0
"""A session that nobody has used for so long is over."""
LONGEST_S = 24 * 3600.0
MOST = 10_000
FREE_TRIES = 5
"""Wrong passwords of one name before each further one costs a wait, which doubles."""
LONGEST_WAIT_S = 60.0
MOST_NAMES = 10_000


@dataclass(slots=True)
class Session:
    """One login. Times are the monotonic clock's, s."""

    name: str
    begun: float
    used: float


class Sessions:
    """Tokens of those who have logged in.

    A token is in a cookie and nowhere else. Any thread may call.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock, self._lock = clock, threading.Lock()
        self._secret = secrets.token_bytes(32)
        self._open: dict[str, Session] = {}

    def begin(self, name: str) -> str:
        """Log somebody in; returns the token."""
        token, now = secrets.token_urlsafe(32), self._clock()
        with self._lock:
            self._open = {
                key: session for key, session in self._open.items() if self._lives(session, now)
            }
            while len(self._open) >= MOST:
                self._open.pop(min(self._open, key=lambda key: self._open[key].used))
            self._open[token] = Session(name, now, now)
        return token

    def name_of(self, token: str) -> str | None:
        """Whose session it is; None: it is none, or over."""
        now = self._clock()
        with self._lock:
            session = self._open.get(token)
            if session is None or not self._lives(session, now):
                self._open.pop(token, None)
                return None
            session.used = now
            return session.name

    def end(self, token: str) -> None:
        """Log out."""
        with self._lock:
            self._open.pop(token, None)

    def csrf_token(self, key: str) -> str:
        """What a form must bring back that was made for this session (or name): another site can't
        know it."""
        return hmac.new(self._secret, key.encode(), "sha256").hexdigest()

    def is_csrf_token(self, key: str, given: str) -> bool:
        """Whether a form was made for it."""
        return hmac.compare_digest(self.csrf_token(key).encode(), given.encode())

    @staticmethod
    def _lives(session: Session, now: float) -> bool:
        return now - session.used < IDLE_S and now - session.begun < LONGEST_S


class LoginAttempts:
    """Wrong passwords of each name: after a few of them one must wait. Any thread may call."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock, self._lock = clock, threading.Lock()
        self._wrong: dict[
            str, tuple[int, float]
        ] = {}  # name → how many, until when none is looked at

    def wait_s(self, name: str) -> float:
        """How long until a password for this name is looked at again; 0: now."""
        with self._lock:
            return max(0.0, self._wrong.get(name, (0, 0.0))[1] - self._clock())

    def note(self, name: str, right: bool) -> None:
        """What came of one."""
        now = self._clock()
        with self._lock:
            if right:
                self._wrong.pop(name, None)
                return
            count = self._wrong.pop(name, (0, 0.0))[0] + 1
            more = count - FREE_TRIES
            self._wrong[name] = count, now + (min(LONGEST_WAIT_S, 2.0**more) if more >= 0 else 0.0)
            while len(self._wrong) > MOST_NAMES:
                self._wrong.pop(next(iter(self._wrong)))
