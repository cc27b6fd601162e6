"""Which bundles are system bundles follows the names of the release."""

from __future__ import annotations

import pytest

from lb_stream.contracts.reports import BundleStats
from lb_stream.core.averages import FoldConfig, fold, fold_together
from lb_stream.core.model.blocks import Shard
from lb_stream.core.model.names import is_system_bundle
from lb_stream.core.model.releases import Release
from lb_stream.settings.resolve import cluster_config
from tests.support.build import Report, batch_of

WHOLE = "/0x00000000_0xffffffff"
OF_BOTH = "pulsar/b:8080"
OLD, NEW = {"pulsar/c/b:8080", "sla-monitor/c/b:8080"}, {"sla-monitor/b:8080"}
ORDINARY = {"pulsar/system", "pulsar/default", "t/n", "t/c/n"}
EXPECTED: dict[Release, set[str]] = {
    "any": OLD | NEW | {OF_BOTH},
    "4.0": OLD | {OF_BOTH},
    "4.2": NEW | {OF_BOTH},
    "5.0": NEW | {OF_BOTH},
}
REPORT = Report(
    "b:8080", 1, {f"{name}{WHOLE}": BundleStats() for name in {OF_BOTH, *OLD, *NEW, *ORDINARY}}
)


def system_namespaces(shard: Shard) -> set[str]:
    rows = shard.bundles.select(["name", "system"]).to_pylist()
    return {row["name"].removesuffix(WHOLE) for row in rows if row["system"]}


@pytest.mark.parametrize("release", EXPECTED)
def test_the_fold_marks_the_system_bundles_of_its_release(release: Release) -> None:
    config = FoldConfig(release=release)
    alone, _ = fold(Shard.empty(), batch_of([REPORT]), 1, config)
    assert system_namespaces(alone) == EXPECTED[release]
    together = fold_together([Shard.empty()] * 2, [batch_of([REPORT])] * 2, 1, config)
    assert [system_namespaces(shard) for shard, _ in together] == [EXPECTED[release]] * 2
    names = {name for name in REPORT.bundles if is_system_bundle(name, release)}
    assert names == {f"{name}{WHOLE}" for name in EXPECTED[release]}


@pytest.mark.parametrize(
    ("profile", "release"),
    [("default", "any"), ("pulsar-4.0", "4.0"), ("pulsar-4.2", "4.2"), ("pulsar-5.0", "5.0")],
)
def test_the_fold_of_a_profile_has_its_release(profile: str, release: Release) -> None:
    assert cluster_config({"profile": profile}).fold.release == release
