"""The whole loop with a real Pulsar cluster: its reports, our job's decisions, its unloads and splits, its lookups. `make test-pulsar`."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from lb_stream.contracts.settings import TopicSettings
from lb_stream.io.local.embedded_kafka import EmbeddedKafka
from tests.e2e.pipeline import Pipeline, wait_until
from tests.pulsar.testbed import NAMESPACE, Bed, started_bed
from tests.support.lbctl_runner import Result, lbctl
from tests.support.webhook import Call, Webhook, webhook

PROJECT = Path(__file__).parents[2]
pytestmark = [pytest.mark.long, pytest.mark.e2e]

SCRIPTS = Path(os.environ.get("PULSAR_CLUSTER_DIR", ""))
CLUSTER = "pulsar-1"
BUNDLES = 8
TOPICS = [f"t{number:02d}" for number in range(24)]
HOT_RATE, RATE = 30.0, 8.0  # messages/s of each topic
SPLIT_ABOVE = 60  # messages/s of a bundle
VETO = "a release is on"
SETTINGS = {
    "dry_run": "false",
    "assign_unowned": "on_lookup",
    "cpu_weight": 0,  # each broker reports the whole machine's: when that is busy, all are overloaded
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


def missing() -> str:
    """Why nothing can be tested here; empty when it can."""
    if not (SCRIPTS / "cluster.sh").is_file():
        return "PULSAR_CLUSTER_DIR names no folder with cluster.sh: run `make test-pulsar`"
    if importlib.util.find_spec("pulsar") is None:
        return "the package pulsar-client, which sends the traffic, is not installed: run `make test-pulsar`"
    return ""


@pytest.fixture(scope="module")
def bed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bed]:
    if reason := missing():
        pytest.skip(reason)
    with started_bed(SCRIPTS, tmp_path_factory.mktemp("pulsar")) as started:
        yield started


@contextmanager
def agents(bed: Bed, pipeline: Pipeline, **settings: object) -> Iterator[subprocess.Popen[bytes]]:
    """One process that speaks for the three brokers, started as users start it. `settings` are those of the balancer that agents use."""
    urls = [part for name in bed.names for part in ("--admin-url", f"http://{name}")]
    named = {name: getattr(pipeline.topics, name) for name in ("reports", "decisions", "ownership")}
    topics = [part for name, topic in named.items() for part in ("--set", f"topics.{name}={topic}")]
    command = [
        sys.executable,
        "-c",
        "from lb_stream.cli.main import main; main()",
        "agent",
        "pulsar",
        *urls,
        "--cluster",
        CLUSTER,
    ]
    command += [
        "--kafka",
        pipeline.bootstrap,
        "--report-interval",
        "2",
        "--heartbeat-interval",
        "2",
        *topics,
    ]
    command += [part for name, value in settings.items() for part in ("--set", f"{name}={value}")]
    with (pipeline.folder / "agents.log").open("ab") as log:
        process = subprocess.Popen(command, cwd=PROJECT, stdout=log, stderr=log)
    try:
        wait_until(
            lambda: process.poll() is not None or "speaking for" in agent_log(pipeline),
            "the agents to be there",
            60,
        )
        assert process.poll() is None, agent_log(pipeline)
        yield process
        assert process.poll() is None, agent_log(pipeline)
    finally:
        process.terminate()
        process.wait(30)


def agent_log(pipeline: Pipeline) -> str:
    return (pipeline.folder / "agents.log").read_text()[-4000:]


def max_over_mean(bed: Bed) -> float:
    """How uneven the brokers' message rates are by their own reports; 3 is all on one of three."""
    rates = [report["msgRateIn"] for report in bed.reports().values()]
    return max(rates) * len(rates) / sum(rates) if sum(rates) else 0.0


def rows(pipeline: Pipeline, table: str) -> list[dict[str, Any]]:
    return pipeline.table(table).to_pylist()


