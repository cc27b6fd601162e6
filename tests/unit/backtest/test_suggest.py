"""The search for better settings, with trials that cost nothing."""

import json
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pytest

from lb_stream.backtest.search_space import read_space
from lb_stream.backtest.suggest import (
    BATCH,
    CONSTRAINT,
    OBJECTIVES,
    SuggestError,
    TriedPolicy,
    choose,
    describe_suggestion,
    find_front,
    require_space,
    search,
)
from lb_stream.sim.simulation import Policy, read_policy
from tests.support.wordings import check_wording

BASE = read_policy("ThresholdShedder")
THRESHOLD = ["threshold_percent=2..30"]


def found(
    number: int, imbalance: float, moves: float, seconds: float, broken: float = 0.0
) -> TriedPolicy:
    """A trial of these measures."""
    measures = dict(
        zip((*OBJECTIVES, CONSTRAINT), (imbalance, moves, seconds, broken), strict=True)
    )
    return TriedPolicy(number, Policy(f"ThresholdShedder {number}", {}), {}, measures)


class Plays:
    """Plays policies by arithmetic: the lower the threshold, the evener, and the more is moved.

    A history_ratio below 0.5 breaks a rule, one above 0.9 fails.
    """

    def __init__(self) -> None:
        self.batches: list[list[str]] = []

    def __call__(self, policies: Sequence[Policy]) -> Iterable[Mapping[str, Any]]:
        self.batches.append([policy.name for policy in policies])
        return [self.row(policy) for policy in reversed(policies)]

    def row(self, policy: Policy) -> dict[str, Any]:
        """The means of one policy."""
        settings = {"threshold_percent": 10, "history_ratio": 0.9, **policy.settings}
        threshold, ratio = float(settings["threshold_percent"]), float(settings["history_ratio"])
        values = (1 + threshold / 100, 300 / threshold, 1000 / threshold, float(ratio < 0.5))
        return {"policy": policy.name, "trials": 1, "failed": int(ratio > 0.9)} | dict(
            zip((*OBJECTIVES, CONSTRAINT), values, strict=True)
        )


def test_the_front_has_nobody_that_another_one_beats() -> None:
    some = [
        found(0, 1.2, 10, 5),
        found(1, 1.1, 20, 9),
        found(2, 1.2, 11, 5),
        found(3, 1.3, 10, 4),
        found(4, 1.3, 12, 9),
    ]
    assert [one.number for one in find_front(some)] == [1, 0, 3]


def test_of_equal_ones_the_first_is_in_the_front() -> None:
    assert [one.number for one in find_front([found(0, 1.2, 10, 5), found(1, 1.2, 10, 5)])] == [0]


def test_who_breaks_rules_is_beaten_by_everybody_who_breaks_fewer() -> None:
    some = [
        found(0, 1.0, 1, 1, broken=2),
        found(1, 1.5, 9, 9, broken=1),
        found(2, 1.4, 10, 9, broken=1),
    ]
    assert [one.number for one in find_front(some)] == [2, 1]
    assert [one.number for one in find_front([*some, found(3, 9, 99, 99)])] == [3]


def test_failed_trials_are_in_no_front() -> None:
    assert find_front([TriedPolicy(0, BASE, {})]) == []


@pytest.mark.parametrize(
    ("by", "within", "number", "why"),
    [
        ("moves", 5, 2, "the fewest moves within 5 % of the least imbalance"),
        (
            "client-seconds",
            5,
            1,
            "the fewest client-seconds lost within 5 % of the least imbalance",
        ),
        ("imbalance", 5, 0, "the least imbalance"),
        ("moves", 100, 3, "the fewest moves within 100 % of the least imbalance"),
        ("moves", 0, 0, "the fewest moves within 0 % of the least imbalance"),
    ],
)
def test_the_chosen_one_has_the_least_of_a_measure_among_the_nearly_evenest(
    by: str, within: float, number: int, why: str
) -> None:
    some = find_front(
        [found(0, 1.0, 50, 50), found(1, 1.03, 40, 5), found(2, 1.05, 9, 20), found(3, 1.2, 1, 30)]
    )
    chosen, told = choose(some, by, within)
    assert (chosen.number, told) == (number, why)


def test_the_search_begins_with_the_policy_itself_and_asks_for_some_at_a_time() -> None:
    plays = Plays()
    made = search(read_space(BASE, THRESHOLD), plays, 20, seed=0)
    assert [one.number for one in made] == list(range(20))
    assert [len(batch) for batch in plays.batches] == [BATCH, BATCH, 4]
    assert (plays.batches[0][:2], made[0].changes) == (
        ["ThresholdShedder", "ThresholdShedder 1"],
        {},
    )
    assert all(2 <= one.changes["threshold_percent"] <= 30 for one in made[1:])
    assert all(one.measures["policy"] == one.policy.name for one in made)


