"""The whole loop with a real Pulsar cluster: its reports, our job's decisions, its unloads and
splits, its lookups. `make test-pulsar`."""

from __future__ import annotations

import json
import subprocess
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from lb_stream.contracts.settings import TopicSettings
from lb_stream.kit.embedded_kafka import EmbeddedKafka
from tests.e2e.pipeline import Pipeline, wait_until
from tests.pulsar.real_cluster import (
    SCRIPTS,
    TOPICS,
    agent_log,
    agents,
    confirmed,
    crowd_onto_the_first_broker,
    kill_a_destination,
    looked_up,
    max_over_mean,
    missing,
    owners,
    pause,
    rows,
)
from tests.pulsar.testbed import PATIENCE_S, Bed, started_bed
from tests.support.webhook import Call, Webhook, webhook

pytestmark = [pytest.mark.long, pytest.mark.e2e]

BUNDLES = 8
HOT_RATE, RATE = 30.0, 8.0  # messages/s of each topic
SPLIT_ABOVE = 60  # messages/s of a bundle
VETO = "a release is on"
SETTINGS = {
    "dry_run": "false",
    "assign_unowned": "on_lookup",
    # each broker reports the whole machine's: when that is busy, all are overloaded
    "cpu_weight": 0,
    "shedding_strategy": "UniformLoadShedder",
    "uniform_need_allowance": 1_000,  # each bundle carries more than a fifth of the difference
    "shedding_interval_ms": 10_000,
    "shedding_grace_period_ms": 60_000,
    "max_unload_bundles": 1,
    "min_unload_msgs_per_s": 10,
    "bundle_max_msgs_per_s": SPLIT_ABOVE,
    "namespace_max_bundles": BUNDLES + 3,
    "unload_split_bundles": "false",
    "stream.max_offsets_per_trigger": 0,
}


@pytest.fixture(scope="module")
def bed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bed]:
    if reason := missing():
        pytest.skip(reason)
    with started_bed(SCRIPTS, tmp_path_factory.mktemp("pulsar")) as started:
        yield started


