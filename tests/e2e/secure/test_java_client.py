"""Kafka's client of Spark, in a JVM without Spark: it logs in by each way with the job's options,
and its refusals are understood."""

import re
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pyspark
import pytest
from kafka import KafkaProducer
from py4j.java_gateway import JavaGateway
from py4j.protocol import Py4JJavaError

from lb_stream.access.roles import Right
from lb_stream.contracts.settings import Settings
from lb_stream.io.kafka.options import client_options, spark_options, token_url
from lb_stream.io.kafka.rights import AccessDenied, find_denial
from lb_stream.io.kafka.topics import create_topics, topic_specs
from lb_stream.io.local.jars import jar_paths
from lb_stream.io.local.java import find_java
from lb_stream.io.messages.errors import describe_error
from lb_stream.job.session import TOKENS_ALLOWED
from tests.e2e.secure.roles_at_work import Users, refuses, users_with_rights
from tests.support.certificates import Authority
from tests.support.secure_kafka import ADMIN, Acls, SecureKafka
from tests.support.tokens import TokenIssuer

pytestmark = [pytest.mark.e2e, pytest.mark.long]

BYTES = "org.apache.kafka.common.serialization.ByteArrayDeserializer"
LONGEST_LOOKS = 60


@pytest.fixture(scope="module")
def jvm() -> Iterator[Any]:
    """A JVM with the very jars that Spark has."""
    classes = [Path(pyspark.__file__).parent / "jars" / "*", *jar_paths("spark")]
    path, small = (
        ":".join(map(str, classes)),
        ["-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"],
    )
    gateway = JavaGateway.launch_gateway(
        classpath=path, javaopts=small, java_path=str(find_java().path), die_on_exit=True
    )
    yield gateway.jvm
    gateway.shutdown()


@pytest.fixture(scope="module", params=["scram", "mtls", "bearer"])
def users(
    request: pytest.FixtureRequest,
    secured: SecureKafka,
    acls: Acls,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Users]:
    """Users with their rights; the topics; one report."""
    folder = tmp_path_factory.mktemp("java") / "users"
    with users_with_rights(secured, acls, request.param, folder, f"java-{request.param}") as made:
        create_topics(secured.mtls, topic_specs(made.topics), secured.certified(ADMIN))
        with closing(KafkaProducer(**client_options(made.settings("agent")))) as producer:
            producer.send(made.topics.reports, b"a report", partition=0).get(timeout=60)
        yield made


@contextmanager
def consumer(jvm: Any, settings: Settings) -> Iterator[Any]:
    """One as Spark's Kafka source makes it."""
    properties = jvm.java.util.Properties()
    for name, value in spark_options(settings).items():
        properties.setProperty(name.removeprefix("kafka."), value)
    for side in ("key", "value"):
        properties.setProperty(f"{side}.deserializer", BYTES)
    token = settings.kafka.options.get("sasl_oauth_token_file")
    if token is not None:
        jvm.java.lang.System.setProperty(TOKENS_ALLOWED, token_url(token))
    with closing(jvm.org.apache.kafka.clients.consumer.KafkaConsumer(properties)) as made:
        yield made


def first_value(jvm: Any, settings: Settings) -> bytes:
    """What the reports topic begins with. Raises Py4JJavaError."""
    with consumer(jvm, settings) as reader:
        place = jvm.java.util.Collections.singletonList(
            jvm.org.apache.kafka.common.TopicPartition(settings.topics.reports, 0)
        )
        reader.assign(place)
        reader.seekToBeginning(place)
        for _ in range(LONGEST_LOOKS):
            records = reader.poll(jvm.java.time.Duration.ofSeconds(1)).iterator()
            if records.hasNext():
                return bytes(records.next().value())
    raise AssertionError("nothing has come")


def refusal(jvm: Any, settings: Settings) -> AccessDenied:
    """What the job makes of the client's exception, whose text is all that Spark hands on."""
    with pytest.raises(Py4JJavaError) as met:
        first_value(jvm, settings)
    found = find_denial(settings, str(met.value))
    assert found is not None, met.value
    return found


def test_it_reads_as_the_job_and_a_right_that_is_missing_is_named(
    jvm: Any, users: Users, acls: Acls, tally: Callable[..., None]
) -> None:
    settings, right = users.settings("job"), Right("Read", "topic", users.topics.reports)
    assert first_value(jvm, settings) == b"a report"
    with acls.without(users.principal("job"), right):
        line, code = describe_error(refusal(jvm, settings)) or ("", 0)
    assert code == 1 and re.fullmatch(refuses(users, "job", right), line), line
    tally("java_logins")


def test_a_refused_login_of_it_is_a_wrong_setting(
    jvm: Any, users: Users, tmp_path: Path, tally: Callable[..., None]
) -> None:
    wrong = {
        "sasl_plain_password": "wrong",
        "sasl_oauth_token_file": str(TokenIssuer(tmp_path / "forger").token("lb-job")),
        "ssl_certfile": None,
    }
    (name,) = wrong.keys() & users.options["job"].keys()
    changed = (
        {name: wrong[name]}
        if wrong[name]
        else {"ssl_cafile": str(Authority(tmp_path / "others").certificate)}
    )
    line, code = describe_error(refusal(jvm, users.settings("job", **changed))) or ("", 0)
    assert code == 2 and f"does not let {users.principal('job')} in: " in line, line
    tally("java_logins_refused")
