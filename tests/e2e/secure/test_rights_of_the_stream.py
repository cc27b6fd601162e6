"""Each right of the job is taken while its stream runs: the stream ends with a line that names it,
or goes on where it can."""

import re
import uuid
from collections.abc import Callable, Iterator

import pytest
from pyspark.sql import SparkSession

from lb_stream.access.roles import ROLES
from lb_stream.io.kafka.topics import create_topics, topic_specs
from tests.e2e.pipeline import Pipeline, wait_until
from tests.e2e.secure.jobs import LONGEST_S, Job, Streaming, await_answer, running
from tests.e2e.secure.made_once import assert_made_once
from tests.e2e.secure.roles_at_work import CLUSTER, Users, refuses, users_with_rights
from tests.support.secure_kafka import ADMIN, Acls, SecureKafka

pytestmark = [pytest.mark.jvm, pytest.mark.e2e, pytest.mark.long]

SETTINGS = {
    "dry_run": "false",
    "shedding_enabled": "false",
    "split_enabled": "false",
    "unloading_timeout_ms": 600_000,
    "stream.tick_interval_ms": 500,
    "stream.metrics_address": "",
}
"""Nothing moves but by order, and an order outlives a stream that begins anew."""
NEEDED = [
    (operation, resource)
    for resource, operations in ROLES["job"].items()
    for operation in operations
    if operation != "DescribeConfigs" and (operation, resource) != ("Write", "commands")
]
"""The rights without which it ends: (operation, resource)."""


@pytest.fixture(scope="module")
def users(
    secured: SecureKafka, acls: Acls, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Users]:
    """Users with their rights; the topics; brokers that obey."""
    with users_with_rights(
        secured, acls, "scram", tmp_path_factory.mktemp("stream") / "users", "stream"
    ) as made:
        create_topics(secured.mtls, topic_specs(made.topics), secured.certified(ADMIN))
        agent = made.agent()
        agent.start()
        yield made
        agent.stop()


class Orders:
    """An operator who orders unloads of one namespace after the other.

    `left_over`: one that is not done yet, if there is one.
    """

    def __init__(self, users: Users) -> None:
        self._users, self._sent, self.left_over = users, 0, ""

    def unload(self) -> str:
        """Send one more; the command's id."""
        self._sent += 1
        name, namespace = str(uuid.uuid4()), f"shop/app-{self._sent % 6 + 1:02d}"
        done = self._users.lbctl(
            "operator",
            "namespaces",
            "unload",
            namespace,
            "--cluster",
            CLUSTER,
            "--id",
            name,
            "--no-wait",
        )
        assert done.code == 0, done
        return name

    def wait_for_cluster(self, job: Job) -> None:
        """Wait until the job knows the brokers that are to obey."""
        tables = Pipeline(self._users.bootstrap, self._users.topics, self._users.folder)

        def is_known() -> bool:
            return any(
                row["cluster"] == CLUSTER and row["seq"] > 0
                for row in tables.table("rounds").to_pylist()
            )

        wait_until(lambda: is_known() or not job.lives, "the cluster to be known", LONGEST_S)
        assert job.lives, job.ended()


@pytest.fixture(scope="module")
def orders(users: Users) -> Orders:
    """One operator for all streams."""
    return Orders(users)


def test_without_ticks_it_says_so_once_and_goes_on(
    users: Users,
    orders: Orders,
    spark: SparkSession,
    acls: Acls,
    caplog: pytest.LogCaptureFixture,
    tally: Callable[..., None],
) -> None:
    ticks = users.right_of_job("Write", "commands")
    unused = [
        right for right in users.rights("job") if right.operation == "DescribeConfigs"
    ]  # topics are checked at the start only

    def said() -> list[str]:
        return [text for text in caplog.messages if re.match(refuses(users, "job", ticks), text)]

    with running(Streaming, users, SETTINGS) as job:
        orders.wait_for_cluster(job)
        await_answer(users, job, orders.unload())
        with acls.without(users.principal("job"), ticks, *unused):
            wait_until(lambda: bool(said()) or not job.lives, "a line about the ticks", LONGEST_S)
            await_answer(users, job, orders.unload())
            assert len(said()) == 1
        job.stop()
    tally("rights_taken_from_the_stream")


@pytest.mark.parametrize(("operation", "resource"), NEEDED, ids=["-".join(each) for each in NEEDED])
def test_each_right_that_it_needs_is_named_when_it_is_taken(
    users: Users,
    orders: Orders,
    spark: SparkSession,
    acls: Acls,
    operation: str,
    resource: str,
    tally: Callable[..., None],
) -> None:
    right = users.right_of_job(operation, resource)
    with running(Streaming, users, SETTINGS) as job:
        orders.wait_for_cluster(job)
        await_answer(users, job, orders.left_over or orders.unload())
        with acls.without(users.principal("job"), right):
            orders.left_over = orders.unload()
            line, code = job.ended()
    assert code == 1 and re.fullmatch(refuses(users, "job", right), line), line
    tally("rights_taken_from_the_stream")


def test_what_was_left_over_is_done_and_nothing_is_lost_or_doubled(
    secured: SecureKafka, users: Users, orders: Orders, spark: SparkSession
) -> None:
    for left_over in (orders.left_over, ""):
        with running(Streaming, users, SETTINGS) as job:
            orders.wait_for_cluster(job)
            await_answer(users, job, left_over or orders.unload())
            job.stop()
    assert_made_once(secured, users)
