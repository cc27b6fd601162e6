"""What lets bundles move is the same, whether settings are read whole or only as far as that."""

from typing import Any

import pytest

from lb_stream.contracts.balancer import PROFILES, SHEDDER_PROFILES
from lb_stream.contracts.keys import SettingError
from lb_stream.settings.move_limits import resolve_move_limits
from lb_stream.settings.overrides import apply_overrides
from lb_stream.settings.resolve import cluster_config

WINDOW = "0 22 * * Mon-Fri 7h Europe/Berlin"
AVG = {"shedding_strategy": "AvgShedder", "placement_strategy": "AvgShedder"}
MOST = "max_moves_in_flight_per_broker"
LIMITS = ("mode", "disruption_windows", "freezes", "freeze", MOST)


@pytest.mark.parametrize(
    ("given", "commanded"),
    [
        ({}, {}),
        ({"mode": "act"}, {"dry_run": True}),
        ({"dry_run": "false"}, {}),
        ({"mode": "approve"}, {"dry_run": False}),
        ({"mode": "approve"}, {"mode": "act"}),
        ({"disruption_windows": WINDOW, "threshold_percent": 5}, {"freeze": "black friday"}),
        ({"freezes": ["2026-12-20 2027-01-02 UTC holidays"]}, {"freezes": []}),
        ({"freezes": ["2026-12-20 2027-01-02 UTC holidays"], MOST: "3"}, {}),
        (
            {"loadManagerClassName": "org.Other", "loadBalancerSheddingIntervalMinutes": 3},
            {MOST: 7},
        ),
        (
            {"namespace.shop/orders.freeze": "fair"},
            {"loadBalancerLoadSheddingStrategy": "org.Other"},
        ),
        *(({"profile": profile, **AVG}, {}) for profile in PROFILES),
    ],
)
def test_what_lets_bundles_move_is_what_the_whole_settings_say(
    given: dict[str, Any], commanded: dict[str, Any]
) -> None:
    found = resolve_move_limits(given, commanded)
    whole = cluster_config(apply_overrides(given, commanded)).balancer
    assert {name: getattr(found, name) for name in LIMITS} == {
        name: getattr(whole, name) for name in LIMITS
    }


def test_no_profile_changes_what_lets_bundles_move() -> None:
    of_shedders = [keys for shedders in SHEDDER_PROFILES.values() for keys in shedders.values()]
    profiles = [*PROFILES.values(), *of_shedders]
    assert {name for keys in profiles for name in keys}.isdisjoint(LIMITS)


def test_a_value_that_cannot_be_is_refused_in_the_same_words() -> None:
    given = {"max_moves_in_flight_per_broker": "many"}
    with pytest.raises(SettingError) as whole:
        cluster_config(given)
    with pytest.raises(SettingError) as part:
        resolve_move_limits(given, {})
    assert str(part.value) == str(whole.value)
