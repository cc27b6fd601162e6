"""The whole loop on a secured broker: topics made, brokers that report and obey, a job with Spark,
an operator, a follower, lookups.

Each as a user of its own with the least rights of its role. The job loses a right on its way, ends
with a line, and goes on when it is started again with it.
"""

import json
import re
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from lb_stream.access.roles import Right
from lb_stream.agent import Agent
from lb_stream.contracts.commands import Tick
from lb_stream.io.leadership.topic import parse_leadership_record
from tests.e2e.kafka_reads import committed
from tests.e2e.pipeline import Pipeline, wait_until
from tests.e2e.secure.jobs import LONGEST_S, Streaming, Submitted, await_answer, running
from tests.e2e.secure.made_once import assert_made_once
from tests.e2e.secure.roles_at_work import CLUSTER, Program, Users, refuses, users_with_rights
from tests.support.secure_kafka import ADMIN, Acls, SecureKafka

pytestmark = [pytest.mark.jvm, pytest.mark.e2e, pytest.mark.long]

Kind = type[Submitted | Streaming]
SETTINGS = {
    "dry_run": "false",
    "split_enabled": "false",
    "shedding_interval_ms": 2_000,
    "history_ratio": 0.2,
    "threshold_percent": 5,
    "min_throughput_mb": 1.0,
    "unloading_timeout_ms": 600_000,
    "stream.tick_interval_ms": 500,
    "stream.metrics_address": "",
}
"""Sheds soon: one of the three brokers runs hot. An order outlives a job that is started again."""


@dataclass
class Loop:
    """Everybody but the job at work."""

    kafka: SecureKafka
    users: Users
    agent: Agent
    follower: Program
    lookups: str  # where they are answered
    taken: Right

    def has_done(self, *arguments: str) -> str:
        """An operator's command, done."""
        result = self.users.lbctl("operator", *arguments, "--timeout", str(LONGEST_S))
        assert result.code == 0 and result.out.startswith("done: "), (arguments, result)
        return result.out

    def look_up(self, topic: str) -> dict[str, Any]:
        """What a client is answered."""
        try:
            with urllib.request.urlopen(
                f"{self.lookups}/lookup?topic={topic}&cluster={CLUSTER}", timeout=30
            ) as answer:
                found: dict[str, Any] = json.load(answer)
        except urllib.error.HTTPError as error:
            found = json.load(error)
        return found

    def records(self, topic: str) -> list[Any]:
        """All that is on a topic."""
        return committed(self.kafka.mtls, topic, **self.kafka.certified(ADMIN))


@contextmanager
def loop_of(kafka: SecureKafka, users: Users, taken: Right) -> Iterator[Loop]:
    """Topics, and programs of all roles but the job's."""
    made = users.lbctl("create", "topics", "create")
    assert made.code == 0, made
    agent = users.agent()
    with (
        users.program("follower", "decisions", "--follow", "--json") as follower,
        users.program("lookup", "lookup-server", "--json", "--address", "127.0.0.1:0") as lookups,
    ):
        wait_until(lambda: bool(lookups.objects), "the lookup server", LONGEST_S)
        agent.start()
        try:
            yield Loop(kafka, users, agent, follower, lookups.objects[0]["url"], taken)
        finally:
            agent.stop()


def first_lead(loop: Loop, kind: Kind, acls: Acls) -> None:
    """It balances and obeys until it loses a right, and says which one it is."""
    users = loop.users
    with running(kind, users, SETTINGS) as job:
        wait_until(
            lambda: bool(loop.follower.objects) or not job.lives,
            "a decision of the balancer's own",
            LONGEST_S,
        )
        assert job.lives, job.ended()
        loop.has_done("clusters", "pause", CLUSTER)
        loop.has_done("namespaces", "unload", "shop/app-01")
        with acls.without(users.principal("job"), loop.taken):
            sent = users.lbctl(
                "operator", "namespaces", "unload", "shop/app-02", "--id", "left-over", "--no-wait"
            )
            assert sent.code == 0, sent
            line, code = job.ended()
    assert code == 1 and re.fullmatch(refuses(users, "job", loop.taken), line), line


