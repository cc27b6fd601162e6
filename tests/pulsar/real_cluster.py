"""A real Pulsar cluster, started by scripts."""

from __future__ import annotations

import importlib.util
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import cycle
from pathlib import Path
from typing import Any

from tests.e2e.pipeline import Pipeline, wait_until
from tests.pulsar.releases import RELEASE
from tests.pulsar.testbed import NAMESPACE, PATIENCE_S, Bed
from tests.support.lbctl_runner import Result, lbctl

PROJECT = Path(__file__).parents[2]

SCRIPTS = Path(os.environ.get("PULSAR_CLUSTER_DIR", ""))
CLUSTER = "pulsar-1"

TOPICS = [f"t{number:02d}" for number in range(24)]


def missing() -> str:
    """Why nothing can be tested here; empty when it can."""
    if not (SCRIPTS / "cluster.sh").is_file():
        return "PULSAR_CLUSTER_DIR names no folder with cluster.sh: run `make test-pulsar`"
    if importlib.util.find_spec("pulsar") is None:
        return (
            "the package pulsar-client, which sends the traffic, is not installed: run `make "
            "test-pulsar`"
        )
    if RELEASE.java_home() is None:
        return (
            f"Pulsar {RELEASE.version} needs Java {RELEASE.oldest_java} or newer: set JAVA_HOME, or "
            "PULSAR_VERSION to an older release"
        )
    return ""


