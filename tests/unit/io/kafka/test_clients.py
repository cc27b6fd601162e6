"""A client that is refused says so at its next attempt, without a broker."""

import ssl
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
from kafka.errors import KafkaConnectionError, KafkaTimeoutError, SaslAuthenticationFailedError
from kafka.producer.sender import Sender
from kafka.producer.transaction_manager import InitProducerIdHandler, TransactionManager

from lb_stream.access.refusals import TlsRefused
from lb_stream.io.kafka.clients import (
    FAST_RETRY,
    RECONNECT,
    _build_client,
    close_producer,
    kafka_python_options,
)

UNTRUSTED = KafkaConnectionError(ssl.SSLError("tlsv13 alert certificate required"))


@pytest.fixture
def manager() -> Any:
    """Of a client that knows two addresses and has reached no broker."""
    made = _build_client(bootstrap_servers=["127.0.0.1:1", "127.0.0.1:2"])._manager
    yield made
    made.close()


def test_a_refused_password_is_raised_by_the_next_attempt(manager: Any) -> None:
    first = manager.cluster.bootstrap_brokers()[0].node_id
    manager._remember(first, KafkaConnectionError("111 ECONNREFUSED"))
    manager.maybe_raise_auth_failure(first)
    manager._remember(first, SaslAuthenticationFailedError("invalid credentials"))
    with pytest.raises(SaslAuthenticationFailedError):
        manager.maybe_raise_auth_failure(first)


def test_one_brokers_certificate_leaves_the_others_to_be_tried(manager: Any) -> None:
    first, second = (broker.node_id for broker in manager.cluster.bootstrap_brokers())
    manager._remember(first, UNTRUSTED)
    manager.maybe_raise_auth_failure(first)
    manager._remember(second, UNTRUSTED)
    with pytest.raises(TlsRefused, match="certificate required"):
        manager.maybe_raise_auth_failure(first)


def test_who_has_reached_kafka_tries_on_for_ever(manager: Any) -> None:
    first = manager.cluster.bootstrap_brokers()[0].node_id
    manager._bootstrap_future = SimpleNamespace(succeeded=lambda: True)
    manager._remember(first, SaslAuthenticationFailedError("invalid credentials"))
    manager.maybe_raise_auth_failure(first)


def test_whoever_is_waited_for_asks_for_partitions_soon(manager: Any) -> None:
    soon = _build_client(bootstrap_servers=["127.0.0.1:1"], **FAST_RETRY)._manager
    try:
        assert soon.cluster.refresh_backoff() == FAST_RETRY["retry_backoff_ms"]
        assert manager.cluster.refresh_backoff() == 100  # the client's own
    finally:
        soon.close()


def test_every_client_is_back_soon_after_kafka_unless_it_is_told_otherwise() -> None:
    assert kafka_python_options({}).items() >= RECONNECT.items()
    given = {"reconnect_backoff_max_ms": 7}
    assert kafka_python_options(given).items() >= given.items()


def test_a_transaction_that_finds_kafka_away_keeps_its_requests() -> None:
    """kafka-python's own client drops the request, and the transaction waits for ever."""
    client = _build_client(bootstrap_servers=["127.0.0.1:1"])
    try:
        transactions = TransactionManager("pipeline", 1_000, 1, (2, 5), client.cluster)
        transactions._transaction_coordinator = client.cluster.bootstrap_brokers()[0].node_id
        transactions.initialize_transactions()
        accumulator = Mock(has_incomplete=False)
        sender = Sender(client, client.cluster, accumulator, transaction_manager=transactions)
        sender._maybe_send_pending_request()
        waiting = [type(handler) for *_, handler in transactions._pending_requests]
        assert InitProducerIdHandler in waiting
    finally:
        client.close()


def test_a_producer_that_cannot_deliver_is_closed_all_the_same() -> None:
    error = KafkaTimeoutError()
    producer = Mock(close=Mock(side_effect=error), _closed=False)
    assert close_producer(producer, 0) is error
    producer._sender.force_close.assert_called_once()
    assert producer._closed
