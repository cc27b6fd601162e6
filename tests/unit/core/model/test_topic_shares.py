"""Topics' shares of their bundles' load: sorted, normalised, and found by bundle."""

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from lb_stream.core.averages import FoldConfig, fold
from lb_stream.core.averages.cluster_view import view_of
from lb_stream.core.model.blocks import Shard
from lb_stream.core.model.topic_shares import NO_TOPIC_SHARES, TopicShares
from lb_stream.core.observing.known_bundles import add_unassigned_bundles
from tests.support.build import Report, batch_of


def shares(*entries: tuple[int, int, float]) -> TopicShares:
    bundle, hashes, share = zip(*entries, strict=True)
    return TopicShares.from_columns(np.array(bundle), np.array(hashes), np.array(share, float))


def test_shares_are_sorted_and_those_of_each_bundle_add_up_to_1() -> None:
    found = shares((7, 900, 3.0), (2, 50, 0.25), (7, 100, 1.0), (2, 4_000_000_000, 0.25))
    assert found.bundle.tolist() == [2, 2, 7, 7]
    hashes, share = found.of(7)
    assert_array_equal(hashes, [100, 900])
    assert_allclose(share, [0.25, 0.75])
    assert_allclose(found.of(2)[1], [0.5, 0.5])
    assert found.bundles.tolist() == [2, 7]


def test_topics_of_one_hash_are_one_entry() -> None:
    hashes, share = shares((0, 5, 1.0), (0, 9, 1.0), (0, 5, 2.0)).of(0)
    assert_array_equal(hashes, [5, 9])
    assert_allclose(share, [0.75, 0.25])


def test_a_bundle_whose_topics_have_no_load_has_no_shares() -> None:
    found = shares((0, 5, 0.0), (0, 6, 0.0), (1, 7, 2.0))
    assert found.bundles.tolist() == [1]
    assert len(found.of(0)[0]) == 0


@pytest.mark.parametrize("row", [-1, 0, 3])
def test_a_bundle_that_is_not_reported_has_no_shares(row: int) -> None:
    assert [len(part) for part in shares((1, 7, 2.0)).of(row)] == [0, 0]
    assert [len(part) for part in NO_TOPIC_SHARES.of(row)] == [0, 0]


def test_shares_follow_their_bundles_to_other_rows() -> None:
    found = shares((0, 5, 1.0), (1, 6, 1.0), (2, 7, 1.0)).renumbered([2, -1, 0])
    assert found.bundle.tolist() == [0, 2]
    assert found.hash.tolist() == [7, 5]


def test_shares_stay_with_their_bundle_when_others_are_added() -> None:
    first, second, third = (f"t/n/0x{at}0000000_0x{at + 1}0000000" for at in range(3))
    shard, _ = fold(Shard.empty(), batch_of([Report("a", 1, {third: None})]), 1, FoldConfig())
    view = replace(
        view_of("c", [shard], 1, {"cpu": 1.0}), topic_shares=shares((0, 0x2000_0001, 1.0))
    )
    grown = add_unassigned_bundles(view, [first, second])
    assert grown.bundles.names.to_pylist() == [first, second, third]
    assert grown.topic_shares.of(2)[0].tolist() == [0x2000_0001]
