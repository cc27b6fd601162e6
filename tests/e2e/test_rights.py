"""A right that Kafka does not give is told as that: whoever reads the message keeps checkpoint and
topics. A real broker with ACLs."""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from kafka import KafkaAdminClient
from kafka.admin import (
    ACL,
    ACLFilter,
    ACLOperation,
    ACLPermissionType,
    ACLResourcePatternType,
    ResourcePattern,
    ResourcePatternFilter,
    ResourceType,
)

from lb_stream.contracts.settings import Settings, TopicSettings
from lb_stream.contracts.tables import ROUNDS
from lb_stream.io.kafka.checkpoint import LostRecords, require_none_lost
from lb_stream.io.kafka.outbox import Outbox
from lb_stream.io.kafka.rights import AccessDenied, find_denial
from lb_stream.io.kafka.topics import create_topics, topic_specs
from lb_stream.kit import embedded_kafka
from lb_stream.kit.embedded_kafka import EmbeddedKafka
from lb_stream.stream.ports import Logged
from tests.e2e.pipeline import wait_until

pytestmark = pytest.mark.e2e

PROJECT = Path(__file__).parents[2]
TOPICS = TopicSettings()


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedKafka]:
    """A broker that has the topics, and obeys ACLs where there are some."""
    properties = embedded_kafka.server_properties
    more = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "allow.everyone.if.no.acl.found": "true",
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(embedded_kafka, "server_properties", lambda *given: properties(*given) | more)
        with EmbeddedKafka(tmp_path_factory.mktemp("guarded")) as kafka:
            create_topics(kafka.bootstrap, topic_specs())
            yield kafka


class Denials:
    """Takes rights away, and gives them back at the end."""

    def __init__(self, bootstrap: str) -> None:
        self._admin = KafkaAdminClient(bootstrap_servers=bootstrap)

    def deny(self, topic: str, operation: ACLOperation) -> None:
        self._admin.create_acls(
            [
                ACL(
                    "User:ANONYMOUS",
                    "*",
                    operation,
                    ACLPermissionType.DENY,
                    ResourcePattern(ResourceType.TOPIC, topic),
                )
            ]
        )

    def end(self) -> None:
        everything = ResourcePatternFilter(ResourceType.TOPIC, None, ACLResourcePatternType.ANY)
        self._admin.delete_acls(
            [ACLFilter(None, None, ACLOperation.ANY, ACLPermissionType.ANY, everything)]
        )
        self._admin.close()


@pytest.fixture
def rights(guarded: EmbeddedKafka) -> Iterator[Denials]:
    denials = Denials(guarded.bootstrap)
    yield denials
    denials.end()


def settings(kafka: EmbeddedKafka) -> Settings:
    return Settings.model_validate({"kafka": {"bootstrap_servers": kafka.bootstrap}})


def test_topics_that_may_not_be_described_are_not_taken_for_lost_ones(
    guarded: EmbeddedKafka, rights: Denials
) -> None:
    wanted = {(TOPICS.reports, 0): 0, (TOPICS.commands, 0): 0}
    assert require_none_lost(settings(guarded), wanted, new_checkpoint=False) == ""
    with pytest.raises(LostRecords, match="was-there, partition 0"):
        require_none_lost(settings(guarded), {("was-there", 0): 5}, new_checkpoint=False)
    rights.deny(TOPICS.reports, ACLOperation.DESCRIBE)
    with pytest.raises(AccessDenied, match=f"missing Read on topic {TOPICS.reports}") as error:
        require_none_lost(settings(guarded), wanted, new_checkpoint=False)
    assert "stream.checkpoint" not in str(error.value)


def test_a_job_that_may_not_describe_its_topics_says_so_in_one_line(
    guarded: EmbeddedKafka, rights: Denials
) -> None:
    rights.deny(TOPICS.commands, ACLOperation.DESCRIBE)
    command = [
        sys.executable,
        PROJECT / "jobs" / "balance.py",
        "--set",
        f"kafka.bootstrap_servers={guarded.bootstrap}",
    ]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=120, cwd=PROJECT, check=False
    )
    assert done.returncode == 1
    # Spark is being started meanwhile, and says things of its own.
    assert re.search(
        rf"^balance.py: Kafka at {guarded.bootstrap} refuses User:ANONYMOUS: missing Read on topic "
        rf"{TOPICS.commands}.*\n",
        done.stderr,
        re.MULTILINE,
    )
    assert "Traceback" not in done.stderr


def test_a_batch_that_may_not_be_published_is_no_absence_of_kafka(
    guarded: EmbeddedKafka, rights: Denials
) -> None:
    outbox = Outbox(settings(guarded))
    try:
        outbox.fence()
        outbox.read_watermark(default=0)
        rights.deny(TOPICS.decisions, ACLOperation.READ)
        with pytest.raises(AccessDenied, match=f"missing Read on topic {TOPICS.decisions}"):
            outbox.publish(Logged(0, ROUNDS.schema.empty_table()))
    finally:
        outbox.close()


def test_what_sparks_client_says_of_a_missing_right_is_found_in_its_text(
    guarded: EmbeddedKafka,
) -> None:
    text = (
        "Job aborted\nCaused by: org.apache.kafka.common.errors.TopicAuthorizationException: "
        "Not authorized to access topics: [x]\n at y"
    )
    given = settings(guarded)
    shown = "refuses User:ANONYMOUS: missing a right (Not authorized to access topics: [x])."
    # Kafka takes a moment to forget what the test before has denied.
    wait_until(lambda: shown in str(find_denial(given, text)), "no right to be missing", 60)
    assert find_denial(given, "org.apache.kafka.common.errors.TimeoutException: Timeout") is None
