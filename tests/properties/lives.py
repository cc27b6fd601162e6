"""Lives of clusters, round after round."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

from lb_stream.contracts.reports import Ack
from lb_stream.core.averages.cluster_view import view_of
from lb_stream.core.config.cluster_config import ClusterConfig
from lb_stream.core.model.memory import Memory
from lb_stream.core.model.view import ClusterView
from lb_stream.core.round.decide import Inbox, Round, decide
from tests.properties.strategies import (
    BROKERS,
    BUNDLES,
    PARTITION,
    SYSTEM_BUNDLES,
    Record,
    Shards,
    statistics,
    usages,
)
from tests.support.build import Event, Report

EVERY_ROUND = {
    "loadBalancerSheddingIntervalMinutes": 0,
    "loadBalancerBundleUnloadMinThroughputThreshold": 0,
    "dry_run": False,
}


@dataclass(frozen=True)
class Step:
    """One batch of a cluster's life: what came in, and what the balancer may know about itself."""

    records: Sequence[Record]
    acks: tuple[tuple[int, str], ...]  # (which pending decision, outcome)
    caught_up: bool
    max_published: int | None = None


@st.composite
def lives(draw: st.DrawFn, most: int = 6) -> list[Step]:
    """Batches of reports in which brokers own, gain, lose, obey or ignore, come and go."""
    steps, now_ms, offset = [], 1_000_000, 0
    shares = draw(st.booleans())  # what a batch publishes, with other clusters
    for _ in range(draw(st.integers(1, most))):
        now_ms += draw(st.sampled_from([100, 5_000, 20_000, 31_000, 61_000]))
        taken: set[str] = set()
        batch: list[Record] = []
        for broker in draw(st.lists(st.sampled_from(BROKERS), unique=True)):
            offset += 1
            place = {"append_ms": now_ms, "partition": PARTITION[broker], "offset": offset}
            kind = draw(st.sampled_from(["report"] * 8 + ["heartbeat", "goodbye"]))
            if kind != "report":
                batch.append(Event(kind, broker, **place))
                continue
            # Two brokers may name one bundle only by mistake: rarely.
            free = (
                [name for name in (*BUNDLES, *SYSTEM_BUNDLES) if name not in taken]
                if draw(st.integers(0, 9))
                else BUNDLES
            )
            named = (
                draw(st.lists(st.sampled_from(list(free)), unique=True, max_size=6)) if free else []
            )
            taken |= set(named)
            batch.append(
                Report(
                    broker,
                    bundles={name: draw(statistics) for name in named},
                    resources={"cpu": (draw(usages), 100.0)},
                    **place,
                )
            )
        acks = draw(
            st.lists(
                st.tuples(
                    st.integers(0, 5),
                    st.sampled_from(["released", "acquired", "refused", "failed"]),
                ),
                max_size=2,
            )
        )
        caught_up = draw(st.sampled_from([True, True, True, False]))
        max_published = draw(st.sampled_from([None, 1, 2])) if shares else None
        steps.append(Step(batch, tuple(acks), caught_up, max_published))
    return steps


def played(
    steps: Sequence[Step],
    config: ClusterConfig,
    memory: Memory | None = None,
    shards: int = 1,
    shuffle: Any = None,
) -> Iterator[tuple[ClusterView, Memory, Round]]:
    """The rounds of a life: (what the round saw, the memory it started from, the round)."""
    state = Shards.empty(shards, config.fold)
    memory = memory or Memory()
    for step in steps:
        state.take(step.records, shuffle=shuffle)
        view = view_of("c", state.shards, state.now_ms, config.balancer.weights)
        done = decide(view, memory, inbox_of(step, memory), config)
        yield view, memory, done
        memory = done.memory


def inbox_of(step: Step, memory: Memory) -> Inbox:
    acks = [
        Ack(decision_id=memory.pending[at].decision_id, outcome=said)
        for at, said in step.acks
        if at < len(memory.pending)
    ]
    return Inbox(tuple(acks), step.caught_up, max_published=step.max_published)
