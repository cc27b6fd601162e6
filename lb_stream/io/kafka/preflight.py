"""Asks Kafka what this user may do, before a program begins: every missing right is named at once,
and none is met half-way."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing, suppress
from typing import Any

from kafka import KafkaAdminClient
from kafka.admin import ConfigResource, ConfigResourceType
from kafka.errors import (
    BrokerResponseError,
    GroupAuthorizationFailedError,
    KafkaError,
    TopicAuthorizationFailedError,
    TransactionalIdAuthorizationFailedError,
    UnknownTopicOrPartitionError,
)

from lb_stream.access.refusals import (
    REFUSED,
    AccessRefusal,
    LoginRefused,
    build_rights_refusal,
    find_refusal,
)
from lb_stream.access.roles import IMPLY_DESCRIBE, Right
from lb_stream.io.kafka.clients import kafka_python_options

CONNECT_MS = 10_000
_CONFIGS = "DescribeConfigs"
_MAKE = "Create"


def require_rights(
    where: str, options: Mapping[str, Any], rights: Sequence[Right], patience_ms: int = CONNECT_MS
) -> list[str]:
    """Make sure that Kafka gives these rights.

    Returns the topics among them that aren't there: of those it tells nothing more.

    `where`: host:port, several with commas between; `options`: kafka.options. Raises Refusal, and
    KafkaError when nobody answers within `patience_ms`.
    """
    try:
        client = KafkaAdminClient(
            bootstrap_servers=where.split(","),
            bootstrap_timeout_ms=patience_ms,
            **kafka_python_options(options),
        )
        with closing(client):
            missing, absent = find_missing_rights(client, rights)
    except REFUSED as error:
        raise (find_refusal(where, options, error) or error) from error
    if missing:
        raise build_rights_refusal(where, options, missing)
    return absent


def name_missing_rights(
    where: str, options: Mapping[str, Any], rights: Sequence[Right], refusal: AccessRefusal
) -> AccessRefusal:
    """A refusal met half-way, by the names of the rights that are missing: Kafka is asked for those
    that the program needs, as its errors name no operation. The same refusal where Kafka tells no
    more than that."""
    if not isinstance(refusal, LoginRefused):
        try:
            with suppress(KafkaError):
                require_rights(where, options, rights)
        except AccessRefusal as named:
            return named
    return refusal


def find_missing_rights(
    admin: KafkaAdminClient, rights: Sequence[Right]
) -> tuple[list[Right], list[str]]:
    """The rights that Kafka doesn't give, and the topics that aren't there.

    Kafka tells every right to a topic that may be described; of the rights to others, to groups and
    to transactional ids it tells whether there is any. That is all, as each of these rights implies
    Describe.
    """
    topics = list(dict.fromkeys(right.name for right in rights if right.kind == "topic"))
    states = {state["name"]: state for state in admin.describe_topics(topics)} if topics else {}
    absent = [
        name for name in topics if states[name]["error_code"] == UnknownTopicOrPartitionError.errno
    ]
    hidden = {
        name for name in topics if states[name]["error_code"] == TopicAuthorizationFailedError.errno
    }
    missing = []
    for right in rights:
        if right.kind == "topic":
            gone = (
                _hides(admin, right)
                if right.name in hidden
                else right.name not in absent and _lacks(states[right.name], right)
            )
        else:
            gone = not (_sees_group if right.kind == "group" else _sees_transactional_id)(
                admin, right.name
            )
        if gone:
            missing.append(right)
    return missing, absent


def _lacks(state: Mapping[str, Any], right: Right) -> bool:
    """Whether a topic's state leaves a right out.

    Brokers before 2.3 tell none; nobody needs Create of what is there.
    """
    told = state.get("authorized_operations")
    return (
        told is not None
        and right.operation != _MAKE
        and operation_constant(right.operation) not in told
    )


def _hides(admin: KafkaAdminClient, right: Right) -> bool:
    """Whether a right to a topic that may not be described is missing, as far as can be told."""
    if right.operation != _CONFIGS:
        return right.operation in IMPLY_DESCRIBE
    found = admin.describe_configs(
        [ConfigResource(ConfigResourceType.TOPIC, right.name)], config_filter="all"
    )
    return not found["topic"][right.name]


def _sees_group(admin: KafkaAdminClient, name: str) -> bool:
    try:
        error = admin.describe_groups([name])[name]["error"] or ""
    except GroupAuthorizationFailedError:
        return False
    except BrokerResponseError:  # its coordinator isn't there yet: nothing can be told
        return True
    return GroupAuthorizationFailedError.__name__ not in error


def _sees_transactional_id(admin: KafkaAdminClient, name: str) -> bool:
    try:
        admin.describe_transactions([name])
    except TransactionalIdAuthorizationFailedError:
        return False
    except BrokerResponseError:  # nobody has used the id yet, or its coordinator isn't there yet
        return True
    return True


def operation_constant(operation: str) -> str:
    """Kafka's word for an operation as kafka-python writes it: DescribeConfigs →
    DESCRIBE_CONFIGS."""
    return "".join(
        f"_{letter}" if letter.isupper() else letter.upper() for letter in operation
    ).lstrip("_")