def test_our_decisions_balance_a_real_cluster_and_our_table_follows_it(
    bed: Bed,
    kafka: EmbeddedKafka,
    topic_names: TopicSettings,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    pipeline = Pipeline(kafka.bootstrap, topic_names, tmp_path, SETTINGS)
    pipeline.create_topics()
    bed.create_namespace(BUNDLES)
    by_bundle = defaultdict(list)
    for topic in TOPICS:
        by_bundle[bed.bundle_of(topic)].append(topic)
    hot = max(by_bundle, key=lambda bundle: len(by_bundle[bundle]))
    rates = {topic: HOT_RATE if topic in by_bundle[hot] else RATE for topic in TOPICS}
    begun = time.monotonic()

    def tell(text: str) -> None:
        with capsys.disabled():
            print(f"{time.monotonic() - begun:6.1f} s  {text}", flush=True)

    with ExitStack() as stack:
        stack.enter_context(bed.traffic(rates))
        wait_until(
            lambda: sum(report["numTopics"] for report in bed.reports().values()) >= len(TOPICS),
            "traffic in the reports",
            PATIENCE_S,
        )
        crowd_onto_the_first_broker(bed)
        wait_until(
            lambda: max_over_mean(bed) > 2.5,
            "the first broker to report all of the load",
            PATIENCE_S,
        )
        uneven = max_over_mean(bed)
        tell(f"{sum(rates.values()):.0f} msg/s, all at {bed.names[0]}: max/mean {uneven:.2f}")
        hooks = {
            "hooks.before_move": (server := stack.enter_context(webhook())).url("/before"),
            "hooks.after_move": server.url("/after"),
        }
        server.reply = first_vetoed(server)
        with pipeline.running(), agents(bed, pipeline, **hooks) as speaking:
            check_moves(bed, pipeline, tell)
            check_hooks(pipeline, server, tell)
            check_split(bed, pipeline, hot, tell)
            wait_until(
                lambda: 0 < max_over_mean(bed) < 0.7 * uneven, "the imbalance to fall", PATIENCE_S
            )
            tell(f"max/mean {max_over_mean(bed):.2f}, it was {uneven:.2f}")
            victim = bed.a_follower()
            check_crash(bed, pipeline, speaking, victim, 1, tell)
            check_crash_of_the_leader(bed, pipeline, speaking, victim, tell)


def check_moves(bed: Bed, pipeline: Pipeline, tell: Any) -> None:
    """A bundle that our decision moved is served by its new owner, and a real report has confirmed
    it."""
    served: list[str] = []

    def moved() -> bool:
        for move in confirmed(pipeline, "unload"):
            topics = [topic for topic in TOPICS if bed.bundle_of(topic) == move["bundle"]]
            if (
                topics
                and bed.owner_of(topics[0]) == move["destination"]
                and owners(pipeline).get(move["bundle"]) == move["destination"]
            ):
                served.append(
                    f"{move['bundle']} {move['source']} -> {move['destination']} ({move['detail']})"
                )
                return True
        return False

    try:
        wait_until(
            moved,
            "a bundle that our decision moved to be served and reported by its destination",
            PATIENCE_S,
        )
    except AssertionError as error:
        raise AssertionError(
            f"{error}\nagents: {agent_log(pipeline)}\njob: {pipeline.log()[-4000:]}"
        ) from None
    tell(f"moved: {served[0]}")


def first_vetoed(server: Webhook) -> Callable[[Call], tuple[int, bytes]]:
    """What a hook answers that lets every move pass but the first that it is asked for."""

    def reply(call: Call) -> tuple[int, bytes]:
        first = next(each for each in server.calls if each.path == "/before")
        return 200, json.dumps(
            {"allow": call.fields["decision_id"] != first.fields["decision_id"], "reason": VETO}
        ).encode()

    return reply


def check_hooks(pipeline: Pipeline, server: Webhook, tell: Any) -> None:
    """The move that the hook vetoed was not made, and says so; a confirmed one was asked for, and
    told."""

    def paths(path: str) -> list[str]:
        return [call.fields["decision_id"] for call in server.calls if call.path == path]

    wait_until(lambda: bool(paths("/after")), "a move to be told", PATIENCE_S)
    vetoed, *allowed = paths("/before")
    told = paths("/after")[0]
    wait_until(
        lambda: told in {move["decision_id"] for move in confirmed(pipeline, "unload")},
        f"{told} in the tables",
        PATIENCE_S,
    )
    details = {
        row["decision_id"]: (row["outcome"], row["detail"]) for row in rows(pipeline, "outcomes")
    }
    assert (
        details[vetoed][0] == "refused" and f"vetoed by the hook: {VETO}" in details[vetoed][1]
    ), details[vetoed]
    assert told in allowed and vetoed not in paths("/after")
    tell(f"hooks: {vetoed} vetoed, {told} told")


def check_split(bed: Bed, pipeline: Pipeline, hot: str, tell: Any) -> None:
    """The hot bundle was split because we decided so, and its children are in our table."""
    wait_until(
        lambda: any(split["bundle"] == hot for split in confirmed(pipeline, "split")),
        f"a split of {hot} to be confirmed",
        PATIENCE_S,
    )
    split = next(split for split in confirmed(pipeline, "split") if split["bundle"] == hot)
    cuts = [child[-10:] for child in split["children"][:-1]]
    assert set(cuts) <= set(bed.boundaries()) and hot.rpartition("/")[2] not in looked_up(bed, 1)
    tell(f"split: {hot} at {', '.join(cuts)} ({split['detail']})")


def check_crash(
    bed: Bed,
    pipeline: Pipeline,
    speaking: subprocess.Popen[bytes],
    victim: int,
    asked: int,
    tell: Any,
) -> None:
    """After kill -9 of a broker our ownership table says what the cluster's own lookups say.

    A bundle was on its way there. `asked` is a broker that lives on.
    """
    name = bed.names[victim - 1]

    def held() -> list[str]:
        return [bundle for bundle, owner in owners(pipeline).items() if owner == name]

    wait_until(lambda: len(held()) >= 2, f"two bundles or more to be at {name}", PATIENCE_S)
    pause(pipeline)  # a pass could choose the bundle that is about to be moved
    lost = held()
    elsewhere: list[str] = []

    def found_elsewhere() -> bool:
        elsewhere[:] = [topic for topic in TOPICS if bed.owner_of(topic, asked) not in (None, name)]
        return bool(elsewhere)

    wait_until(found_elsewhere, f"a bundle to be at another broker than {name}", PATIENCE_S)
    topic = elsewhere[0]
    kill_a_destination(bed, pipeline, speaking, victim, topic, tell, asked)
    killed = time.monotonic()

    def agree() -> bool:
        truth = looked_up(bed, asked)
        ours = owners(pipeline)
        return name not in truth.values() and all(
            owner is not None and ours.get(bundle) == owner for bundle, owner in truth.items()
        )

    try:
        wait_until(agree, "our table to say what lookups say", PATIENCE_S)
    except AssertionError as error:
        raise AssertionError(
            f"{error}\nlookups {looked_up(bed, asked)}\nours {owners(pipeline)}\n"
            f"{agent_log(pipeline)}"
        ) from None
    tell(
        f"{len(lost)} bundles of the killed broker have new owners, known to us after "
        f"{time.monotonic() - killed:.0f} s"
    )


def check_crash_of_the_leader(
    bed: Bed, pipeline: Pipeline, speaking: subprocess.Popen[bytes], dead: int, tell: Any
) -> None:
    """After kill -9 of the leader the last broker leads, and has all bundles.

    `dead` is the broker that was killed before.
    """
    leader = bed.leader()
    assert leader not in (None, dead)
    last = next(number for number in (1, 2, 3) if number not in (leader, dead))
    check_crash(bed, pipeline, speaking, leader, last, tell)
    killed = time.monotonic()
    wait_until(lambda: bed.leader(last) == last, f"{bed.names[last - 1]} to lead", PATIENCE_S)
    tell(f"{bed.names[last - 1]} leads {time.monotonic() - killed:.0f} s later")
