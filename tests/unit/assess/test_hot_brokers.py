"""The hottest brokers, and the reason of each."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.assessed_cluster import UNEVEN, bundle, minutes, observed, report


def test_only_brokers_above_the_mean_are_hot(tmp_path: Path) -> None:
    (hot,) = observed(tmp_path, minutes(UNEVEN)).hot
    assert (hot.broker, hot.resource, hot.bundles) == ("a:8080", "cpu", 6)
    assert (hot.usage, hot.over_mean) == pytest.approx((0.6, 2.0))
    assert hot.why.startswith("it serves 6 bundles, a broker serves 3 on average")


def test_one_large_bundle_is_named_with_its_part(tmp_path: Path) -> None:
    loads = {
        "a:8080": {bundle(0): 450.0, bundle(1): 50.0},
        "b:8080": {bundle(2): 50.0, bundle(3): 50.0},
    }
    (hot,) = observed(tmp_path, minutes(loads)).hot
    assert hot.heaviest[0] == (bundle(0), pytest.approx(0.9))
    assert "one bundle is 90% of its load" in hot.why


def test_cpu_that_the_load_does_not_explain_is_named(tmp_path: Path) -> None:
    loads = {f"{name}:8080": {bundle(at): 200.0} for at, name in enumerate("abc")}
    slow = [
        report("d:8080", {bundle(9): 200.0}, minute, cpu={"usage": 60.0, "limit": 100.0})
        for minute in range(5)
    ]
    (hot,) = observed(tmp_path, [*minutes(loads), *slow]).hot
    assert hot.broker == "d:8080"
    assert "its cpu is 3.0 times as high for its load" in hot.why


def test_without_any_limit_brokers_are_compared_by_traffic(tmp_path: Path) -> None:
    unknown = {"usage": 0.0, "limit": 0.0}
    changed = dict.fromkeys(("cpu", "directMemory", "bandwidthIn", "bandwidthOut"), unknown)
    (hot,) = observed(tmp_path, minutes(UNEVEN, **changed)).hot
    assert (hot.broker, hot.usage, hot.resource) == ("a:8080", None, "traffic")
    assert hot.over_mean == pytest.approx(2.0)
