"""What `lbctl backtest --suggest` refuses at once, shows and writes."""

import json
from pathlib import Path
from typing import Any

import pytest

from lb_stream.backtest.suggest import CHOICES
from lb_stream.cli.backtest.suggestion import Choose, require_possible, show
from lb_stream.cli.shared.output import CommandError
from lb_stream.settings.load import load_settings
from lb_stream.sim.simulation import read_policy
from tests.support.lbctl_runner import lbctl
from tests.support.wordings import check_wording

SETTINGS = {
    "shedding_strategy": "AvgShedder",
    "shedding_excluded_namespaces": ["t/a"],
    "memory_weight": None,
}


def one(number: int, imbalance: float, moves: int, **changes: Any) -> dict[str, Any]:
    """A trial, as the program tells of it."""
    measures = {
        "max_over_bound_median": imbalance,
        "moves": moves,
        "client_seconds_lost": 1234.5,
        "violation_count": 0,
    }
    return {
        "number": number,
        "policy": f"mine {number}",
        "changes": changes,
        "settings": SETTINGS | changes,
        "measures": measures,
    }


RESULT: dict[str, Any] = {
    "run": "0123456789abcdef",
    "rows": [],
    "suggestion": {
        "searched": ["hit_count_low"],
        "trials": 48,
        "failed": 1,
        "start": one(0, 1.25, 8),
        "front": [
            one(7, 1.01, 5, hit_count_low=3, max_unload_ratio=0.5),
            one(4, 1.1, 2, lower_boundary=True),
        ],
        "chosen": 7,
        "why": "the fewest moves within 5 % of the least imbalance",
    },
}


def test_the_front_is_a_table_with_the_policy_it_began_with_and_the_chosen_one_marked(
    capsys: pytest.CaptureFixture[str],
) -> None:
    show(RESULT, None, json=False)
    out, err = capsys.readouterr()
    cells = [line.split() for line in out.splitlines() if line[:1].isdigit()]
    assert [row[:2] for row in cells] == [["0", "1.250"], ["7", "chosen"], ["4", "1.100"]]
    told = [line.rsplit("  ", 1)[-1].strip() for line in map(str.rstrip, out.splitlines())]
    assert told[2:] == [
        "as it is",
        "hit_count_low = 3",
        "max_unload_ratio = 0.5",
        "lower_boundary = true",
    ]
    assert "rules broken" not in out
    assert (
        "2 of 48 policies that no other one beats, 1 failed; all are rows of backtests, run "
        "0123456789abcdef\n" in err
    )
    assert "chosen: 7, the fewest moves within 5 % of the least imbalance\n" in err


def test_rules_that_were_broken_are_told(capsys: pytest.CaptureFixture[str]) -> None:
    start = one(0, 1.25, 8) | {"measures": one(0, 1.25, 8)["measures"] | {"violation_count": 17}}
    show(RESULT | {"suggestion": RESULT["suggestion"] | {"start": start}}, None, json=False)
    out = capsys.readouterr().out
    assert "rules broken" in out and " 17 " in out


def test_a_policy_that_nobody_beats_is_in_the_table_once(
    capsys: pytest.CaptureFixture[str],
) -> None:
    start = one(0, 1.0, 0)
    show(
        RESULT
        | {"suggestion": RESULT["suggestion"] | {"start": start, "front": [start], "chosen": 0}},
        None,
        json=False,
    )
    rows = [line.split() for line in capsys.readouterr().out.splitlines() if line[:1].isdigit()]
    assert rows == [["0", "chosen", "1.000", "0", "1,234.5", "as", "it", "is"]]


def test_json_is_one_object_with_the_front(capsys: pytest.CaptureFixture[str]) -> None:
    show(RESULT, None, json=True)
    out, err = capsys.readouterr()
    assert json.loads(out) == {"run": RESULT["run"], **RESULT["suggestion"]}
    assert err == ""


def test_the_chosen_settings_are_a_file_that_policies_and_the_job_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "better.toml"
    show(RESULT, file, json=True)
    assert str(file) in capsys.readouterr().err
    wanted = {
        "shedding_strategy": "AvgShedder",
        "shedding_excluded_namespaces": ("t/a",),
        "hit_count_low": 3,
        "max_unload_ratio": 0.5,
    }
    assert read_policy(str(file)).settings == wanted
    assert load_settings(file, environment={}).of_cluster("eu-1") == wanted
    said = [line for line in file.read_text().splitlines() if line.startswith("#")]
    assert said[0].endswith(
        "run 0123456789abcdef: the fewest moves within 5 % of the least imbalance."
    )
    assert "# max/bound: 1.010, was 1.250" in said


def test_where_every_trial_failed_the_first_error_is_told() -> None:
    made = RESULT["suggestion"] | {"chosen": None, "front": [], "trials": 3}
    with pytest.raises(CommandError) as error:
        show(
            {"run": "x", "rows": [{"error": "Traceback\nSettingError: no"}], "suggestion": made},
            None,
            json=False,
        )
    check_wording(error.value)


@pytest.mark.parametrize(
    ("name", "suggest", "said"),
    [
        ("better.toml", False, "--out is for --suggest"),
        ("better.conf", True, "ends with .toml"),
        ("there.toml", True, "isn't there yet"),
        ("nowhere/better.toml", True, "in a folder that is"),
    ],
)
def test_a_file_that_can_not_be_written_is_told_before_the_long_part(
    name: str, suggest: bool, said: str, tmp_path: Path
) -> None:
    (tmp_path / "there.toml").touch()
    with pytest.raises(CommandError, match=said) as error:
        require_possible(suggest, [read_policy("AvgShedder")], [], tmp_path / name)
    assert error.value.code == 2


def test_the_ways_to_choose_are_those_of_the_search() -> None:
    assert [str(way) for way in Choose] == sorted(CHOICES, key=list(Choose).index)
    assert len(Choose) == len(CHOICES)


@pytest.mark.parametrize(
    "arguments",
    [
        ("--suggest", "--search", "hit_count_low=12..1"),
        ("--search", "hit_count_low=1..12"),
        ("--policy", "none", "--suggest"),
    ],
)
def test_a_search_that_can_not_be_is_told_in_a_line_before_spark_starts(
    arguments: tuple[str, ...], tmp_path: Path
) -> None:
    result = lbctl("backtest", "--policy", "AvgShedder", *arguments, cwd=tmp_path)
    assert result.code == 2
    assert len(result.err.splitlines()) == 1
    check_wording(result.err)
