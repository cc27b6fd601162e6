"""The generator of cases for the comparison with the reference's own classes (`make
differential`)."""

import json
import sys
from pathlib import Path

import pytest

import tests.conformance.adapters  # noqa: F401  registers them
from tests.conformance import differential
from tests.conformance.differential import in_the_order_of
from tests.conformance.generated_releases import ALL_KINDS, SINCE_4_2, cases
from tests.conformance.registry import ADAPTERS, answer

FEW = 8


def test_every_kind_of_case_is_generated() -> None:
    assert sorted(ALL_KINDS) == sorted(ADAPTERS)


KINDS_AND_PROFILES = [
    *((kind, "pulsar-4.0") for kind in sorted(ALL_KINDS)),
    *((kind, "pulsar-5.0") for kind in sorted(SINCE_4_2)),
]


@pytest.mark.parametrize(("kind", "profile"), KINDS_AND_PROFILES)
def test_generated_cases_are_answered_and_come_again_for_the_same_seed(
    kind: str, profile: str
) -> None:
    made = cases(kind, FEW, 1, profile)
    assert made == cases(kind, FEW, 1, profile)
    assert made != cases(kind, FEW, 2, profile)
    assert any("result" in answer(json.loads(json.dumps(case)), profile) for case in made)


def test_the_rows_of_a_repeated_round_lie_as_the_reference_laid_them_first() -> None:
    case = {"rounds": [{"repeat": 2}, {}]}
    result = [
        {"brokerOrder": ["b", "a"]},
        {"brokerOrder": ["b", "a"]},
        {"brokerOrder": ["a"], "bundleOrder": ["x"]},
    ]
    laid = in_the_order_of(case, {"result": result})
    assert laid == {
        "rounds": [
            {"repeat": 2, "brokerOrder": ["b", "a"]},
            {"brokerOrder": ["a"], "bundleOrder": ["x"]},
        ]
    }


@pytest.mark.parametrize(("rates", "code"), [([0.0, 0.0, 0.0, 0.0], 0), ([1.0, 0.0, 0.0, 0.0], 1)])
def test_a_reference_that_decides_otherwise_is_told_with_the_case(
    rates: list[float],
    code: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A reference of three lines that answers one kind rightly for one case only."""
    case = {
        "id": 1,
        "kind": "message_average",
        "maxSamples": 2,
        "defaultStats": [0, 0, 0, 0],
        "samples": [],
    }
    names = ("msgThroughputIn", "msgThroughputOut", "msgRateIn", "msgRateOut")
    wanted = {
        "id": 1,
        "kind": "message_average",
        "result": [{"numSamples": 0, "maxSamples": 2} | dict(zip(names, rates, strict=True))],
    }
    script = tmp_path / "reference.py"
    script.write_text(f"import sys\nsys.stdin.read()\nprint({json.dumps(wanted)!r})\n")
    monkeypatch.setattr(differential, "cases", lambda kind, count, seed, profile: [case])
    monkeypatch.setattr(
        sys, "argv", ["differential", f"{sys.executable} {script}", "--kind", "message_average"]
    )
    assert differential.main() == code
    last = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert last == {"cases": 1, "different": code, "seed": 0}
