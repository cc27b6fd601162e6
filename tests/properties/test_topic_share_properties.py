"""Whatever a report says of topics' shares: the report counts, and what is taken can be right."""

import json
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose

from lb_stream.core.model.names import FULL_RANGE_END, parse_bundle
from lb_stream.core.model.topic_shares import MAX_ENTRIES, TopicShares, condense, pack_shares
from lb_stream.stream.records import parse_report
from lb_stream.stream.topic_shares import SUM_TOLERANCE

BUNDLES = ["t/n/0x00000000_0x80000000", "t/n/0x80000000_0xffffffff"]
hashes = st.integers(0, FULL_RANGE_END) | st.sampled_from([0, 0x8000_0000, FULL_RANGE_END])
wrong = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=3)
    | st.lists(st.integers(), max_size=3)
)
entries = st.lists(st.tuples(hashes, st.floats(0, 1)) | st.tuples(wrong, wrong) | wrong, max_size=6)
fields = st.dictionaries(st.sampled_from([*BUNDLES, "t/m/x", ""]), entries | wrong) | wrong


@st.composite
def topics(draw: st.DrawFn) -> tuple[Any, Any]:
    """Up to a thousand topics of one bundle, their shares as uneven as may be."""
    rng = np.random.default_rng(draw(st.integers(0, 1 << 32)))
    count, scale = draw(st.integers(1, 1_000)), draw(st.sampled_from([0.3, 1.0, 5.0]))
    share = rng.pareto(scale, count) + 1e-9
    return rng.integers(0, draw(st.sampled_from([50, 1 << 32])), count), share / share.sum()


@given(fields, st.sampled_from(["modular", "extensible"]))
def test_a_report_counts_whatever_its_shares_are(shares: Any, form: str) -> None:
    report: dict[str, Any] = {"loadReportType": "LocalBrokerData", "bundles": BUNDLES}
    if form == "extensible":
        report = {"weightedMaxEMA": 0.5, "bundles": BUNDLES}
    parsed = parse_report(json.dumps({**report, "topicShares": shares}).encode(), "a")
    assert parsed.unmeasured == BUNDLES
    for bundle, (hashes, share) in parsed.topic_shares.items():
        _, lower, upper = parse_bundle(bundle)
        assert ((hashes >= lower) & (hashes <= upper)).all()
        assert (share >= 0).all() and abs(share.sum() - 1) <= SUM_TOLERANCE
        row = TopicShares.from_packed(np.array([3]), [pack_shares(1, hashes, share)])
        assert (np.diff(row.hash) > 0).all()
        assert_allclose(row.share.sum(), 1)


@given(topics())
def test_condensed_topics_keep_their_sum_and_every_cut_at_an_entry(given: tuple[Any, Any]) -> None:
    hashes, share = given
    kept, parts = condense(hashes, share)
    assert len(kept) <= MAX_ENTRIES and (np.diff(kept) > 0).all()
    below = np.array([share[hashes < cut].sum() for cut in kept])
    assert_allclose(below, np.append(0.0, np.cumsum(parts)[:-1]), atol=1e-9)
    assert_allclose(parts.sum(), share.sum())
