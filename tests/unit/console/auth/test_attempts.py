"""Wrong passwords make a name and an address wait, and nobody else for long."""

from __future__ import annotations

from lb_stream.console.auth.attempts import (
    FORGET_S,
    FREE_ATTEMPTS,
    FREE_ATTEMPTS_OF_ALL,
    MAX_KEYS,
    MAX_WAIT_S,
    LoginAttempts,
)


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


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


def test_an_address_that_tries_many_names_waits_and_no_other_address_does() -> None:
    attempts = LoginAttempts(Clock())
    for number in range(FREE_ATTEMPTS_OF_ALL):
        attempts.record(f"user-{number}", succeeded=False, address="10.0.0.1")
    assert attempts.wait_s("one-more", "10.0.0.1") > 0
    assert attempts.wait_s("one-more", "10.0.0.2") == attempts.wait_s("one-more", "") == 0


def test_a_name_that_many_addresses_try_waits_but_not_where_it_has_logged_in() -> None:
    clock = Clock()
    attempts = LoginAttempts(clock)
    attempts.record("alice", succeeded=True, address="10.0.0.9")
    for number in range(FREE_ATTEMPTS_OF_ALL * 10):
        attempts.record("alice", succeeded=False, address=f"10.0.1.{number}")
    assert attempts.wait_s("alice", "10.0.0.9") == 0
    assert attempts.wait_s("alice", "10.0.0.8") == MAX_WAIT_S, "and never longer"
    assert attempts.wait_s("bob", "10.0.0.8") == 0
    for _ in range(FREE_ATTEMPTS):
        attempts.record("alice", succeeded=False, address="10.0.0.9")
    assert attempts.wait_s("alice", "10.0.0.9") > 0, "its own failures count"


def test_failed_logins_are_forgotten_after_a_while() -> None:
    clock = Clock()
    attempts = LoginAttempts(clock)
    for _ in range(FREE_ATTEMPTS):
        attempts.record("alice", succeeded=False)
    clock.now += FORGET_S + MAX_WAIT_S
    attempts.record("alice", succeeded=False)
    assert attempts.wait_s("alice") == 0


def test_made_up_names_take_no_more_than_a_limited_memory() -> None:
    attempts = LoginAttempts(Clock())
    for number in range(MAX_KEYS + 50):
        attempts.record(f"user-{number}", succeeded=False, address=f"host-{number}")
        attempts.record(f"user-{number}", succeeded=True, address=f"host-{number}")
    counters = (attempts._pairs, attempts._addresses, attempts._names)
    assert all(len(counter._failed) <= MAX_KEYS for counter in counters)
    assert len(attempts._known) == MAX_KEYS
