"""The verdict about a change names whether it fits, at which usage, and by which moves."""

from __future__ import annotations

import pytest

from lb_stream.sim.simulation.prediction import AS_IT_IS, CHANGED, Prediction
from lb_stream.sim.simulation.prediction_texts import describe_verdict, format_figure

BEFORE = {"usage_max_after": 0.83, "moves": 0, "moved_bytes_per_s": 0.0, "fits": True}


@pytest.mark.parametrize(
    ("after", "verdict"),
    [
        (
            {"usage_max_after": 0.61, "moves": 14, "moved_bytes_per_s": 220e6},
            "Fits: the busiest broker would be at 61.0 % instead of 83.0 %; "
            "14 moves of 220.0 MB/s.",
        ),
        (
            {},
            "Fits: the busiest broker would be at 83.0 %, as without the change; no moves.",
        ),
        (
            {"usage_max_after": 1.12, "moves": 1, "moved_bytes_per_s": 2e6, "fits": False},
            "Doesn't fit: the busiest broker would be at 112.0 % instead of 83.0 %; "
            "1 move of 2.0 MB/s.",
        ),
        (
            {"usage_max_after": 0.9, "fits": False, "left_bundles": 3},
            "Doesn't fit: 3 bundles would stay at drained brokers; the busiest broker would be at "
            "90.0 % instead of 83.0 %; no moves.",
        ),
    ],
)
def test_the_verdict_is_one_sentence(after: dict[str, float], verdict: str) -> None:
    figures = BEFORE | {"left_bundles": None} | after
    found = {
        AS_IT_IS: Prediction(dict(BEFORE), [], (), ()),
        CHANGED: Prediction(dict(figures), [], (), ()),
    }
    assert describe_verdict(found) == verdict


def test_a_figure_has_its_unit() -> None:
    shown = [
        format_figure(0.8312, "ratio"),
        format_figure(2.5e6, "bytes/s"),
        format_figure(1.156, "quotient"),
        format_figure(12.0, "s"),
        format_figure(1234),
        format_figure(None, "ratio"),
    ]
    assert shown == ["83.1 %", "2.5 MB/s", "1.16", "12 s", "1,234", "–"]