def confirmed(pipeline: Pipeline, kind: str) -> list[dict[str, Any]]:
    """Decisions of a kind that a report has confirmed, with `detail`, oldest first."""
    outcomes = {
        row["decision_id"]: row
        for row in rows(pipeline, "outcomes")
        if row["outcome"] == "confirmed"
    }
    found = [
        row | {"detail": outcomes[row["decision_id"]]["detail"]}
        for row in rows(pipeline, "decisions")
        if row["decision_id"] in outcomes
    ]
    return sorted((row for row in found if row["kind"] == kind), key=lambda row: row["issued_ms"])


def owners(pipeline: Pipeline) -> dict[str, str | None]:
    """Bundle of the traffic's namespace → owner, by our table."""
    return {
        row["bundle"]: row["owner"]
        for row in rows(pipeline, "ownership")
        if row["bundle"].startswith(f"{NAMESPACE}/")
    }


def looked_up(bed: Bed, asked: int, topics: Sequence[str] = TOPICS) -> dict[str, str | None]:
    """Bundle → owner by Pulsar's own lookups of all topics."""
    return {bed.bundle_of(topic, asked): bed.owner_of(topic, asked) for topic in topics}


def crowd_onto_the_first_broker(bed: Bed) -> None:
    """The skew to begin with: all that carries traffic is at one broker."""
    bring(bed, dict.fromkeys(looked_up(bed, 1), bed.names[0]))


