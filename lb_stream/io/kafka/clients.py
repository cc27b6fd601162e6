"""What every kafka-python client is made with, so that a refusal is heard at once, and nobody waits
without need.

The client itself (3.0.12) takes a refused login for an absence: by TLS it drops the broker's last
words, and in any case it tries on for 30 s, then says that it is "unable to bootstrap". And
`retry_backoff_ms` never reaches what asks for topics' partitions.
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kafka.net.compat import KafkaNetClient
from kafka.net.manager import KafkaConnectionManager
from kafka.net.sasl.oauth import AbstractTokenProvider
from kafka.net.selector import NetworkSelector

from lb_stream.access.refusals import LOGINS_REFUSED, TlsRefused

TOKEN_FILE = "sasl_oauth_token_file"

FAST_RETRY: Mapping[str, Any] = {"retry_backoff_ms": 10}
"""For clients of which there are few, and that somebody waits for.

The client's own 100 ms pass before it asks for topics' partitions, and up to twice in each
transaction. Agents keep them: hundreds that ask a hundred times a second would be a burden to a
Kafka in trouble.
"""


class TokenFile(AbstractTokenProvider):  # type: ignore[misc]
    """A bearer token from a file, read anew for each login: whoever fetches tokens replaces the
    file."""

    def __init__(self, path: str) -> None:
        self._path = Path(path)

    def token(self) -> str:
        """The token. Raises OSError."""
        return self._path.read_text().strip()


def kafka_python_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments for kafka-python's clients from `kafka.options`: its own names, and TOKEN_FILE."""
    given = dict(options)
    if TOKEN_FILE in given:
        given["sasl_oauth_token_provider"] = TokenFile(str(given.pop(TOKEN_FILE)))
    return {"kafka_client": _client, **given}


def _client(**configs: Any) -> KafkaNetClient:
    net = NetworkSelector(**configs)
    return KafkaNetClient(net=net, manager=_Manager(net, **configs))


class _Manager(KafkaConnectionManager):  # type: ignore[misc]
    """Remembers a login that was refused before the client has reached anybody: its next attempt
    raises that.

    One broker's certificate may be out of order: TLS must have failed with each address. Once the
    client has reached somebody, nothing is remembered: passwords and certificates may be on their
    way from one machine to the next.
    """

    def __init__(self, net: Any, **configs: Any) -> None:
        super().__init__(net, **configs)
        self.cluster.config |= {
            name: value for name, value in configs.items() if name in FAST_RETRY
        }
        self._refused: dict[Any, BaseException] = {}

    async def _build_transport(self, *more: Any, **named: Any) -> Any:
        """What comes just before the end of a connection is read, too: by TLS it is why the login
        is refused."""
        transport = await super()._build_transport(*more, **named)
        receive = transport._sock_recv

        def received() -> tuple[bytes, Exception | None]:
            data, error = receive()
            return data, None if data else error  # the end is there at the next look

        transport._sock_recv = received
        return transport

    async def _connect(self, node: Any, conn: Any, *more: Any, **named: Any) -> None:
        await super()._connect(node, conn, *more, **named)
        conn.init_future.add_errback(lambda error: self._remember(node.node_id, error))

    def _remember(self, node_id: Any, error: BaseException) -> None:
        if self.bootstrapped or (refusal := find_login_refusal(error)) is None:
            return
        self._refused[node_id] = refusal
        everybody = {broker.node_id for broker in self.cluster.bootstrap_brokers()}
        if not isinstance(refusal, TlsRefused) or everybody <= self._refused.keys():
            self._auth_failures.update(self._refused)


def find_login_refusal(error: BaseException) -> BaseException | None:
    """What to raise instead of trying on, when a connection failed for this; None: Kafka may only
    be away."""
    if isinstance(error, LOGINS_REFUSED):
        return error
    cause = next(
        (
            one
            for one in (error, error.__context__, *error.args)
            if isinstance(one, ssl.SSLError | FileNotFoundError)
        ),
        None,
    )
    if cause is None or isinstance(cause, ssl.SSLEOFError | ssl.SSLZeroReturnError):
        return None
    return TlsRefused(_reason(cause))


def _reason(cause: BaseException) -> str:
    if isinstance(cause, ssl.SSLCertVerificationError):
        return f"the broker's certificate is not trusted: {cause.verify_message}"
    if isinstance(cause, FileNotFoundError):
        return f"{cause.filename or 'a file of kafka.options'}: {cause.strerror}"
    return str(getattr(cause, "reason", None) or cause).replace("_", " ").lower()
