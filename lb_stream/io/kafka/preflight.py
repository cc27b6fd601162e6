"""Asks Kafka which rights this user has before a program begins.

So every missing right is named at once, and none is met half-way.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing, suppress
from typing import TypedDict

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
_DESCRIBE_CONFIGS = "DescribeConfigs"
_CREATE = "Create"


class _TopicState(TypedDict):
    """What Kafka says about a topic, as far as it is used here.

    `authorized_operations`: missing or None from brokers before 2.3.
    """

    name: str
    error_code: int
    authorized_operations: list[str] | None


def require_rights(
    where: str,
    options: Mapping[str, object],
    rights: Sequence[Right],
    patience_ms: int = CONNECT_MS,
) -> list[str]:
    """Require that Kafka gives these rights, and return the topics among them that don't exist.

    Of a topic that doesn't exist Kafka tells no rights. `where`: host:port, several with commas
    between; `options`: the setting `kafka.options`. Raises AccessRefusal, and KafkaError when no
    broker answers within `patience_ms`.
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
    where: str, options: Mapping[str, object], rights: Sequence[Right], refusal: AccessRefusal
) -> AccessRefusal:
    """Return a refusal that names the missing ones of `rights`, for one that was met half-way.

    Kafka's errors name no operation, so it is asked for all rights that the program needs. Returns
    the same refusal if that finds nothing more.
    """
    if isinstance(refusal, LoginRefused):
        return refusal
    try:
        with suppress(KafkaError):
            require_rights(where, options, rights)
    except AccessRefusal as named:
        return named
    return refusal


def find_missing_rights(
    admin: KafkaAdminClient, rights: Sequence[Right]
) -> tuple[list[Right], list[str]]:
    """Return the rights that Kafka doesn't give, and the topics that don't exist.

    Kafka lists the operations on a topic that this user may describe. Of other topics, groups and
    transactional ids it only shows whether this user may describe them. That is enough: each right
    that is used here implies Describe.
    """
    topics = list(dict.fromkeys(right.name for right in rights if right.kind == "topic"))
    states: dict[str, _TopicState] = {}
    if topics:
        states = {state["name"]: state for state in admin.describe_topics(topics)}
    codes = {name: states[name]["error_code"] for name in topics}
    absent = [name for name in topics if codes[name] == UnknownTopicOrPartitionError.errno]
    hidden = {name for name in topics if codes[name] == TopicAuthorizationFailedError.errno}

    def is_missing(right: Right) -> bool:
        if right.kind == "group":
            return not _may_describe_group(admin, right.name)
        if right.kind != "topic":
            return not _may_describe_transactional_id(admin, right.name)
        if right.name in hidden:
            return _lacks_right_to_hidden_topic(admin, right)
        return right.name not in absent and _lacks_right(states[right.name], right)

    return [right for right in rights if is_missing(right)], absent


def _lacks_right(state: _TopicState, right: Right) -> bool:
    """Return whether a right is not among those that Kafka lists for a topic.

    Create isn't needed for a topic that exists.
    """
    operations = state.get("authorized_operations")
    if operations is None or right.operation == _CREATE:
        return False
    return operation_constant(right.operation) not in operations


def _lacks_right_to_hidden_topic(admin: KafkaAdminClient, right: Right) -> bool:
    """Return whether a right is missing to a topic that may not be described; False if unknown."""
    if right.operation != _DESCRIBE_CONFIGS:
        return right.operation in IMPLY_DESCRIBE
    resource = ConfigResource(ConfigResourceType.TOPIC, right.name)
    found = admin.describe_configs([resource], config_filter="all")
    return not found["topic"][right.name]


def _may_describe_group(admin: KafkaAdminClient, name: str) -> bool:
    try:
        error = admin.describe_groups([name])[name]["error"] or ""
    except GroupAuthorizationFailedError:
        return False
    except BrokerResponseError:  # its coordinator isn't available: nothing is known
        return True
    return GroupAuthorizationFailedError.__name__ not in error


def _may_describe_transactional_id(admin: KafkaAdminClient, name: str) -> bool:
    try:
        admin.describe_transactions([name])
    except TransactionalIdAuthorizationFailedError:
        return False
    except BrokerResponseError:  # the id has never been used, or its coordinator isn't available
        return True
    return True


def operation_constant(operation: str) -> str:
    """Return kafka-python's constant for an operation: DescribeConfigs → DESCRIBE_CONFIGS."""
    return "".join(
        f"_{letter}" if letter.isupper() else letter.upper() for letter in operation
    ).lstrip("_")