def bring(bed: Bed, owners: Mapping[str, str], topics: Sequence[str] = TOPICS) -> None:
    """Unload bundles until each is at its broker."""
    admin = bed.admin(1)
    answers: list[object] = []

    def brought() -> bool:
        elsewhere = {
            bundle for bundle, owner in looked_up(bed, 1, topics).items() if owner != owners[bundle]
        }
        for bundle in elsewhere:
            namespace, _, bounds = bundle.rpartition("/")
            answers.append(
                admin.put(
                    f"/admin/v2/namespaces/{namespace}/{bounds}/unload",
                    {"destinationBroker": owners[bundle]},
                )
            )
        return not elsewhere

    try:
        wait_until(brought, "each bundle to be at its broker", 180)
    except AssertionError as error:
        raise AssertionError(
            f"{error}: {looked_up(bed, 1, topics)}; the last answers {answers[-3:]}"
        ) from None


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
            90,
        )
        crowd_onto_the_first_broker(bed)
        wait_until(
            lambda: max_over_mean(bed) > 2.5, "the first broker to report all of the load", 60
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
            wait_until(lambda: 0 < max_over_mean(bed) < 0.7 * uneven, "the imbalance to fall", 150)
            tell(f"max/mean {max_over_mean(bed):.2f}, it was {uneven:.2f}")
            check_crash(bed, pipeline, speaking, tell)


def check_moves(bed: Bed, pipeline: Pipeline, tell: Any) -> None:
    """A bundle that our decision moved is served by its new owner, and a real report has confirmed it."""
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
            150,
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
    """The move that the hook vetoed was not made, and says so; a confirmed one was asked for, and told."""

    def paths(path: str) -> list[str]:
        return [call.fields["decision_id"] for call in server.calls if call.path == path]

    wait_until(lambda: bool(paths("/after")), "a move to be told", 60)
    vetoed, *allowed = paths("/before")
    told = paths("/after")[0]
    wait_until(
        lambda: told in {move["decision_id"] for move in confirmed(pipeline, "unload")},
        f"{told} in the tables",
        30,
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
        120,
    )
    split = next(split for split in confirmed(pipeline, "split") if split["bundle"] == hot)
    cuts = [child[-10:] for child in split["children"][:-1]]
    assert set(cuts) <= set(bed.boundaries()) and hot.rpartition("/")[2] not in looked_up(bed, 1)
    tell(f"split: {hot} at {', '.join(cuts)} ({split['detail']})")


def unload(pipeline: Pipeline, bundle: str, destination: str, *more: str) -> Result:
    """What an operator orders."""
    given = {
        "kafka.bootstrap_servers": pipeline.bootstrap,
        "stream.tables": pipeline.folder / "tables",
    }
    given |= {
        f"topics.{name}": getattr(pipeline.topics, name)
        for name in ("reports", "commands", "results", "decisions", "ownership")
    }
    settings = [part for name, value in given.items() for part in ("--set", f"{name}={value}")]
    namespace, _, bounds = bundle.rpartition("/")
    command = [
        "namespaces",
        "unload",
        namespace,
        "-b",
        bounds,
        "-d",
        destination,
        "--cluster",
        CLUSTER,
        *more,
    ]
    return lbctl(*command, *settings, cwd=pipeline.folder)


def kill_a_destination(
    bed: Bed,
    pipeline: Pipeline,
    speaking: subprocess.Popen[bytes],
    number: int,
    topic: str,
    tell: Any,
) -> None:
    """A broker is killed when a bundle has been decided to move to it, and before the agents have read that: the bundle stays."""
    bundle, destination, asked = (
        bed.bundle_of(topic),
        bed.names[number - 1],
        1 if number != 1 else 3,
    )

    def made() -> list[dict[str, Any]]:
        moves = (
            row
            for row in rows(pipeline, "decisions")
            if row["kind"] in ("unload", "transfer") and row["bundle"] == bundle
        )
        return [
            row for row in moves if row["destination"] == destination and row["reason"] == "Admin"
        ]

    source, before = bed.owner_of(topic), len(made())
    assert source not in (None, destination)
    speaking.send_signal(signal.SIGSTOP)
    try:
        assert unload(pipeline, bundle, destination, "--no-wait").code == 0
        wait_until(lambda: len(made()) > before, "the decision", 30)
        bed.kill(number)
    finally:
        speaking.send_signal(signal.SIGCONT)
    decision_id = made()[-1]["decision_id"]

    def outcome() -> dict[str, Any] | None:
        return next(
            (row for row in rows(pipeline, "outcomes") if row["decision_id"] == decision_id), None
        )

    wait_until(lambda: outcome() is not None, f"what became of {decision_id}", 90)
    found = outcome()
    assert (
        found is not None
        and found["outcome"] == "refused"
        and f"{destination} does not answer" in found["detail"]
    ), found
    assert bed.owner_of(topic, asked) == source, "it was unloaded all the same"
    tell(
        f"{bundle} to {destination}, which was killed meanwhile: {found['outcome']} ({found['detail']})"
    )


def check_crash(bed: Bed, pipeline: Pipeline, speaking: subprocess.Popen[bytes], tell: Any) -> None:
    """After kill -9 of a broker our ownership table says what the cluster's own lookups say. A bundle was on its way there."""

    def held() -> list[str]:
        return [bundle for bundle, owner in owners(pipeline).items() if owner == bed.names[1]]

    wait_until(lambda: len(held()) >= 2, f"two bundles or more to be at {bed.names[1]}", 120)
    lost = held()
    topic = next(topic for topic in TOPICS if bed.owner_of(topic) not in (None, bed.names[1]))
    kill_a_destination(bed, pipeline, speaking, 2, topic, tell)
    killed = time.monotonic()

    def agree() -> bool:
        truth = looked_up(bed, 3)
        ours = owners(pipeline)
        return bed.names[1] not in truth.values() and all(
            owner is not None and ours.get(bundle) == owner for bundle, owner in truth.items()
        )

    try:
        wait_until(agree, "our table to say what lookups say", 180)
    except AssertionError as error:
        raise AssertionError(
            f"{error}\nlookups {looked_up(bed, 3)}\nours {owners(pipeline)}\n{agent_log(pipeline)}"
        ) from None
    tell(
        f"{len(lost)} bundles of the killed broker have new owners, known to us after {time.monotonic() - killed:.0f} s"
    )
