"""What `--suggest` searches: bounds and choices, checked by the settings' own models."""

from pathlib import Path

import pytest

from lb_stream.backtest.search_space import FOR_ALL, SPACES, Choices, ValueRange, read_space
from lb_stream.contracts.keys import SettingError
from lb_stream.core.shedding import shedder
from lb_stream.sim.simulation import Policy, read_policy
from tests.support.wordings import check_wording

AVG = Policy("AvgShedder", {"shedding_strategy": "AvgShedder"})


def test_bounds_and_choices_are_of_their_settings_types_under_our_names() -> None:
    given = (
        "hit_count_low=1..12",
        "max_unload_ratio=0.1..0.5",
        "avg_target_key=name|value",
        "loadBalancerSheddingIntervalMinutes=1..5",
    )
    space = read_space(AVG, given)
    assert space.parts == {
        "hit_count_low": ValueRange(1, 12, whole=True),
        "max_unload_ratio": ValueRange(0.1, 0.5, whole=False),
        "avg_target_key": Choices({"name": "name", "value": "value"}),
        "shedding_interval_ms": ValueRange(60_000, 300_000, whole=True),
    }
    assert space.base_values == {
        "hit_count_low": 8,
        "max_unload_ratio": 0.2,
        "avg_target_key": "value",
        "shedding_interval_ms": 60_000,
    }


def test_a_wide_range_is_searched_by_ratio() -> None:
    assert ValueRange(10, 1_000, whole=True).by_ratio
    assert not ValueRange(10, 999, whole=True).by_ratio
    assert not ValueRange(0, 1_000, whole=True).by_ratio


def test_a_value_that_is_tried_has_few_digits_and_stays_within_its_bounds() -> None:
    assert ValueRange(1.2345, 20.0, whole=False).to_value(7.283641928) == 7.28
    assert ValueRange(1.2345, 20.0, whole=False).to_value(1.2345) == 1.2345
    assert ValueRange(1, 4_321, whole=True).to_value(4_320) == 4_320.0
    assert ValueRange(1, 10**7, whole=True).to_value(1_234_567) == 1_230_000
    assert isinstance(ValueRange(1, 10**7, whole=True).to_value(1_234_567), int)


def test_only_what_differs_from_the_policy_is_a_change_and_the_rest_stays(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(
        '[balancer]\nloadBalancerLoadSheddingStrategy = "AvgShedder"\nhit_count_low = '
        "4\nmin_dwell_ms = 5\n"
    )
    space = read_space(read_policy(str(file)), ["hit_count_low=1..12", "hit_count_high=1|2"])
    assert space.start() == {"hit_count_low": 4, "hit_count_high": "2"}
    assert space.changes({"hit_count_low": 4, "hit_count_high": "2"}) == {}
    changes = space.changes({"hit_count_low": 4, "hit_count_high": "1"})
    tried = space.policy(changes, 7)
    assert (tried.name, changes) == ("mine 7", {"hit_count_high": 1})
    assert tried.settings == {
        "shedding_strategy": "AvgShedder",
        "hit_count_low": 4,
        "min_dwell_ms": 5,
        "hit_count_high": 1,
    }


def test_a_policy_outside_of_the_space_is_tried_besides() -> None:
    space = read_space(AVG, ["hit_count_low=1..3"])
    assert space.start() is None
    assert (space.trials(48), space.trials(3)) == (4, 3)
    assert read_space(AVG, ["hit_count_low=1..8"]).trials(48) == 8


@pytest.mark.parametrize("name", shedder.names)
def test_each_shedder_has_a_space_around_its_defaults(name: str) -> None:
    space = read_space(read_policy(name))
    assert space.parts.keys() == SPACES[name].keys() | FOR_ALL.keys()
    assert space.start() is not None


def test_the_page_tells_what_is_searched_by_default() -> None:
    page = (Path(__file__).parents[3] / "docs" / "backtest.md").read_text()
    for name, parts in {**SPACES, "every shedder": FOR_ALL}.items():
        told = ", ".join(f"`{setting}={text}`" for setting, text in parts.items())
        assert f"| {name} | {told} |" in page.replace("\\|", "|")


def test_a_setting_of_another_strategy_is_searched_together_with_that_strategy() -> None:
    strategy = "shedding_strategy=ThresholdShedder|AvgShedder"
    space = read_space(read_policy("ThresholdShedder"), [strategy, "hit_count_low=1..12"])
    assert space.base_values == {"shedding_strategy": "ThresholdShedder", "hit_count_low": 8}


@pytest.mark.parametrize(
    "searched",
    [
        "hit_count=1..5",
        "max_unload_ratio=0..1.5",
        "hit_count_low=1..2.5",
        "hit_count_low=5..1",
        "hit_count_low=5..5",
        "hit_count_low=5",
        "hit_count_low=",
        "hit_count_low",
        "avg_target_key=name..value",
        "avg_target_key=name|size",
        "placement_strategy=AvgShedder|Nowhere",
        "threshold_percent=5..20",
        "namespace_max_bundles=5..20",
        "short_samples=inf..nan",
        "max_unload_ratio=nan..1",
    ],
)
def test_what_can_not_be_searched_is_told_with_its_name_and_what_was_expected(
    searched: str,
) -> None:
    with pytest.raises(SettingError) as error:
        read_space(AVG, [searched])
    check_wording(str(error.value))
    assert "\n" not in str(error.value)


def test_a_setting_is_searched_once_whichever_way_it_is_spelt() -> None:
    with pytest.raises(SettingError) as error:
        read_space(AVG, ["max_unload_ratio=0.1..0.2", "maxUnloadPercentage=0.3..0.4"])
    check_wording(error.value)


def test_a_policy_that_sheds_nothing_has_nothing_to_search() -> None:
    with pytest.raises(SettingError) as error:
        read_space(read_policy("none"))
    check_wording(error.value)
