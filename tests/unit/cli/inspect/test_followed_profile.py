"""A profile that is to change: what `lbctl` shows of it before it counts."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.lbctl_runner import Result, lbctl
from tests.support.round_stage import Stage
from tests.support.upgraded_cluster import run_upgraded

CHANGE = "shedding_strategy: ThresholdShedder → AvgShedder"


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    yield run_upgraded(tmp_path_factory.mktemp("upgraded"))


def shown(stage: Stage, *arguments: str) -> Result:
    tables = ("--set", f"stream.tables={stage.job.tables}")
    return lbctl(*arguments, *tables, cwd=stage.job.tables.parent)


def test_config_explain_lists_each_change_and_names_the_versions_as_the_origin(
    stage: Stage,
) -> None:
    result = shown(stage, "config", "explain", "--cluster", "eu")
    assert result.code == 0, result.err
    assert "profile pulsar-5.0 follows pulsar-4.0" in result.out
    assert f"  {CHANGE}\n" in result.out
    assert "  distribute_bundles_evenly: true → false\n" in result.out
    assert "config set profile pulsar-4.0 --cluster eu" in result.out
    (answer,) = shown(stage, "config", "explain", "--cluster", "eu", "--json").objects
    given_by = {setting["key"]: setting["given_by"] for setting in answer["settings"]}
    assert given_by["profile"] == "follows the brokers' version 4.0.7"
    expected = "profile pulsar-4.0, follows the brokers' version 4.0.7"
    assert given_by["unload_idle_bundles"] == expected
    assert given_by["threshold_percent"] == "default"
    assert answer["profiles"]["eu"]["next"] == "pulsar-5.0"


def test_config_show_has_the_followed_profile_as_comments_and_sets_none(stage: Stage) -> None:
    out = shown(stage, "config", "show").out
    assert "\n# profile is not set: it follows the brokers' versions\n" in out
    assert "\n# eu: profile pulsar-4.0, follows the brokers' version 4.0.7\n" in out
    assert '# pulsar_names = "4.0"' in out


def test_status_and_lists_show_profile_versions_and_change(stage: Stage) -> None:
    (status,) = shown(stage, "status", "--json").objects
    (finding,) = (found for found in status["findings"] if found["event"] == "profile_change")
    assert finding["state"] == "healthy" and CHANGE in finding["description"]
    (cluster,) = shown(stage, "clusters", "list", "--json").objects
    assert cluster["profile"]["versions"] == {"5.0.1": 3}
    assert "versions: 3 of 5.0.1" in shown(stage, "brokers").out.replace("\n", " ")


def test_a_set_profile_that_does_not_fit_is_named(tmp_path: Path) -> None:
    stage = Stage(tmp_path / "misfit", shadows={})
    stage.settings.balancer["profile"] = "pulsar-4.0"
    stage.versions = {"a": "5.0.1", "b": "banana", "c": ""}
    row: dict[str, Any] = stage.run()
    assert row["error"] is None
    (status,) = shown(stage, "status", "--json").objects
    texts = " ".join(found["description"] for found in status["findings"])
    assert "profile = pulsar-4.0 is set" in texts and "pulsar-5.0" in texts
    assert "'banana' is no version" in texts and "1 without a version" in texts
