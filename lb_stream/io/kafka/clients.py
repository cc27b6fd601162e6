"""Makes every kafka-python client report a refusal at once, and wait no longer than needed.

kafka-python 3.0.12 takes a refused login for a broker that is away: with TLS it drops the broker's
last bytes, and in any case it retries for 30 s, then says that it is "unable to bootstrap". Its
`retry_backoff_ms` never reaches the code that asks for topics' partitions. And a producer loses the
request of a transaction that it has to send while Kafka is away (`_Client`).
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kafka import KafkaProducer
from kafka.errors import KafkaConnectionError, KafkaError
from kafka.net.compat import KafkaNetClient
from kafka.net.manager import KafkaConnectionManager
from kafka.net.sasl.oauth import AbstractTokenProvider
from kafka.net.selector import NetworkSelector

from lb_stream.access.refusals import LOGINS_REFUSED, TlsRefused

TOKEN_FILE = "sasl_oauth_token_file"

FAST_RETRY: Mapping[str, object] = {"retry_backoff_ms": 10}
"""For the few clients that people or brokers wait for.

The client's own 100 ms pass before it asks for topics' partitions, and up to twice in each
transaction. Agents keep the 100 ms: hundreds of agents that ask a hundred times a second would
burden a Kafka that is in trouble already.
"""

RECONNECT: Mapping[str, object] = {"reconnect_backoff_max_ms": 1_000}
"""Longest pause of every client between two attempts to connect.

It is the default of Kafka's client in Java. kafka-python's own 30 s make a client come back up to
twice as late as Kafka itself.
"""


class TokenFile(AbstractTokenProvider):  # type: ignore[misc]
    """A bearer token in a file, which is read for each login, so that the file may be replaced."""

    def __init__(self, path: str) -> None:
        self._path = Path(path)

    def token(self) -> str:
        """Read the token. Raises OSError."""
        return self._path.read_text().strip()


def kafka_python_options(options: Mapping[str, object]) -> dict[str, object]:
    """Return the arguments of a kafka-python client for the setting `kafka.options`.

    `options`: kafka-python's own names, and TOKEN_FILE.
    """
    given = dict(options)
    if TOKEN_FILE in given:
        given["sasl_oauth_token_provider"] = TokenFile(str(given.pop(TOKEN_FILE)))
    return {"kafka_client": _build_client, **RECONNECT, **given}


def _build_client(**configs: object) -> KafkaNetClient:
    net = NetworkSelector(**configs)
    return _Client(net=net, manager=_ConnectionManager(net, **configs))


class _Client(KafkaNetClient):  # type: ignore[misc]
    """Says that a broker is not ready, where kafka-python raises an error.

    A producer has a request of its transaction sent again if the coordinator is not ready. Upon an
    error it drops the request (kafka-python 3.0.12), and the transaction waits for ever.
    """

    def await_ready(self, node_id: object, timeout_ms: int = 30_000) -> bool:
        """Connect to a broker, and return whether it may be sent a request."""
        try:
            return bool(super().await_ready(node_id, timeout_ms=timeout_ms))
        except KafkaConnectionError:
            return False


class _ConnectionManager(KafkaConnectionManager):  # type: ignore[misc]
    """Raises a refused login at the next attempt, if no broker has accepted one before.

    A refusal for TLS must have come from every address, because one broker's certificate may be out
    of order. After the first login that succeeds no refusal is remembered: passwords and
    certificates may be changing from one machine to the next.
    """

    def __init__(self, net: NetworkSelector, **configs: object) -> None:
        super().__init__(net, **configs)
        self.cluster.config |= {
            name: value for name, value in configs.items() if name in FAST_RETRY
        }
        self._refused: dict[object, BaseException] = {}

    async def _build_transport(self, *args: object, **kwargs: object) -> object:
        """Build a transport that also reads what comes just before the end of a connection.

        With TLS, those bytes say why the login is refused.
        """
        transport = await super()._build_transport(*args, **kwargs)
        receive = transport._sock_recv

        def receive_all() -> tuple[bytes, Exception | None]:
            data, error = receive()
            return data, None if data else error  # the next call returns the end

        transport._sock_recv = receive_all
        return transport

    async def _connect(self, node: Any, conn: Any, *args: object, **kwargs: object) -> None:
        await super()._connect(node, conn, *args, **kwargs)
        conn.init_future.add_errback(lambda error: self._remember(node.node_id, error))

    def _remember(self, node_id: object, error: BaseException) -> None:
        if self.bootstrapped or (refusal := find_login_refusal(error)) is None:
            return
        self._refused[node_id] = refusal
        addresses = {broker.node_id for broker in self.cluster.bootstrap_brokers()}
        if not isinstance(refusal, TlsRefused) or addresses <= self._refused.keys():
            self._auth_failures.update(self._refused)


def close_producer(producer: KafkaProducer, timeout_s: float) -> KafkaError | None:
    """Close a producer, which may take `timeout_s` to deliver what waits in it.

    Returns the error if records are left: they are dropped.
    """
    try:
        producer.close(timeout=timeout_s)
    except KafkaError as error:
        # kafka-python leaves such a producer open: it would try again, and log errors, when it is
        # garbage-collected.
        producer._sender.force_close()
        producer._closed = True
        return error
    return None


def find_login_refusal(error: BaseException) -> BaseException | None:
    """Return the refused login behind a failed connection; None if Kafka may only be away."""
    if isinstance(error, LOGINS_REFUSED):
        return error
    for cause in (error, error.__context__, *error.args):
        if isinstance(cause, ssl.SSLEOFError | ssl.SSLZeroReturnError):
            return None
        if isinstance(cause, ssl.SSLError | FileNotFoundError):
            return TlsRefused(_describe_cause(cause))
    return None


def _describe_cause(cause: ssl.SSLError | FileNotFoundError) -> str:
    if isinstance(cause, ssl.SSLCertVerificationError):
        return f"the broker's certificate is not trusted: {cause.verify_message}"
    if isinstance(cause, FileNotFoundError):
        return f"{cause.filename or 'a file of kafka.options'}: {cause.strerror}"
    return str(getattr(cause, "reason", None) or cause).replace("_", " ").lower()
