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
FEWEST_CASES = 200


@cache
def recorded(kind: str, what: str) -> list[dict[str, Any]]:
    with gzip.open(DATA / f"{kind}.{what}.jsonl.gz", "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


KINDS = sorted(path.name.partition(".")[0] for path in DATA.glob("*.cases.jsonl.gz"))


@pytest.mark.parametrize("kind", KINDS)
def test_every_case_of_a_kind_is_decided_as_the_reference_did(kind: str) -> None:
    pairs = [*zip(recorded(kind, "cases"), recorded(kind, "decisions"), strict=True)]
    assert len(pairs) >= FEWEST_CASES
    different = []
    for case, wanted in pairs:
        assert (case["id"], case["kind"]) == (wanted["id"], kind)
        found = [*differences(wanted, answer(case))]
        if found:
            different.append(f"{case['id']}: {found[0]}")
    assert not different, f"{len(different)} of {len(pairs)} differ:\n" + "\n".join(
        different[:SHOWN]
    )


def test_every_adapter_has_recorded_cases() -> None:
    assert sorted(ADAPTERS) == KINDS


def run(
    lines: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> tuple[int, list[dict[str, Any]], str]:
    monkeypatch.setattr(sys, "stdin", io.StringIO("".join(f"{line}\n" for line in lines)))
    code = main()
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
