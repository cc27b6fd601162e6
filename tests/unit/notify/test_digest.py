"""Who is told what, and when: grouping, pace, repetition, ends, quiet hours.

The clock is a number.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, get_args

import pytest

from lb_stream.contracts.settings import Event, NotifySettings
from lb_stream.notify.messages import build_body, build_title
from lb_stream.notify.open_events import (
    JOB_EVENTS,
    Key,
    OpenEvent,
    drop_resolved,
    update_open_events,
)
from lb_stream.notify.schedule import (
    EVENTS,
    Message,
    TargetState,
    find_next_message,
    is_quiet,
    record_accepted,
    record_refused,
)
from lb_stream.query.screens.health_events import HealthEvent, HealthEvents
from lb_stream.query.wording import EVENT_HEADLINES
from lb_stream.settings.secrets import remember_secrets
from tests.support.wordings import check_wording

S, MIN, HOUR = 1_000, 60_000, 3_600_000
START = 1_767_225_600_000  # 2026-01-01, midnight, UTC
RULES = NotifySettings()


def dead(broker: str, cluster: str = "eu-1") -> HealthEvent:
    return HealthEvent(
        "broker_dead", cluster, broker, f"{cluster}: {broker} is silent", "see to it"
    )


DOWN = HealthEvent("job_down", "", "", "the job is not running", "start it")
UNEVEN = HealthEvent("imbalance", "eu-1", "", "eu-1: uneven", "look")
SUSPENDED = HealthEvent("cluster_suspended", "eu-1", "", "eu-1 is SUSPENDED", "look")


@dataclass
class Clockwork:
    """One target that takes all, looked after every second.

    `heard`: (seconds since the start, title, lines of the body).
    """

    rules: NotifySettings = RULES
    events: tuple[Event, ...] = EVENTS
    now_ms: int = START
    opened: dict[Key, OpenEvent] = field(default_factory=dict)
    state: TargetState = field(default_factory=TargetState)
    messages: list[Message] = field(default_factory=list)

    def go(self, seconds: int, *troubles: HealthEvent, **more: Any) -> list[Message]:
        """So many seconds in which there are these troubles. Returns the messages of that time."""
        before = len(self.messages)
        for _ in range(seconds):
            self.now_ms += S
            self.opened = update_open_events(
                self.opened, HealthEvents(self.now_ms, troubles, **more), self.rules
            )
            while message := find_next_message(
                self.state, self.opened, self.rules, self.events, self.now_ms
            ):
                self.state = record_accepted(self.state, message, self.rules)
                self.messages.append(message)
            self.opened = drop_resolved(self.opened, self.state.keys)
        return self.messages[before:]


def subjects(some: Iterable[OpenEvent]) -> list[str]:
    return [one.event.subject for one in some]


def test_troubles_of_one_event_are_one_message_after_a_while() -> None:
    clock = Clockwork()
    assert clock.go(29, dead("b-1")) == []
    assert clock.go(1, dead("b-1"), dead("b-2"), dead("b-9", "us-1")) == []
    (message,) = clock.go(60, dead("b-1"), dead("b-2"), dead("b-9", "us-1"))
    assert message.at_ms == START + 31 * S and subjects(message.new) == ["b-1", "b-2", "b-9"]
    check_wording(build_title(message, "lb"))
    assert build_body(message).splitlines() == [
        "- eu-1: b-1 is silent: see to it",
        "- eu-1: b-2 is silent: see to it",
        "- us-1: b-9 is silent: see to it",
    ]


def test_what_passes_before_it_is_told_is_never_told() -> None:
    clock = Clockwork()
    assert clock.go(20, dead("b-1")) + clock.go(400) == []
    assert clock.opened == {}


def test_more_of_an_event_waits_for_the_pace_and_says_what_lasts() -> None:
    clock = Clockwork()
    clock.go(40, dead("b-1"))
    assert clock.go(290, dead("b-1"), dead("b-2")) == []
    (message,) = clock.go(20, dead("b-1"), dead("b-2"))
    assert (subjects(message.new), subjects(message.lasting)) == (["b-2"], ["b-1"])
    assert build_body(message).splitlines() == [
        "- eu-1: b-2 is silent: see to it",
        "lasting:",
        "- eu-1: b-1 is silent, for 5 min",
    ]


def test_what_lasts_is_told_again_at_a_set_pace_or_never() -> None:
    clock = Clockwork(RULES.model_copy(update={"repeat_interval_ms": 600 * S}))
    told = clock.go(1900, DOWN)
    assert [(message.at_ms - START) // S for message in told] == [31, 631, 1231, 1831]
    check_wording(build_title(told[1], "lb"))
    check_wording(build_body(told[1]))
    assert len(Clockwork(RULES.model_copy(update={"repeat_interval_ms": 0})).go(20_000, DOWN)) == 1


def test_the_end_is_told_once_when_it_is_one_and_flapping_is_no_end() -> None:
    clock = Clockwork()
    clock.go(400, DOWN)
    assert clock.go(59) + clock.go(60, DOWN) == [], "a minute without it makes an end"
    assert clock.go(80) == []
    (message,) = clock.go(600)
    assert (message.new, message.lasting) == ((), ())
    check_wording(build_title(message, "lb"))
    check_wording(build_body(message))
    assert build_title(message, "lb", same=True) == "lb: the job is down", (
        "on-call services find their incident by it"
    )
    assert clock.opened == {}


def test_an_end_waits_for_the_ends_of_others_and_one_message_tells_all() -> None:
    clock = Clockwork()
    clock.go(400, dead("b-1"), dead("b-2"), dead("b-3"))
    assert clock.go(20, dead("b-2"), dead("b-3")) == []
    (message,) = clock.go(600, dead("b-3"))
    assert (subjects(message.ended), subjects(message.lasting)) == (["b-1", "b-2"], ["b-3"])
    check_wording(build_title(message, "lb"))


def test_a_broker_that_counts_as_gone_is_not_said_to_be_well() -> None:
    clock = Clockwork()
    clock.go(400, dead("b-1"))
    (message,) = clock.go(200, endings={dead("b-1").key: "counted as gone"})
    check_wording(build_body(message))


def test_a_blind_look_adds_its_own_trouble_and_changes_nothing_else() -> None:
    clock, blind = (
        Clockwork(),
        HealthEvent("job_unknown", "", "tables", "tables can't be looked at", "look"),
    )
    clock.go(40, DOWN, dead("b-1"))
    (message,) = clock.go(600, blind, is_unreadable=True)
    assert (message.name, subjects(message.new)) == ("job_unknown", ["tables"])
    assert [build_title(message, "lb") for message in clock.go(600, DOWN, dead("b-1"))] == [
        "lb: resolved: whether the job runs is not known"
    ]


def test_a_look_that_fails_does_not_make_an_imbalance_begin_anew_and_none_ripens_unseen() -> None:
    clock = Clockwork()
    clock.go(850, UNEVEN)
    assert clock.go(100, is_unreadable=True) == []
    (message,) = clock.go(60, UNEVEN)
    assert (message.name, message.at_ms) == ("imbalance", START + 951 * S)


def test_moves_that_are_not_tried_any_more_are_not_said_to_be_well() -> None:
    clock = Clockwork()
    clock.go(
        40,
        HealthEvent(
            "moves_failing",
            "eu-1",
            "t/n/a",
            "eu-1: the last 3 decisions to move t/n/a failed",
            "look",
        ),
    )
    (message,) = clock.go(600)
    check_wording(build_body(message))


def test_a_clock_that_was_put_back_silences_nobody() -> None:
    clock = Clockwork()
    clock.go(400, DOWN, dead("b-1"))
    clock.state = record_refused(clock.state, clock.now_ms)
    clock.now_ms -= 400 * 24 * HOUR
    told = clock.go(700, DOWN, dead("b-1"), dead("b-2"))
    assert {"b-2"} <= {name for message in told for name in subjects(message.new)}
    told = clock.go(700)
    assert [build_title(message, "lb") for message in told] == [
        "lb: resolved: the job is down",
        "lb: resolved: brokers are silent",
    ]


@pytest.mark.parametrize(
    ("at", "quiet"),
    [
        ("2026-03-28T20:30Z", False),
        ("2026-03-28T21:30Z", True),
        ("2026-03-29T05:30Z", False),
        ("2026-03-29T19:30Z", False),
        ("2026-03-29T20:30Z", True),
    ],
)
def test_quiet_hours_begin_by_the_clock_on_the_wall_in_winter_and_in_summer(
    at: str, quiet: bool
) -> None:
    rules = RULES.model_copy(update={"quiet_windows": ("0 22 * * * 8h Europe/Berlin",)})
    assert is_quiet(rules, round(datetime.fromisoformat(at).timestamp() * 1000)) is quiet


def test_secrets_that_an_error_holds_are_not_told() -> None:
    remember_secrets(("kafka", "options", "sasl_plain_password"), "hunter2222")
    (message,) = Clockwork().go(
        60,
        HealthEvent(
            "cluster_failing",
            "eu-1",
            "",
            "eu-1's last round failed (login with hunter2222)",
            "look",
        ),
    )
    assert "(login with ***)" in build_body(message)


def test_an_imbalance_counts_once_it_has_lasted() -> None:
    clock = Clockwork()
    assert clock.go(899, UNEVEN) + clock.go(70) + clock.go(900, UNEVEN) == []
    (message,) = clock.go(60, UNEVEN)
    assert message.name == "imbalance"


def test_what_a_dead_job_does_not_tell_is_neither_new_nor_over() -> None:
    clock = Clockwork()
    clock.go(40, dead("b-1"))
    told = clock.go(2000, DOWN, dead("b-2"), UNEVEN, is_stale=True)
    assert [message.name for message in told] == ["job_down"]
    told = clock.go(600, dead("b-1"))
    assert [build_title(message, "lb") for message in told] == ["lb: resolved: the job is down"]


def test_an_imbalance_that_was_not_seen_to_last_begins_anew_after_the_job() -> None:
    clock = Clockwork()
    clock.go(600, UNEVEN)
    assert [
        message.name for message in clock.go(900, DOWN, is_stale=True) + clock.go(600, UNEVEN)
    ] == [
        "job_down",
        "job_down",
    ]


def test_a_suspended_cluster_keeps_what_was_known_of_its_brokers() -> None:
    clock = Clockwork()
    clock.go(40, dead("b-1"))
    told = clock.go(600, SUSPENDED, suspended=frozenset({"eu-1"}))
    assert [message.name for message in told] == ["cluster_suspended"]
    told = clock.go(200, dead("b-1"))
    titles = [build_title(message, "lb") for message in told]
    assert titles == ["lb: resolved: clusters are suspended"]


def test_in_quiet_hours_only_the_urgent_is_told_and_the_rest_when_they_end() -> None:
    clock = Clockwork(RULES.model_copy(update={"quiet_windows": ("0 0 * * * 1h UTC",)}))
    assert [message.name for message in clock.go(3590, DOWN, dead("b-1"))] == ["job_down"]
    (message,) = clock.go(60, DOWN, dead("b-1"))
    assert message.name == "broker_dead" and message.at_ms == START + HOUR


def test_a_target_has_so_many_messages_an_hour_and_the_last_one_says_so() -> None:
    rules = RULES.model_copy(
        update={"max_messages_per_hour": 2, "min_message_interval_ms": 0, "group_wait_ms": 0}
    )
    clock = Clockwork(rules)
    told = (
        clock.go(1, dead("b-1"))
        + clock.go(600, dead("b-1"), dead("b-2"))
        + clock.go(60, *(dead(f"b-{n}") for n in range(1, 9)))
    )
    assert [message.is_last for message in told] == [False, True]
    assert "max_messages_per_hour" in build_body(told[1]).splitlines()[-1]
    (message,) = clock.go(3600 - 660, *(dead(f"b-{n}") for n in range(1, 9)))
    assert (
        subjects(message.new) == [f"b-{n}" for n in range(3, 9)]
        and message.at_ms == START + 3601 * S
    )


def test_a_target_hears_of_its_events_only_and_the_gravest_comes_first() -> None:
    assert [
        message.name for message in Clockwork(events=("broker_dead",)).go(60, DOWN, dead("b-1"))
    ] == ["broker_dead"]
    assert [message.name for message in Clockwork().go(60, dead("b-1"), DOWN)] == [
        "job_down",
        "broker_dead",
    ]


def test_a_target_that_fails_is_tried_again_ever_more_seldom_with_what_is_so_then() -> None:
    clock = Clockwork()
    clock.go(30, DOWN)
    pauses, told = [], TargetState()
    for _ in range(8):
        told = record_refused(told, START)
        pauses.append((told.retry_ms - START) // S)
    assert pauses == [30, 60, 120, 240, 480, 600, 600, 600]
    clock.state = replace(told, retry_ms=clock.now_ms + 100 * S)
    (message,) = clock.go(120, DOWN)
    assert message.at_ms == START + 130 * S and clock.state.failures == 0


@pytest.mark.parametrize("hostile", ["b\n- eu-1: all is well", "b\x1b[2J", "b\u202e", "x" * 5_000])
def test_a_name_adds_no_line_and_nothing_unseen(hostile: str) -> None:
    (message,) = Clockwork().go(60, dead(hostile))
    lines = build_body(message).splitlines()
    assert len(lines) == 1 and lines[0].isprintable() and len(lines[0]) <= 400


def test_a_long_list_is_cut_and_counted() -> None:
    (message,) = Clockwork().go(60, *(dead(f"b-{n:03}") for n in range(100)))
    assert len(build_body(message).splitlines()) == 11 and build_body(message).endswith(
        "- and 90 more"
    )


def test_every_event_has_a_headline_and_a_place() -> None:
    assert EVENT_HEADLINES.keys() == set(get_args(Event)) and set(EVENTS) > JOB_EVENTS
