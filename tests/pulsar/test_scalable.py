"""`lbctl scalable`: what it shows of a scalable topic, and how it splits and merges segments."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from lb_stream.cli.run.lookup_server import segment_finder
from lb_stream.cli.shared.admin_access import AdminAccess
from lb_stream.cli.shared.output import CommandError
from lb_stream.core.model.topics import Ring
from lb_stream.io.lookup import LookupFailed
from lb_stream.io.lookup.scalable import UnknownScalable
from tests.pulsar.fake_cluster import (
    NAMESPACE,
    PULSAR_CLUSTER,
    Call,
    FakeCluster,
    Reply,
    fake_cluster,
)
from tests.pulsar.fake_scalable import TOPIC, FakeScalable
from tests.support.lbctl_runner import Result, lbctl
from tests.support.wordings import check_wording


@pytest.fixture
def cluster() -> Iterator[FakeCluster]:
    with fake_cluster() as started:
        yield started


def run(cluster: FakeCluster, folder: Path, *arguments: str) -> Result:
    url = f"http://{cluster.names[0]}"
    return lbctl("scalable", *arguments, "--admin-url", url, cwd=folder)


def acts(cluster: FakeCluster) -> list[str]:
    """What was asked of the controller, not of brokers that redirect to it."""
    last = len(cluster.servers) - 1
    return [call.path for call in cluster.calls if call.method == "POST" and call.broker == last]


def places(cluster: FakeCluster, rows: list[dict[str, Any]]) -> list[tuple[str, str]]:
    """The bundle and broker of each segment, by its full name and who owns what."""
    ring = Ring.from_boundaries(NAMESPACE, cluster.boundaries)
    bundles = [ring.bundle_of(row["topic"]) for row in rows]
    owners = [cluster.owners[bundle.rpartition("/")[2]] for bundle in bundles]
    return [
        (bundle, cluster.names[owner])
        for bundle, owner in zip(bundles, owners, strict=True)
        if owner is not None
    ]


def test_a_namespaces_scalable_topics_are_listed(cluster: FakeCluster, tmp_path: Path) -> None:
    FakeScalable(cluster)
    for form in ("table", "name"):
        assert run(cluster, tmp_path, "list", NAMESPACE, "-o", form).out == f"{TOPIC}\n"
    assert run(cluster, tmp_path, "list", NAMESPACE, "-o", "csv").out == f"topic\n{TOPIC}\n"
    none = run(cluster, tmp_path, "list", "shop/empty")
    assert (none.code, none.out) == (0, "") and "no scalable topic" in none.err


def test_each_segment_is_shown_with_its_bundle_its_broker_and_its_share_of_the_bundle(
    cluster: FakeCluster, tmp_path: Path
) -> None:
    FakeScalable(cluster, count=4)
    (found,) = run(cluster, tmp_path, "show", TOPIC, "--json").objects
    assert yaml.safe_load(run(cluster, tmp_path, "show", TOPIC, "-o", "yaml").out) == found
    rows = found["segments"]
    assert [row["hashes"] for row in rows] == ["0000-3fff", "4000-7fff", "8000-bfff", "c000-ffff"]
    assert [(row["bundle"], row["broker"]) for row in rows] == places(cluster, rows)
    for row in rows:
        bounds = row["bundle"].rpartition("/")[2]
        topics = len(cluster.topics_of(bounds)) + len(cluster.segments[bounds])
        assert row["msgs_per_s"] == 30.0
        assert row["msgs_share_ratio"] == pytest.approx(1 / topics)
    text = run(cluster, tmp_path, "show", TOPIC.removeprefix("topic://"))
    assert text.code == 0 and "active segments 4, sealed 0, epoch 0" in text.out


def test_a_preview_changes_nothing_and_names_the_segments_that_the_split_then_makes(
    cluster: FakeCluster, tmp_path: Path
) -> None:
    FakeScalable(cluster)
    arguments = ("split", TOPIC, "--segment", "1", "--json")
    (before,) = run(cluster, tmp_path, *arguments, "--preview").objects
    assert acts(cluster) == [] and before["done"] is False
    (after,) = run(cluster, tmp_path, *arguments).objects
    assert acts(cluster) == [f"/admin/v2/scalable/{NAMESPACE}/clicks/split/1"] and after["done"]
    foreseen, made = (
        [(row["topic"], row["bundle"], row["broker"]) for row in change["children"]]
        for change in (before, after)
    )
    assert foreseen == made
    assert [row["hashes"] for row in after["children"]] == ["8000-bfff", "c000-ffff"]


def test_a_merge_takes_a_split_back(cluster: FakeCluster, tmp_path: Path) -> None:
    topic = FakeScalable(cluster)
    assert run(cluster, tmp_path, "split", TOPIC, "--segment", "0").code == 0
    result = run(cluster, tmp_path, "merge", TOPIC, "--segment", "3", "--segment", "2", "--json")
    (merged,) = result.objects
    assert (result.code, merged["kind"]) == (0, "merge")
    assert [row["hashes"] for row in merged["children"]] == ["0000-7fff"]
    active = [one["segmentId"] for one in topic.segments.values() if one["state"] == "ACTIVE"]
    assert active == [1, 4]


def test_an_explanation_names_how_to_take_it_back_and_that_pulsar_may_change_it_too(
    cluster: FakeCluster, tmp_path: Path
) -> None:
    FakeScalable(cluster)
    result = run(cluster, tmp_path, "split", TOPIC, "--segment", "1", "--preview")
    url = f"http://{cluster.names[0]}"
    assert f"scalable merge {TOPIC} --segment 2 --segment 3 --admin-url {url}" in result.out
    check_wording(result.out.partition("Keys that")[2].replace(url, "http://HOST:PORT"))


@pytest.mark.parametrize(("ids", "is_exact"), [((2, 3), True), ((0, 2), False)])
def test_a_merge_says_when_a_split_would_not_give_the_same_segments_again(
    cluster: FakeCluster, tmp_path: Path, ids: tuple[int, int], is_exact: bool
) -> None:
    FakeScalable(cluster)
    assert run(cluster, tmp_path, "split", TOPIC, "--segment", "1").code == 0
    given = [text for segment in ids for text in ("--segment", str(segment))]
    result = run(cluster, tmp_path, "merge", TOPIC, *given, "--preview")
    assert result.code == 0, result.err
    assert ("A split cuts in the middle" not in result.out) == is_exact


def test_a_lost_answer_to_a_split_that_was_made_is_no_failure(
    cluster: FakeCluster, tmp_path: Path
) -> None:
    topic = FakeScalable(cluster)
    topic.lost = True
    (found,) = run(cluster, tmp_path, "split", TOPIC, "--segment", "1", "--json").objects
    assert [row["id"] for row in found["children"]] == [2, 3]
    assert len(acts(cluster)) == 1


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("split", TOPIC, "--segment", "0"), 1),  # sealed
        (("split", TOPIC, "--segment", "9"), 1),
        (("merge", TOPIC, "--segment", "1", "--segment", "2"), 1),  # no neighbours
        (("merge", TOPIC, "--segment", "1", "--segment", "1"), 2),
        (("split", f"topic://{NAMESPACE}/other", "--segment", "0"), 2),
        (("show", f"persistent://{NAMESPACE}/clicks"), 2),
    ],
)
def test_what_cannot_be_done_is_refused_before_pulsar_is_asked(
    cluster: FakeCluster, tmp_path: Path, arguments: tuple[str, ...], code: int
) -> None:
    topic = FakeScalable(cluster)
    topic._change((0,))
    result = run(cluster, tmp_path, *arguments)
    assert (result.code, result.out, acts(cluster)) == (code, "", [])
    check_wording(result.err.replace(cluster.names[0], "HOST:PORT"))


def test_a_segment_that_pulsar_splits_meanwhile_is_a_refusal_that_names_its_children(
    cluster: FakeCluster, tmp_path: Path
) -> None:
    FakeScalable(cluster, race=[(1,)])
    result = run(cluster, tmp_path, "split", TOPIC, "--segment", "1")
    assert result.code == 1 and "segment 1 of" in result.err and "2, 3" in result.err


@pytest.mark.parametrize("topic", ["topic://../../brokers", "topic://shop/../x", "shop/orders/.."])
def test_a_name_never_leads_to_another_path_of_pulsars(
    cluster: FakeCluster, tmp_path: Path, topic: str
) -> None:
    result = run(cluster, tmp_path, "show", topic)
    assert (result.code, cluster.calls) == (2, []) and "other than . and .." in result.err


def test_a_cluster_without_scalable_topics_is_a_message(
    cluster: FakeCluster, tmp_path: Path
) -> None:
    cluster.before = lambda call: (404, b"", {}) if "/scalable/" in call.path else None
    result = run(cluster, tmp_path, "list", NAMESPACE)
    assert result.code == 2 and "Pulsar has them since 5.0" in result.err


@pytest.mark.parametrize(
    "content",
    [
        {"epoch": 0},
        {"epoch": 0, "nextSegmentId": 1, "segments": {"0": {"segmentId": 0, "state": "ACTIVE"}}},
        {
            "epoch": 0,
            "nextSegmentId": 1,
            "segments": {
                "0": {"segmentId": 0, "state": "ACTIVE", "hashRange": {"start": 9, "end": 70_000}}
            },
        },
        {"epoch": 0, "nextSegmentId": -1, "segments": {}},
        {
            "epoch": 0,
            "nextSegmentId": 1,
            "segments": {
                "0": {"segmentId": -5, "state": "ACTIVE", "hashRange": {"start": 0, "end": 9}}
            },
        },
        [],
    ],
)
def test_an_answer_that_describes_no_segments_is_a_message(
    cluster: FakeCluster, tmp_path: Path, content: object
) -> None:
    cluster.before = lambda call: (200, content, {}) if "/scalable/" in call.path else None
    result = run(cluster, tmp_path, "show", TOPIC)
    assert (result.code, result.out) == (1, "")
    assert "expected a scalable topic with its segments" in result.err


@pytest.mark.parametrize(
    ("path", "content"),
    [
        ("/brokers/configuration/runtime", ["clusterName"]),
        ("/brokers/configuration/runtime", b"[" * 100_000),
        (f"/brokers/{PULSAR_CLUSTER}", {"a": 1}),
        ("/scalable/", b'{"epoch":1e400,"nextSegmentId":1,"segments":{}}'),
    ],
    ids=lambda value: str(value)[:40],
)
def test_an_answer_of_another_form_is_a_message(
    cluster: FakeCluster, tmp_path: Path, path: str, content: object
) -> None:
    scalable = FakeScalable(cluster)

    def answer(call: Call) -> Reply | None:
        return (200, content, {}) if path in call.path else scalable.answer(call)

    cluster.before = answer
    result = run(cluster, tmp_path, "show", TOPIC)
    assert (result.code, result.out) == (1, "")
    assert "expected" in result.err and path.rstrip("/") in result.err


@pytest.mark.parametrize("broker", ["a b", "[::1", "x" * 70 + ":80"])
def test_segments_of_a_broker_whose_id_is_no_address_have_no_figures(
    cluster: FakeCluster, tmp_path: Path, broker: str
) -> None:
    scalable = FakeScalable(cluster)
    names = Ring.from_boundaries(NAMESPACE, cluster.boundaries).names
    bundles: dict[str, object] = {name: {} for name in names}

    def answer(call: Call) -> Reply | None:
        if call.path.endswith("/ownedNamespaces"):
            return 200, bundles, {}
        if call.path.endswith(f"/brokers/{PULSAR_CLUSTER}"):
            return 200, [broker], {}
        return scalable.answer(call)

    cluster.before = answer
    rows = run(cluster, tmp_path, "show", TOPIC, "--json").objects[0]["segments"]
    assert {(row["broker"], row["msgs_per_s"]) for row in rows} == {(broker, None)}


def test_a_lookup_server_asks_the_cluster_that_a_client_names(cluster: FakeCluster) -> None:
    FakeScalable(cluster)
    access = AdminAccess({"attempts": 1})
    find_segments = segment_finder(access, [f"eu=http://{cluster.names[0]}", "us=http://[::1]:1"])
    assert find_segments is not None
    assert [segment.name.range_text for segment in find_segments("eu", TOPIC)] == [
        "0000-7fff",
        "8000-ffff",
    ]
    with pytest.raises(UnknownScalable):
        find_segments("eu", f"topic://{NAMESPACE}/other")
    with pytest.raises(LookupFailed, match=r"::1"):
        find_segments("us", TOPIC)
    with pytest.raises(ValueError, match="cluster = asia: no --admin-url"):
        find_segments("asia", TOPIC)
    assert segment_finder(access, []) is None
    with pytest.raises(CommandError, match="CLUSTER=URL once for each cluster"):
        segment_finder(access, ["http://a:1", "eu=http://b:1"])
