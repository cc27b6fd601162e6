"""Rules of auto_approve: what each word asks for, and what is no rule."""

from datetime import UTC, datetime

import pytest

from lb_stream.contracts.keys import SettingError
from lb_stream.core.config.auto_approve import auto_approval
from lb_stream.settings.resolve import apply_overrides, cluster_config
from tests.support.wordings import check_wording


def at_ms(hour: int, minute: int = 0) -> int:
    """In winter, when Berlin is an hour ahead of UTC."""
    return int(datetime(2026, 1, 7, hour, minute, tzinfo=UTC).timestamp() * 1_000)


def allows(
    text: str, kind: str = "unload", reason: str = "Overloaded", mb: float = 1.0, now_ms: int = 0
) -> bool:
    rules = auto_approval(text)
    return rules.allows(kind, (reason, "above_average"), mb * 1e6, now_ms)


def test_each_condition_is_asked_for_and_all_of_them_must_hold() -> None:
    assert (
        allows("kind=move") and allows("kind=move", "transfer") and not allows("kind=move", "split")
    )
    assert allows("kind=split,move", "split") and not allows("kind=split")
    assert (
        allows("reason=OVERLOADED")
        and allows("reason=above_average,topics")
        and not allows("reason=topics")
    )
    assert allows("max_mb=1") and not allows("max_mb=0.9") and allows("max_mb=0", mb=0)
    assert (
        not allows("kind=move max_mb=0.5")
        and not allows("kind=split max_mb=5")
        and allows("kind=move max_mb=5")
    )


@pytest.mark.parametrize(
    ("hours", "inside", "outside"),
    [
        ("hours=8-18", (8, 17), (7, 18, 23)),
        ("hours=22-6", (22, 23, 0, 5), (6, 12, 21)),
        ("hours=8-18 zone=Europe/Berlin", (7, 16), (6, 17)),
    ],
)
def test_hours_are_whole_ones_of_a_zone_and_may_go_over_midnight(
    hours: str, inside: tuple[int, ...], outside: tuple[int, ...]
) -> None:
    assert all(allows(hours, now_ms=at_ms(hour, 59)) for hour in inside)
    assert not any(allows(hours, now_ms=at_ms(hour)) for hour in outside)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("kind=merge", "no kind"),
        ("kind", "no name=value"),
        ("kind=move kind=split", "kind is given twice"),
        ("size=3", "size is unknown"),
        ("max_mb=lots", "no number of MB/s"),
        ("max_mb=nan", "no number of MB/s"),
        ("hours=8", "not in the form 8-18"),
        ("hours=8-8", "not in the form 8-18"),
        ("hours=8-25", "not in the form 8-18"),
        ("per_hour=-1", "no whole number"),
        ("kind=move zone=UTC", "zone is given without hours"),
        ("hours=8-18 zone=Mars/Phobos", "no time zone"),
        ("zone=UTC", "it has no condition"),
    ],
)
def test_what_is_no_rule_is_refused_and_says_why(text: str, why: str) -> None:
    with pytest.raises(SettingError, match="auto_approve") as refused:
        cluster_config({"auto_approve": f"kind=move; {text}"})
    assert why in str(refused.value) and refused.value.value == text


def test_so_many_rules_that_each_decision_would_be_asked_of_all_are_refused() -> None:
    assert (
        len(
            cluster_config(
                {"auto_approve": [f"max_mb={number}" for number in range(50)]}
            ).balancer.auto_approve
        )
        == 50
    )
    with pytest.raises(SettingError, match="50 at most"):
        cluster_config({"auto_approve": [f"max_mb={number}" for number in range(51)]})


def test_a_dry_run_is_another_word_for_the_mode_and_beside_it_can_only_hold_back() -> None:
    modes = [
        cluster_config(given).balancer.mode
        for given in ({}, {"dry_run": True}, {"dry_run": False}, {"dry_run": "no"})
    ]
    assert modes == ["observe", "observe", "act", "act"]
    for dry_run, mode in ((True, "observe"), (False, "approve")):
        for given in (
            {"mode": "approve", "dry_run": dry_run},
            {"dry_run": dry_run, "mode": "approve"},
        ):
            assert cluster_config(given).balancer.mode == mode, "whatever their order"
    assert apply_overrides({"mode": "approve"}, {"dry_run": False}) == {"mode": "approve"}, (
        "the end of a dry run lifts no need for approval"
    )
    assert apply_overrides({"mode": "approve"}, {"mode": "act"}) == {"mode": "act"}, (
        "what was commanded lies over what was given"
    )
    assert apply_overrides({"mode": "observe"}, {"dry_run": False}) == {"mode": "act"}
    with pytest.raises(SettingError) as error:
        cluster_config({"dry_run": "perhaps"})
    check_wording(error.value)
    with pytest.raises(SettingError) as error:
        cluster_config({"mode": "ask"})
    check_wording(error.value)