@contextmanager
def agents(
    bed: Bed, pipeline: Pipeline, every_s: int = 2, **settings: object
) -> Iterator[subprocess.Popen[bytes]]:
    """One process that speaks for the three brokers, started as users start it.

    It asks each broker every `every_s`. `settings` are those of the balancer that agents use.
    """
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
        str(every_s),
        "--heartbeat-interval",
        str(every_s),
        *topics,
    ]
    command += [part for name, value in settings.items() for part in ("--set", f"{name}={value}")]
    with (pipeline.folder / "agents.log").open("ab") as log:
        process = subprocess.Popen(command, cwd=PROJECT, stdout=log, stderr=log)
    try:
        wait_until(
            lambda: process.poll() is not None or "runs in cluster" in agent_log(pipeline),
            "the agents to be there",
            PATIENCE_S,
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


def reported_owners(bed: Bed) -> dict[str, str]:
    """Bundle with topics of the traffic's namespace → broker, of brokers that answer.

    Under the modular manager by the statistics in their reports. `ownedNamespaces` isn't asked for:
    while a broker acquires bundles, that can block it for good (5.0.1:
    `getOwnedNameSpacesStatusAsync` waits, in the thread that is to end the waiting). An extensible
    broker has no such report, and answers that otherwise.
    """
    found = bed.listed() if bed.manager == "extensible" else bed.reported()
    return {
        bundle: name
        for name, bundles in found.items()
        for bundle in bundles
        if bundle.startswith(f"{NAMESPACE}/")
    }


def looked_up(bed: Bed, asked: int, topics: Sequence[str] = TOPICS) -> dict[str, str | None]:
    """Bundle → owner by Pulsar's own lookups of all topics."""
    return {bed.bundle_of(topic, asked): bed.owner_of(topic, asked) for topic in topics}


def crowd_onto_the_first_broker(bed: Bed) -> None:
    """The skew to begin with: all that carries traffic is at one broker."""
    bring(bed, dict.fromkeys(looked_up(bed, 1), bed.names[0]))


def spread_over_the_brokers(bed: Bed, topics: Sequence[str]) -> None:
    """Each broker has bundles with these topics, wherever the release has placed them."""
    bundles = sorted(looked_up(bed, 1, topics))
    assert len(bundles) >= len(bed.names), bundles
    bring(bed, dict(zip(bundles, cycle(bed.names), strict=False)), topics)


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
        wait_until(brought, "each bundle to be at its broker", PATIENCE_S)
    except AssertionError as error:
        raise AssertionError(
            f"{error}: {looked_up(bed, 1, topics)}; the last answers {answers[-3:]}"
        ) from None


def settings_of(pipeline: Pipeline) -> list[str]:
    """The options that lead `lbctl` to the pipeline's topics and tables."""
    given = {
        "kafka.bootstrap_servers": pipeline.bootstrap,
        "stream.tables": pipeline.folder / "tables",
    }
    given |= {
        f"topics.{name}": getattr(pipeline.topics, name)
        for name in ("reports", "commands", "results", "decisions", "ownership")
    }
    return [part for name, value in given.items() for part in ("--set", f"{name}={value}")]


def order(pipeline: Pipeline, *command: str) -> Result:
    """What an operator orders: `lbctl` with this command for the cluster."""
    return lbctl(*command, "--cluster", CLUSTER, *settings_of(pipeline), cwd=pipeline.folder)


def pause(pipeline: Pipeline) -> None:
    """Pause the balancer, and wait for what it has decided: then only commands move a bundle."""
    paused = lbctl("clusters", "pause", CLUSTER, *settings_of(pipeline), cwd=pipeline.folder)
    assert paused.code == 0, paused.err

    def is_settled() -> bool:
        ended = {row["decision_id"] for row in rows(pipeline, "outcomes")}
        return all(row["decision_id"] in ended for row in rows(pipeline, "decisions"))

    wait_until(is_settled, "an outcome of each decision", PATIENCE_S)


def unload(pipeline: Pipeline, bundle: str, destination: str, *more: str) -> Result:
    """An operator's move of one bundle."""
    namespace, _, bounds = bundle.rpartition("/")
    return order(
        pipeline, "namespaces", "unload", namespace, "-b", bounds, "-d", destination, *more
    )


def kill_a_destination(
    bed: Bed,
    pipeline: Pipeline,
    speaking: subprocess.Popen[bytes],
    number: int,
    topic: str,
    tell: Any,
    asked: int = 1,
) -> None:
    """A broker is killed when a bundle has been decided to move to it, and before the agents have
    read that: the bundle stays.

    `asked` is a broker that lives on. If the killed one leads, agents may not even know whether
    Pulsar itself balances.
    """
    bundle, destination = bed.bundle_of(topic, asked), bed.names[number - 1]

    def made() -> list[dict[str, Any]]:
        moves = (
            row
            for row in rows(pipeline, "decisions")
            if row["kind"] in ("unload", "transfer") and row["bundle"] == bundle
        )
        return [
            row for row in moves if row["destination"] == destination and row["reason"] == "Admin"
        ]

    source, before = bed.owner_of(topic, asked), len(made())
    is_leader = bed.leader(asked) == number
    assert source not in (None, destination)
    speaking.send_signal(signal.SIGSTOP)
    try:
        assert unload(pipeline, bundle, destination, "--no-wait").code == 0
        wait_until(lambda: len(made()) > before, "the decision", PATIENCE_S)
        bed.kill(number)
    finally:
        speaking.send_signal(signal.SIGCONT)
    decision_id = made()[-1]["decision_id"]

    def outcome() -> dict[str, Any] | None:
        return next(
            (row for row in rows(pipeline, "outcomes") if row["decision_id"] == decision_id), None
        )

    wait_until(lambda: outcome() is not None, f"what became of {decision_id}", PATIENCE_S)
    found = outcome()
    reasons = [f"{destination} does not answer"]
    if is_leader:
        reasons.append("whether Pulsar itself balances is unknown")
    assert (
        found is not None
        and found["outcome"] == "refused"
        and any(reason in found["detail"] for reason in reasons)
    ), found
    # without a leader a lookup may have to wait for the next
    wait_until(lambda: bed.owner_of(topic, asked) is not None, "an owner", PATIENCE_S)
    assert bed.owner_of(topic, asked) == source, "it was unloaded all the same"
    tell(
        f"{bundle} to {destination}, which was killed meanwhile: {found['outcome']} "
        f"({found['detail']})"
    )
