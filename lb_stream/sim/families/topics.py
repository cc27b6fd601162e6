"""Draws the topics of bundles: how many there are, their hashes, their shares of the load."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from lb_stream.core.model.names import FULL_RANGE_END, parse_bundle
from lb_stream.sim.families.sampling import make_rng
from lb_stream.sim.families.spec import LargestSpec, Spec, SplitSpec
from lb_stream.sim.scenario.scenario import Floats, Ints, ScenarioTopics


def draw_topic_counts(spec: Spec, count: int, largest: Ints) -> Ints:
    """Draw how many topics each bundle has. `largest`: rows of the largest bundles."""
    draws = make_rng(spec.seed, "topics")
    found = 1 + draws.poisson(spec.cluster.topics_per_bundle - 1.0, count).astype(np.int64)
    for row, bundle in zip(largest.tolist(), spec.load.largest, strict=True):
        if bundle.topics is not None:
            found[row] = bundle.topics
    return found


def draw_topics(spec: Spec, names: Sequence[str], counts: Ints, largest: Ints) -> ScenarioTopics:
    """Draw the topics of bundles that can be split. `counts`: of each bundle."""
    assert spec.split is not None
    asked = dict(zip(largest.tolist(), spec.load.largest, strict=True))
    draws = make_rng(spec.seed, "shares")
    hashes, shares = [], []
    for row, (name, count) in enumerate(zip(names, counts.tolist(), strict=True)):
        _, lower, upper = parse_bundle(name)
        end = upper + 1 if upper == FULL_RANGE_END else upper
        hashes.append(np.sort(draws.integers(lower, end, count)))
        shares.append(_shares(spec.split, draws, count, asked.get(row)))
    bundle = np.repeat(np.arange(len(names)), counts)
    return ScenarioTopics(bundle, np.concatenate(hashes), np.concatenate(shares).astype(np.float32))


def _shares(
    given: SplitSpec, draws: np.random.Generator, count: int, asked: LargestSpec | None
) -> Floats:
    """Draw the shares of one bundle's topics; they sum to 1."""
    match given.sizes:
        case "equal":
            found = np.ones(count)
        case "lognormal":
            found = np.exp(given.spread * draws.standard_normal(count))
        case "zipf":
            found = draws.permutation(np.arange(1, count + 1) ** -given.spread)
    if asked is not None and asked.hot_topic is not None and count > 1:
        hot = int(draws.integers(count))
        found[hot] = 0.0
        found *= (1.0 - asked.hot_topic) / found.sum()
        found[hot] = asked.hot_topic
    shares: Floats = found / found.sum()
    return shares
