"""Topics' shares from reports to the view: which are kept, for how long, and where they appear."""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from lb_stream.contracts.reports import BundleStats
from lb_stream.core.averages import FoldConfig, fold, fold_together
from lb_stream.core.averages.cluster_view import view_of
from lb_stream.core.averages.latest_topics import KEPT_MS
from lb_stream.core.model.blocks import Shard, from_bytes, to_bytes
from lb_stream.core.model.view import ClusterView
from tests.support.build import Report, batch_of

X, Y, Z = (f"t/n/0x{at}0000000_0x{at + 1}0000000" for at in range(3))
STATS = BundleStats(msg_rate_in=5.0, topics=2)
Shares = Mapping[str, Mapping[int, float]]
OF_X = {X: {7: 0.25, 9: 0.75}}


def report(broker: str, at_ms: int, bundles: list[str], shares: Shares | None = None) -> Report:
    return Report(broker, at_ms, dict.fromkeys(bundles, STATS), topic_shares=shares or {})


def after(*batches: list[Report], shard: Shard | None = None) -> Shard:
    shard = shard or Shard.empty()
    for reports in batches:
        now_ms = max(report.append_ms for report in reports)
        shard, _ = fold(shard, batch_of(reports), now_ms, FoldConfig())
    return shard


def seen(*shards: Shard) -> dict[str, dict[int, float]]:
    view = view_of("c", shards, 1, {"cpu": 1.0})
    return shares_of(view)


def shares_of(view: ClusterView) -> dict[str, dict[int, float]]:
    return {
        view.bundles.name(row): dict(
            zip(*(part.tolist() for part in view.topic_shares.of(row)), strict=True)
        )
        for row in view.topic_shares.bundles.tolist()
    }


def test_a_view_has_the_shares_that_were_reported_last() -> None:
    shard = after(
        [report("a", 1, [X, Y], OF_X)],
        [report("a", 2, [X, Y], {X: {8: 1.0}, Y: {0x1000_0000: 1.0}})],
    )
    assert seen(shard) == {X: {8: 1.0}, Y: {0x1000_0000: 1.0}}


def test_of_two_reports_in_a_batch_the_later_one_counts() -> None:
    shard = after([report("a", 2, [X], {X: {8: 1.0}}), report("a", 1, [X], OF_X)])
    assert seen(shard) == {X: {8: 1.0}}


def test_shares_stay_while_reports_lack_them_for_a_while_only() -> None:
    shard = after([report("a", 1, [X, Y], OF_X)])
    kept = after([report("a", 1 + KEPT_MS, [X, Y])], shard=shard)
    assert seen(kept) == OF_X
    assert seen(after([report("a", 2 + KEPT_MS, [X, Y])], shard=kept)) == {}


def test_shares_follow_a_bundle_to_its_next_owner() -> None:
    shard = after([report("a", 1, [X, Y], OF_X)], [report("a", 2, [Y]), report("b", 3, [X])])
    assert seen(shard) == OF_X


def test_shares_are_forgotten_with_their_bundle() -> None:
    shard = after([report("a", 1, [X, Y], OF_X)], [report("a", 2, [Y])])
    late = FoldConfig().bundle_retention_ms + 10
    assert seen(after([report("a", 3, [Y])], [report("a", late, [Y])], shard=shard)) == {}


def test_shares_keep_their_bundle_when_others_appear_before_it() -> None:
    shard = after([report("a", 1, [Y], {Y: {0x1000_0000: 1.0}})], [report("b", 2, [Z, X])])
    assert seen(shard) == {Y: {0x1000_0000: 1.0}}


def test_a_refused_report_changes_no_shares() -> None:
    shard = after([report("a", 5, [X], OF_X)])
    old = replace(report("a", 6, [X], {X: {8: 1.0}}), last_update_ms=4)
    assert seen(after([old], shard=shard)) == OF_X


def test_a_batch_without_shares_does_not_copy_them() -> None:
    shard = after([report("a", 1, [X], OF_X)])
    again = after([report("a", 2, [X])], shard=shard)
    before, now = shard.bundles["topic_shares"], again.bundles["topic_shares"]
    assert before.chunk(0).buffers()[2].address == now.chunk(0).buffers()[2].address


@pytest.mark.parametrize("shards", [2, 4])
def test_the_number_of_shards_does_not_show(shards: int) -> None:
    shares = {X: {7: 0.5, 9: 0.5}, Z: {0x2000_0000: 1.0}}
    sent = [report("b", 1, [Z, X, Y], shares)]
    alone = seen(after(sent))
    parts = [
        fold(
            Shard.empty(),
            batch_of(sent, keep=lambda name, own=own: int(name[6]) % shards == own),
            1,
            FoldConfig(),
        )[0]
        for own in range(shards)
    ]
    assert seen(*parts) == alone == shares


def test_clusters_that_are_folded_together_keep_their_own_shares() -> None:
    batches = [
        batch_of([report("a", 1, [X, Y], OF_X)]),
        batch_of([report("a", 1, [X, Y])]),
        batch_of([report("a", 1, [X, Y], {X: {1: 1.0}})]),
    ]
    folded = fold_together([Shard.empty()] * 3, batches, 1, FoldConfig())
    assert [seen(shard) for shard, _ in folded] == [OF_X, {}, {X: {1: 1.0}}]


def test_shares_survive_the_state() -> None:
    shard = after([report("a", 1, [X, Y], OF_X)])
    again = Shard(from_bytes(to_bytes(shard.brokers)), from_bytes(to_bytes(shard.bundles)))
    assert again.bundles.equals(shard.bundles)
    assert seen(again) == OF_X


def test_the_same_reports_give_the_same_bytes() -> None:
    rng = np.random.default_rng(2)
    hashes, share = rng.choice(0x1000_0000, 500, replace=False), rng.random(500)
    given = dict(zip(hashes.tolist(), share.tolist(), strict=True))
    shuffled = dict(rng.permutation(np.array(list(given.items()), object)).tolist())
    shards = [after([report("a", 1, [X], {X: each})]) for each in (given, shuffled)]
    assert to_bytes(shards[0].bundles) == to_bytes(shards[1].bundles)
    assert pa.types.is_binary(shards[0].bundles["topic_shares"].type)
