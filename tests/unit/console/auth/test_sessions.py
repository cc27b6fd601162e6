"""Sessions end, a CSRF token belongs to one of them, and wrong passwords make a name wait."""

from __future__ import annotations

from lb_stream.console.auth.sessions import (
    FREE_ATTEMPTS,
    MAX_AGE_S,
    MAX_IDLE_S,
    MAX_WAIT_S,
    LoginAttempts,
    Sessions,
)


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_session_ends_when_idle_after_a_day_and_on_logout() -> None:
    clock = Clock()
    sessions = Sessions(clock)
    idle, busy, ended = sessions.begin("alice"), sessions.begin("bob"), sessions.begin("carol")
    sessions.end(ended)
    assert [sessions.find_user(token) for token in (idle, busy, ended, "", "made up")] == [
        "alice",
        "bob",
        None,
        None,
        None,
    ]
    while clock.now < MAX_AGE_S - MAX_IDLE_S / 2:
        clock.now += MAX_IDLE_S / 2
        assert sessions.find_user(busy) == "bob"
    assert sessions.find_user(idle) is None
    clock.now = MAX_AGE_S
    assert sessions.find_user(busy) is None


def test_a_csrf_token_belongs_to_one_session_of_one_process() -> None:
    sessions = Sessions()
    token, other = sessions.begin("alice"), sessions.begin("alice")
    assert sessions.is_csrf_token(token, sessions.csrf_token(token))
    assert (
        not sessions.is_csrf_token(token, sessions.csrf_token(other))
        and not sessions.is_csrf_token(token, "")
        and not sessions.is_csrf_token(token, "é")
    )
    assert not Sessions().is_csrf_token(token, sessions.csrf_token(token))


def test_after_some_wrong_passwords_each_further_one_doubles_the_wait() -> None:
    clock = Clock()
    attempts, waits = LoginAttempts(clock), []
    for _ in range(FREE_ATTEMPTS + 8):
        attempts.record("alice", succeeded=False)
        waits.append(attempts.wait_s("alice"))
        clock.now += waits[-1]
    assert waits == [*[0.0] * (FREE_ATTEMPTS - 1), 1, 2, 4, 8, 16, 32, *[MAX_WAIT_S] * 3]
    assert attempts.wait_s("bob") == 0
    attempts.record("alice", succeeded=True)
    assert attempts.wait_s("alice") == 0
