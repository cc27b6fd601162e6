"""A right that is taken while a program runs: who follows goes on or ends, and says in one line who
lacks what. No job is needed."""

import logging
import re
import time
from collections.abc import Callable, Iterator

import pytest
from kafka import KafkaProducer

from lb_stream.access import refusals
from lb_stream.access.roles import Right
from lb_stream.agent import producer
from lb_stream.contracts.decisions import example_decision
from lb_stream.io.kafka.topics import create_topics, topic_specs
from lb_stream.io.lookup import Lookup, LookupConfig, client
from tests.e2e.kafka_reads import committed
from tests.e2e.secure.roles_at_work import CLUSTER, Users, refuses, users_with_rights
from tests.support.secure_kafka import ADMIN, Acls, SecureKafka

pytestmark = [pytest.mark.e2e, pytest.mark.long]

LONGEST_S = 120
TRIES_S = 3.0
"""In this time a program that tries again every second has done so."""


@pytest.fixture(scope="module")
def users(
    secured: SecureKafka, acls: Acls, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Users]:
    """Users with their rights; the topics. Nobody balances."""
    with users_with_rights(
        secured, acls, "scram", tmp_path_factory.mktemp("running") / "users", "running"
    ) as made:
        create_topics(secured.mtls, topic_specs(made.topics), secured.certified(ADMIN))
        yield made


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who goes on tries again every second."""
    for module in (refusals, producer, client):
        monkeypatch.setattr(module, "AGAIN_S", 1.0)
    logging.getLogger("kafka").setLevel(logging.CRITICAL)


def until(condition: Callable[[], object], what: str) -> None:
    """Wait for something to become true."""
    end = time.monotonic() + LONGEST_S
    while not condition():
        assert time.monotonic() < end, f"waited {LONGEST_S} s for {what}"
        time.sleep(0.1)


class Taken:
    """A right that a role has lost, and the lines that say so."""

    def __init__(
        self, users: Users, acls: Acls, caplog: pytest.LogCaptureFixture, tally: Callable[..., None]
    ) -> None:
        self.users, self.acls, self.caplog, self.tally = users, acls, caplog, tally

    def is_said_once(
        self, role: str, operation: str, topic: str, meanwhile: Callable[[], object] = lambda: None
    ) -> None:
        """Take it, wait for the line, and give it back; `meanwhile` is done again and again."""
        right = Right(operation, "topic", topic)

        def lines() -> list[str]:
            meanwhile()
            return [
                text
                for text in self.caplog.messages
                if re.fullmatch(refuses(self.users, role, right), text)
            ]

        self.caplog.clear()
        with self.acls.without(self.users.principal(role), right):
            until(lines, f"a line about {right}")
            time.sleep(TRIES_S)
            assert len(lines()) == 1
        self.tally("rights_taken_while_running")


@pytest.fixture
def taken(
    users: Users, acls: Acls, caplog: pytest.LogCaptureFixture, tally: Callable[..., None]
) -> Taken:
    return Taken(users, acls, caplog, tally)


def test_an_agent_says_so_once_and_goes_on_when_it_has_the_right_again(
    users: Users, taken: Taken
) -> None:
    agent, topics = users.agent(), users.topics
    agent.start()
    try:
        for operation, topic in (
            ("Write", topics.reports),
            ("Read", topics.decisions),
            ("Read", topics.ownership),
        ):
            taken.is_said_once("agent", operation, topic)
            assert agent.running
            until(lambda: not agent.reporter._unsent, "all brokers to be heard again")
    finally:
        agent.stop()


def test_a_lookup_server_says_so_once_and_goes_on_when_it_has_the_right_again(
    users: Users, taken: Taken
) -> None:
    topics = users.topics
    config = LookupConfig(
        users.bootstrap,
        topics.ownership,
        topics.commands,
        topics.results,
        client_options=users.options["lookup"],
    )
    with Lookup(config) as lookup:

        def ask() -> None:
            namespace = f"shop/x{time.monotonic_ns()}"
            lookup._request_owner(CLUSTER, namespace, f"persistent://{namespace}/y", None)

        for topic in (topics.ownership, topics.results):
            taken.is_said_once("lookup", "Read", topic)
            last = lookup._read_at or 0.0
            until(
                lambda last=last: (lookup._read_at or 0.0) > last,
                "the records to be read to their end again",
            )
        taken.is_said_once("lookup", "Write", topics.commands, ask)


def test_who_follows_decisions_ends_with_a_line(
    secured: SecureKafka, users: Users, acls: Acls, tally: Callable[..., None]
) -> None:
    right = Right("Read", "topic", users.topics.decisions)
    with (
        users.program("follower", "decisions", "--follow", "--json") as follower,
        KafkaProducer(bootstrap_servers=secured.mtls, **secured.certified(ADMIN)) as anybody,
    ):
        anybody.send(users.topics.decisions, example_decision().to_json().encode()).get(
            timeout=LONGEST_S
        )
        until(lambda: follower.objects, "the follower to print")
        with acls.without(users.principal("follower"), right):
            said, code = follower.ended(LONGEST_S)
    assert code == 1 and re.fullmatch(refuses(users, "follower", right) + "\n", said), said
    tally("rights_taken_while_running")


def test_an_operator_who_waits_for_an_answer_is_told(
    secured: SecureKafka, users: Users, acls: Acls, tally: Callable[..., None]
) -> None:
    right, login = Right("Read", "topic", users.topics.results), secured.certified(ADMIN)
    with users.program(
        "operator", "clusters", "pause", CLUSTER, "--timeout", str(LONGEST_S)
    ) as operator:
        until(
            lambda: (
                b"pause-cluster"
                in b"".join(
                    one.value for one in committed(secured.mtls, users.topics.commands, **login)
                )
            ),
            "a command",
        )
        with acls.without(users.principal("operator"), right):
            said, code = operator.ended(LONGEST_S)
    assert code == 1 and re.fullmatch(refuses(users, "operator", right) + "\n", said), said
    tally("rights_taken_while_running")
