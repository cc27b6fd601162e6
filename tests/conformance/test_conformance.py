"""Every recorded decision of the reference that this project can make is made alike."""

import gzip
import io
import json
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import tests.conformance.adapters  # noqa: F401  registers them
from tests.conformance.__main__ import main
from tests.conformance.comparison import differences
from tests.conformance.registry import ADAPTERS, answer

DATA = Path(__file__).parent / "data"
SHOWN = 5
PROFILES = {"4.0.7": "pulsar-4.0", "4.2.4": "pulsar-4.2", "5.0.1": "pulsar-5.0"}
"""Release → the profile that decides as it does."""
FEWEST_CASES = 7_800
"""Of a release, all kinds together."""


def lines_of(path: str) -> list[dict[str, Any]]:
    """Return the lines of a file of `data`; none where there is no such file."""
    if not (DATA / path).exists():
        return []
    with gzip.open(DATA / path, "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


@cache
def recorded(kind: str, what: str) -> list[dict[str, Any]]:
    return lines_of(f"{kind}.{what}.jsonl.gz")


@cache
def answered(release: str, kind: str) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """Return each case of a kind that means something to a release, with its answer."""
    wanted = {line["id"]: line for line in recorded(kind, "decisions")}
    wanted |= {line["id"]: line for line in lines_of(f"{release}/{kind}.decisions.jsonl.gz")}
    cases = recorded(kind, "cases") + lines_of(f"since-4.2/{kind}.cases.jsonl.gz")
    pairs = [(case, wanted[case["id"]]) for case in cases if case["id"] in wanted]
    return [(case, line) for case, line in pairs if "leftOut" not in line]


KINDS = sorted({path.name.partition(".")[0] for path in DATA.rglob("*.cases.jsonl.gz")})


def _is_repeat(kind: str, release: str) -> bool:
    """Whether the release in the middle is asked what 4.0.7 is, and answers as it does."""
    asked_anew = (DATA / f"since-4.2/{kind}.cases.jsonl.gz").exists()
    return (
        release == "4.2.4"
        and not asked_anew
        and not lines_of(f"{release}/{kind}.decisions.jsonl.gz")
    )


@pytest.mark.parametrize(
    ("kind", "release"),
    [
        pytest.param(kind, release, marks=[pytest.mark.slow] if _is_repeat(kind, release) else [])
        for kind in KINDS
        for release in PROFILES
    ],
)
def test_every_case_of_a_kind_is_decided_as_the_release_did(kind: str, release: str) -> None:
    different = []
    for case, wanted in answered(release, kind):
        if found := [*differences(wanted, answer(case, PROFILES[release]))]:
            different.append(f"{case['id']}: {found[0]}")
    assert not different, f"{len(different)} differ:\n" + "\n".join(different[:SHOWN])


@pytest.mark.parametrize("release", PROFILES)
def test_thousands_of_cases_of_each_release_are_compared(release: str) -> None:
    assert sum(len(answered(release, kind)) for kind in KINDS) >= FEWEST_CASES


def test_every_adapter_has_recorded_cases() -> None:
    assert sorted(ADAPTERS) == KINDS


def run(
    lines: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> tuple[int, list[dict[str, Any]], str]:
    monkeypatch.setattr(sys, "stdin", io.StringIO("".join(f"{line}\n" for line in lines)))
    code = main([])
    streams = capsys.readouterr()
    return code, [json.loads(line) for line in streams.out.splitlines()], streams.err


def test_the_runner_answers_line_by_line_in_the_order_of_the_input(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    cases = recorded("threshold", "cases")[:3][::-1]
    code, answers, _ = run([json.dumps(case) for case in cases], monkeypatch, capsys)
    assert code == 0
    assert [line["id"] for line in answers] == [case["id"] for case in cases]
    assert all("result" in line for line in answers)


@pytest.mark.parametrize(
    ("case", "word"),
    [
        ({"id": 7, "kind": "fortune_telling"}, "fortune_telling"),
        (
            {"id": 7, "kind": "threshold", "config": {"loadBalancerNoSuchKey": 1}, "rounds": []},
            "loadBalancerNoSuchKey",
        ),
        ({"id": 7, "kind": "threshold", "config": {}}, "rounds"),
    ],
)
def test_a_case_that_cannot_be_answered_gets_an_error_and_the_next_one_its_result(
    case: dict[str, Any],
    word: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    code, (failed, next_one), _ = run(
        [json.dumps(case), json.dumps(recorded("threshold", "cases")[0])], monkeypatch, capsys
    )
    assert code == 0
    assert failed["id"] == 7
    assert word in failed["error"]
    assert "result" in next_one


@pytest.mark.parametrize("line", ["{not json", "[1]"])
def test_a_line_that_is_no_json_object_stops_the_runner_with_exit_code_2(
    line: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code, answers, error = run([line], monkeypatch, capsys)
    assert (code, answers) == (2, [])
    assert error.startswith("line 1")


def test_an_infinity_is_answered_as_the_string_that_the_format_asks_for() -> None:
    case = {
        "id": 1,
        "kind": "message_average",
        "maxSamples": 2,
        "samples": [[1e308, 0, 0, 0], [1e309, 0, 0, 0]],
    }
    assert answer(case)["result"][2]["msgThroughputIn"] == "Infinity"


Change = Callable[[dict[str, Any]], dict[str, Any]]
ANSWER = {
    "usage": {"b": 0.5},
    "unloads": [["x", "b"]],
    "percentUsage": {"cpu": 33.333332},
    "brokerOrder": ["b"],
    "n": 1,
    "flag": True,
}


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda a: a | {"usage": {"b": 0.5 * (1 + 1e-10)}}, id="a number within 1e-9"),
        pytest.param(
            lambda a: a | {"percentUsage": {"cpu": 33.3333320000001}},
            id="a percentage within one float32",
        ),
        pytest.param(lambda a: a | {"brokerOrder": []}, id="another order of ties"),
        pytest.param(lambda a: a | {"n": 1.0}, id="an integer written as a float"),
    ],
)
def test_the_comparison_takes_as_equal(change: Change) -> None:
    assert [*differences({"result": ANSWER}, {"result": change(ANSWER)})] == []


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda a: a | {"usage": {"b": 0.5 * (1 + 1e-8)}}, id="a number off by 1e-8"),
        pytest.param(
            lambda a: a | {"percentUsage": {"cpu": 33.33334}},
            id="a percentage off by more than a float32",
        ),
        pytest.param(lambda a: a | {"usage": {}}, id="a missing key"),
        pytest.param(lambda a: a | {"more": 1}, id="a key too many"),
        pytest.param(lambda a: a | {"unloads": []}, id="a missing entry"),
        pytest.param(lambda a: a | {"unloads": [["y", "b"]]}, id="another name"),
        pytest.param(lambda a: a | {"flag": 1}, id="a number for a flag"),
        pytest.param(lambda a: {"error": "no"}, id="an error for a result"),
    ],
)
def test_the_comparison_takes_as_different(change: Change) -> None:
    assert [*differences({"result": ANSWER}, {"result": change(ANSWER)})] != []


def test_an_expected_error_asks_for_any_error() -> None:
    assert [
        *differences({"id": 1, "error": "exception"}, {"id": 1, "error": "ValueError: other words"})
    ] == []
    assert [*differences({"id": 1, "error": "exception"}, {"id": 1, "result": []})] != []
    assert [*differences([{"error": "exception"}], [{"error": "x"}])] == []