def second_lead(loop: Loop, kind: Kind) -> None:
    """Started again it does what was left over, gives an owner to what is looked up, and ends when
    it is asked to."""
    with running(kind, loop.users, SETTINGS) as job:
        await_answer(loop.users, job, "left-over")
        loop.has_done("config", "set", "assign_unowned", "on_lookup")
        loop.has_done("namespaces", "create", "shop/lazy")
        wait_until(
            lambda: bool(loop.look_up("persistent://shop/lazy/first").get("broker")),
            "an owner of what was looked up",
            LONGEST_S,
        )
        found = loop.look_up("persistent://shop/lazy/first")
        wait_until(
            lambda: loop.agent.adapters[found["broker"]].owns(found["bundle"]),
            "the broker to serve it",
            LONGEST_S,
        )
        job.stop()


def assert_followed(loop: Loop, decisions: list[str]) -> None:
    """The follower has printed each decision once."""
    wait_until(
        lambda: len(loop.follower.objects) >= len(decisions),
        "the follower to have printed all",
        LONGEST_S,
    )
    assert Counter(one["decision_id"] for one in loop.follower.objects) == Counter(decisions)


def assert_one_led_at_a_time(loop: Loop) -> None:
    """There are two epochs or more, and none ticks any more once the next one has."""
    signs = [
        parse_leadership_record(record.value) for record in loop.records(loop.users.topics.commands)
    ]
    epochs = [sign.epoch for sign in signs if isinstance(sign, Tick) and not sign.ends]
    assert epochs == sorted(epochs) and len(set(epochs)) >= 2


def whole_loop(
    kafka: SecureKafka, acls: Acls, way: str, kind: Kind, lost: tuple[str, str], folder: Path
) -> dict[str, Any]:
    """Run it, with a job that loses a right (operation and resource) on its way; what was run, with
    counts."""
    with users_with_rights(kafka, acls, way, folder, f"loop-{way}") as users:
        taken = users.right_of_job(*lost)
        with loop_of(kafka, users, taken) as loop:
            first_lead(loop, kind, acls)
            second_lead(loop, kind)
            decisions = assert_made_once(kafka, users)
            assert_followed(loop, decisions)
            assert_one_led_at_a_time(loop)
        ids = {
            row["id"]
            for row in Pipeline(users.bootstrap, users.topics, users.folder)
            .table("commands")
            .to_pylist()
        }
    looked_up = sum(name.startswith("lookup-") for name in ids)
    counts = {"decisions": len(decisions), "commands": len(ids) - looked_up, "lookups": looked_up}
    return {"login": way, "job": kind.__name__.lower(), "lost": str(taken), **counts}


def test_every_decision_is_made_once_by_a_submitted_job(
    secured: SecureKafka, acls: Acls, tmp_path: Path, last_words: dict[str, Any]
) -> None:
    run = whole_loop(secured, acls, "scram", Submitted, ("Read", "reports"), tmp_path / "users")
    last_words.setdefault("loops", []).append(run)


@pytest.mark.parametrize(
    ("way", "lost"),
    [("mtls", ("Write", "decisions")), ("bearer", ("Write", "transactions"))],
    ids=["mtls", "bearer"],
)
def test_every_decision_is_made_once_by_certificates_and_by_tokens(
    secured: SecureKafka,
    acls: Acls,
    spark: SparkSession,
    way: str,
    lost: tuple[str, str],
    tmp_path: Path,
    last_words: dict[str, Any],
) -> None:
    run = whole_loop(secured, acls, way, Streaming, lost, tmp_path / "users")
    last_words.setdefault("loops", []).append(run)
