"""LeastMoves splits a bundle of a real Pulsar cluster where its topics' measured load says, and moves
the children. `make test-pulsar`."""

from __future__ import annotations

import json
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from lb_stream.core.model.topics import topic_hash
from lb_stream.kit.embedded_kafka import EmbeddedKafka
from tests.e2e.pipeline import Pipeline, wait_until
from tests.pulsar.network_load import FRESH_S, REPORTING, SETTINGS, shared_out, usages
from tests.pulsar.real_cluster import (
    SCRIPTS,
    agents,
    bring,
    confirmed,
    looked_up,
    max_over_mean,
    missing,
    rows,
)
from tests.pulsar.releases import RELEASE
from tests.pulsar.testbed import BASE_PORT, BROKERS, NAMESPACE, PATIENCE_S, Bed, started_bed
from tests.support import nics
from tests.support.topics import topics_by

pytestmark = [pytest.mark.long, pytest.mark.e2e]

TOPICS = [f"t{number:02d}" for number in range(48)]
BUNDLES, SIZE = 8, 1024
SENT, HOT_SHARE = 480.0, 0.6
"""Messages/s in all, and the part of them of one bundle: more than a broker's even load."""
NIC_GBPS = 0.0028
"""What each broker says is its network's speed: an even load is 46 % of it."""
EVEN = 1.1
"""Busiest broker ÷ mean at the end."""


@pytest.fixture
def bed(tmp_path: Path) -> Iterator[Bed]:
    """A cluster whose brokers have a network card each."""
    if reason := missing() or nics.missing():
        pytest.skip(reason)
    java_home = RELEASE.java_home()
    assert java_home is not None
    ports = {number: BASE_PORT + 100 + number for number in range(1, BROKERS + 1)}
    settings = {
        "loadBalancerOverrideBrokerNicSpeedGbps": str(NIC_GBPS),
        "statsUpdateFrequencyInSecs": "10",
    }
    with (
        nics.cards(tmp_path / "cards", ports, java_home) as environment,
        started_bed(
            SCRIPTS, tmp_path / "pulsar", settings=settings, environment=environment
        ) as started,
    ):
        started.create_namespace(BUNDLES)
        yield started


def rates_of(by_bundle: dict[str, list[str]], hot: str) -> dict[str, float]:
    """Return topic → messages/s: in the hot bundle topics are unlike, elsewhere alike."""
    weights = {topic: place for place, topic in enumerate(by_bundle[hot], 1)}
    part = SENT * HOT_SHARE / sum(weights.values())
    rest = SENT * (1 - HOT_SHARE) / (len(TOPICS) - len(weights))
    return {topic: weights.get(topic, 0) * part or rest for topic in TOPICS}


def test_a_bundle_larger_than_an_even_load_is_split_between_its_topics_and_its_children_move(
    bed: Bed,
    kafka: EmbeddedKafka,
    unique_topic: Callable[..., str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    by_bundle = defaultdict[str, list[str]](list)
    for topic in TOPICS:
        by_bundle[bed.bundle_of(topic)].append(topic)
    hot = max(sorted(by_bundle), key=lambda bundle: len(by_bundle[bundle]))
    rates = rates_of(by_bundle, hot)
    loads = {bundle: sum(rates[topic] for topic in topics) for bundle, topics in by_bundle.items()}
    settings = {**SETTINGS, "shedding_strategy": "LeastMoves", "split_enabled": "true"}
    pipeline = Pipeline(kafka.bootstrap, topics_by(unique_topic), tmp_path / "job", settings)
    pipeline.folder.mkdir()
    pipeline.create_topics()
    with ExitStack() as stack:
        stack.enter_context(bed.traffic(rates, SIZE))
        wait_until(
            lambda: None not in looked_up(bed, 1, TOPICS).values(), "an owner of all topics", 120
        )
        bring(bed, shared_out(loads, dict.fromkeys(bed.names, 1.0)), TOPICS)
        time.sleep(FRESH_S)
        uneven, fullest = max_over_mean(bed), max(usages(bed))
        stack.enter_context(pipeline.running())
        stack.enter_context(agents(bed, pipeline, **REPORTING))
        wait_until(lambda: bool(rows(pipeline, "broker_loads")), "the job's first batch", 600)
        begun = time.monotonic()

        def splits() -> list[dict[str, Any]]:
            return [split for split in confirmed(pipeline, "split") if split["bundle"] == hot]

        wait_until(lambda: bool(splits()), f"a split of {hot}", PATIENCE_S)
        split_s, split = time.monotonic() - begun, splits()[0]
        wait_until(lambda: 0 < max_over_mean(bed) <= EVEN, "an even load", PATIENCE_S)
        even_s = time.monotonic() - begun
        time.sleep(FRESH_S)
        last, usage = max_over_mean(bed), max(usages(bed))
        moves = confirmed(pipeline, "unload")

    # Cut where the plan said, between topics: each child has some of them.
    cuts = split["boundaries"]
    assert cuts and {f"0x{cut:08x}" for cut in cuts} <= set(bed.boundaries())
    hashes = {topic: topic_hash(f"persistent://{NAMESPACE}/{topic}") for topic in by_bundle[hot]}
    edges = [0, *cuts, 1 << 32]
    parts = [
        sum(rates[topic] for topic, place in hashes.items() if lower <= place < upper) / loads[hot]
        for lower, upper in pairwise(edges)
    ]
    assert all(parts), parts
    plan = json.loads(split["explain"]) if isinstance(split["explain"], str) else split["explain"]
    assert plan["plan_max_after"] < plan["plan_max_unsplit"]
    with capsys.disabled():
        shares = ", ".join(f"{rates[topic] / loads[hot]:.0%}" for topic in by_bundle[hot])
        cut = " + ".join(f"{part:.0%}" for part in parts)
        names = ", ".join(f"0x{cut:08x}" for cut in cuts)
        print(
            f"\n{hot} of {len(hashes)} topics ({shares}), {HOT_SHARE:.0%} of all load, cut at "
            f"{names} into {cut} after {split_s:.0f} s ({split['detail']}; {split['algorithm']}), "
            f"even after {even_s:.0f} s: max/mean {uneven:.3f} -> {last:.3f}, usage {fullest:.0%} "
            f"-> {usage:.0%}, expected {plan['plan_max_before']:.0%} -> "
            f"{plan['plan_max_after']:.0%}, unsplit {plan['plan_max_unsplit']:.0%}, "
            f"{len(moves)} moves",
            flush=True,
        )
    assert last <= EVEN