def test_nothing_is_played_twice_and_a_small_space_is_played_whole() -> None:
    plays = Plays()
    made = search(
        read_space(BASE, ["threshold_percent=5|10|20", "lower_boundary=false|true"]),
        plays,
        48,
        seed=0,
    )
    assert sum(map(len, plays.batches)) == len(made) == 6
    assert len({json.dumps(dict(one.changes)) for one in made}) == 6


def test_the_search_learns_from_what_it_is_told() -> None:
    """Of two settings only one matters, and only near 0.7: chance would bring a fifth of the second
    half there."""

    def play(policies: Sequence[Policy]) -> list[dict[str, Any]]:
        off = {
            policy.name: abs(policy.settings.get("history_ratio", 0.9) - 0.7) for policy in policies
        }
        return [
            {"policy": name, "failed": 0, CONSTRAINT: 0} | dict.fromkeys(OBJECTIVES, one)
            for name, one in off.items()
        ]

    made = search(
        read_space(BASE, ["history_ratio=0..1", "threshold_percent=2..30"]), play, 40, seed=0
    )
    late = [one.cost[0] for one in made[20:]]
    assert sum(off < 0.1 for off in late) > len(late) / 3


def test_rules_broken_and_trials_that_failed_steer_the_search_away() -> None:
    made = search(read_space(BASE, [*THRESHOLD, "history_ratio=0..1"]), Plays(), 40, seed=0)
    failed = [one for one in made if not one.measures]
    assert failed and all(one.changes["history_ratio"] > 0.9 for one in failed)
    assert all(one[CONSTRAINT] == 0 for one in find_front(made))
    broken = [bool(one.measures) and one[CONSTRAINT] > 0 for one in made]
    assert sum(broken[20:]) < sum(broken[:20])


def test_the_same_seed_finds_the_same_and_another_one_something_else() -> None:
    space = read_space(BASE)
    first, again, other = (
        json.dumps(describe_suggestion(space, search(space, Plays(), 16, seed), "moves", 5))
        for seed in (1, 1, 2)
    )
    assert first == again
    assert first != other


def test_what_is_suggested_does_not_hang_on_how_python_hashes() -> None:
    program = (
        "from tests.unit.backtest.test_suggest import *\n"
        "space = read_space(BASE)\n"
        "found = search(space, Plays(), 16, 1)\n"
        "print(json.dumps(describe_suggestion(space, found, 'moves', 5)))"
    )
    runs = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={"PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(runs) == 1 and "threshold_percent" in runs.pop()


def test_a_suggestion_tells_the_front_what_was_chosen_and_from_where_it_began() -> None:
    space = read_space(BASE, THRESHOLD)
    made = describe_suggestion(space, search(space, Plays(), 16, seed=0), "imbalance", 5)
    assert (made["searched"], made["trials"], made["failed"], made["why"]) == (
        ["threshold_percent"],
        16,
        0,
        "the least imbalance",
    )
    assert made["start"]["changes"] == {} and made["start"]["measures"]["moves"] == 30
    assert made["chosen"] == made["front"][0]["number"]
    chosen = made["front"][0]
    assert chosen["settings"]["threshold_percent"] == chosen["changes"]["threshold_percent"] < 10
    assert chosen["settings"]["shedding_strategy"] == "ThresholdShedder"


def test_where_every_trial_failed_nothing_is_chosen() -> None:
    space = read_space(read_policy("ThresholdShedder"), ["threshold_percent=5|10"])
    made = describe_suggestion(
        space, [TriedPolicy(0, BASE, {}), TriedPolicy(1, BASE, {})], "moves", 5
    )
    assert (made["chosen"], made["front"], made["failed"]) == (None, [], 2)


def test_a_search_is_around_one_policy_and_wanted() -> None:
    assert require_space(False, [BASE, BASE], []) is None
    with pytest.raises(SuggestError) as error:
        require_space(True, [BASE, BASE], [])
    check_wording(error.value)
    with pytest.raises(SuggestError) as error:
        require_space(False, [BASE], THRESHOLD)
    check_wording(error.value)


def test_without_the_optimiser_it_is_told_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lb_stream.backtest.suggest.find_spec", lambda _: None)
    with pytest.raises(SuggestError, match=r"pip install 'lb_stream\[suggest\]'"):
        require_space(True, [BASE], [])
