"""Disruption windows and freezes: what is open when, in which time zone, and what can't be one."""

from datetime import datetime
from zoneinfo import ZoneInfo

import pytest

from lb_stream.contracts.balancer import NamespaceConfig
from lb_stream.contracts.keys import SettingError
from lb_stream.core.config.windows import closed, zone_of
from lb_stream.settings.resolve import cluster_config

NIGHTS = "0 22 * * Mon-Fri 7h Europe/Berlin"


def ms(text: str, zone: str = "Europe/Berlin") -> int:
    """A local time in ms since the epoch."""
    return int(datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone)).timestamp() * 1000)


def until(at: str, *windows: str) -> int | None:
    """When it is open again; 0: it is open."""
    found = closed(NamespaceConfig(disruption_windows=windows), ms(at))
    return 0 if found is None else found.until_ms


@pytest.mark.parametrize(
    "at",
    ["2026-11-23 22:00", "2026-11-23 22:00:00.500", "2026-11-24 04:59:59.999", "2026-11-28 04:00"],
)
def test_a_window_is_open_from_its_time_on_for_its_length_past_midnight_too(at: str) -> None:
    assert until(at, NIGHTS) == 0


@pytest.mark.parametrize(
    ("at", "again"),
    [
        ("2026-11-23 21:59:59.999", "2026-11-23 22:00"),
        ("2026-11-24 05:00", "2026-11-24 22:00"),
        ("2026-11-28 05:00", "2026-11-30 22:00"),
    ],
)
def test_outside_of_it_nothing_moves_until_it_opens_again(at: str, again: str) -> None:
    assert until(at, NIGHTS) == ms(again)


def test_windows_go_by_the_clock_of_their_zone_in_summer_and_in_winter() -> None:
    assert until("2026-07-01 12:00", "0 22 * * * 1h Europe/Berlin") == ms("2026-07-01 20:00", "UTC")
    assert until("2026-12-01 12:00", "0 22 * * * 1h Europe/Berlin") == ms("2026-12-01 21:00", "UTC")
    assert until("2026-12-01 12:00", "0 22 * * * 1h") == ms("2026-12-01 22:00", "UTC"), (
        "UTC where no zone is said"
    )


def test_a_window_whose_time_the_clock_leaps_over_is_none_that_day() -> None:
    assert until("2026-03-29 03:30", "30 2 * * * 30min Europe/Berlin") == ms("2026-03-30 02:30")


def test_any_of_several_windows_will_do() -> None:
    assert until("2026-11-24 12:30", NIGHTS, "0 12 * * * 1h Europe/Berlin") == 0
    assert until("2026-11-24 13:00", NIGHTS, "0 12 * * * 1h Europe/Berlin") == ms(
        "2026-11-24 22:00"
    )


def test_a_freeze_holds_from_its_beginning_until_before_its_end_and_says_why() -> None:
    limits = NamespaceConfig(
        freezes=("2026-12-20 2027-01-02T06:00 Europe/Berlin end of the year",),
        disruption_windows=("* * * * * 1h",),
    )
    assert closed(limits, ms("2026-12-20") - 1) is None
    found = closed(limits, ms("2026-12-20"))
    assert found is not None
    assert (found.rule.name, found.until_ms, found.why) == (
        "frozen",
        ms("2027-01-02 06:00"),
        "end of the year",
    )
    assert closed(limits, ms("2027-01-02 06:00")) is None


def test_a_freeze_until_further_notice_has_no_end() -> None:
    found = closed(NamespaceConfig(freeze="new disks"), 0)
    assert found is not None
    assert (found.rule.name, found.until_ms, found.why) == ("frozen", None, "new disks")


def test_windows_may_be_one_text_with_semicolons_as_in_a_command() -> None:
    config = cluster_config(
        {"disruption_windows": f"{NIGHTS}; 0 12 * * Sat,Sun 30min", "namespace.t/n.freezes": ""}
    )
    assert config.balancer.disruption_windows == (NIGHTS, "0 12 * * Sat,Sun 30min")
    assert config.namespaces["t/n"].freezes == ()


@pytest.mark.parametrize(
    ("key", "text", "why"),
    [
        ("disruption_windows", "0 22 * * Mon-Fri", "it has 5 words"),
        ("disruption_windows", "0 25 * * * 1h", "Bad hour"),
        ("disruption_windows", "0 22 * * * 0h", "0h is no length such as 7h, 90min or 1h30min"),
        ("disruption_windows", "0 22 * * * soon", "soon is no length"),
        ("disruption_windows", "0 22 * * * 1h Europe/Nowhere", "Europe/Nowhere is no time zone"),
        ("disruption_windows", "0 22 * * * 1h ../../secret", "../../secret is no time zone"),
        (
            "namespace.t/n.freezes",
            "2026-12-20 2026-12-19 UTC backwards",
            "it ends before it begins",
        ),
        ("namespace.t/n.freezes", "tomorrow 2026-12-19 UTC", "Invalid isoformat string"),
        ("namespace.t/n.freezes", "2026-12-19", "it has 1 words"),
    ],
)
def test_what_is_none_is_refused_with_its_key_and_what_was_expected(
    key: str, text: str, why: str
) -> None:
    with pytest.raises(SettingError) as raised:
        cluster_config({key: [text]})
    assert (raised.value.key, raised.value.value) == (key, text)
    assert "as in '" in raised.value.expected
    assert why in raised.value.expected


def test_time_zones_are_the_packages_own_whatever_the_machine_has() -> None:
    assert zone_of("Europe/Berlin") is not ZoneInfo("Europe/Berlin")
    assert zone_of("UTC").key == "UTC"
