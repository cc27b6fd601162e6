"""Sessions end, and a CSRF token belongs to one of them."""

from __future__ import annotations

from lb_stream.console.auth.sessions import MAX_AGE_S, MAX_IDLE_S, Sessions


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
