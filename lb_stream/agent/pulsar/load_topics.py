"""Load data of an extensible Pulsar cluster: its brokers write it to topics of their own, not to
the admin API.

Needs the package `pulsar-client` (the extra `pulsar`), imported when the first connection is made.
"""

from __future__ import annotations

import logging
import os
import socket
import threading
from collections import defaultdict, deque
from collections.abc import Callable, Iterable
from typing import Any
from urllib.parse import urlsplit

from lb_stream.agent.adapter import BrokerError
from lb_stream.agent.pulsar.admin import AdminClient, AdminSettings, read_token
from lb_stream.agent.pulsar.guard import RUNTIME

log = logging.getLogger(__name__)

TOPICS = (
    "non-persistent://pulsar/system/loadbalancer-broker-load-data",
    "non-persistent://pulsar/system/loadbalancer-top-bundles-load-data",
)
KEPT = 100
"""Records of a broker that wait to be taken; older ones give way."""
OPERATION_S = 10


def client_library() -> Any:
    """The module `pulsar`. Raises BrokerError, naming what to install, when it isn't there."""
    try:
        import pulsar  # noqa: PLC0415 (optional, and slow to import)
    except ModuleNotFoundError as error:
        if error.name not in ("pulsar", "_pulsar"):
            raise
        raise BrokerError(
            "the load data of an extensible cluster is read with the package pulsar-client, which "
            "is not installed: "
            "pip install 'lb_stream[pulsar]'"
        ) from None
    return pulsar


def discover(admins: Iterable[AdminClient]) -> str:
    """Where the first broker that answers takes clients. Raises BrokerError when none does."""
    troubles = []
    for admin in admins:
        try:
            return service_url(admin.settings, admin.get_json(RUNTIME))
        except BrokerError as error:
            troubles.append(str(error))
    raise BrokerError(f"nobody tells where clients are taken: {'; '.join(troubles)}")


def service_url(settings: AdminSettings, runtime: dict[str, Any]) -> str:
    """Where the broker with these settings in force takes clients, on the host of its admin
    address. Raises BrokerError."""
    host = urlsplit(settings.url).hostname or ""
    tls = settings.url.startswith("https:")
    port = (
        str(runtime.get("brokerServicePortTls" if tls else "brokerServicePort") or "")
        .removeprefix("Optional[")
        .removesuffix("]")
    )
    if not port.isdigit():
        raise BrokerError(
            f"{settings.broker} tells no port for clients: name its address with --service-url"
        )
    return f"{'pulsar+ssl' if tls else 'pulsar'}://{f'[{host}]' if ':' in host else host}:{port}"


class LoadDataTopics:
    """Reads the load data of all brokers of a cluster, and hands each one's out as its broker wrote
    it.

    Records without a value, by which a broker takes its data back for a moment, are not handed on:
    the next ones stand for it.
    """

    def __init__(self, address: Callable[[], str], settings: AdminSettings) -> None:
        """`address` gives pulsar://HOST:PORT or pulsar+ssl://HOST:PORT, several with commas
        between; asked for at the first `take`."""
        self._address, self._settings = address, settings
        self._client: Any = None
        self._waiting: defaultdict[str, deque[bytes]] = defaultdict(lambda: deque(maxlen=KEPT))
        self._lock = threading.Lock()

    def take(self, broker: str) -> list[bytes]:
        """What the broker has written since the last time, in its order.

        Raises BrokerError when the topics can't be read.
        """
        with self._lock:
            if self._client is None:
                self._client = self._connect()
        waiting = self._waiting[broker]
        return [waiting.popleft() for _ in range(len(waiting))]

    def close(self) -> None:
        """Disconnect."""
        with self._lock:
            client, self._client = self._client, None
        if client is not None:
            client.close()

    def _connect(self) -> Any:
        pulsar, address = client_library(), self._address()
        client = pulsar.Client(
            address,
            logger=logging.getLogger("pulsar"),
            operation_timeout_seconds=OPERATION_S,
            **self._options(pulsar),
        )
        try:
            for topic in TOPICS:
                client.subscribe(
                    topic,
                    f"lb-agent-{socket.gethostname()}-{os.getpid()}",
                    message_listener=self._keep,
                )
        except (
            Exception
        ) as error:  # (the client's own errors have no common class across its versions)
            client.close()
            raise BrokerError(
                f"{topic} at {address} can't be read: {type(error).__name__}: {error}"
            ) from error
        return client

    def _options(self, pulsar: Any) -> dict[str, Any]:
        settings, options = self._settings, dict[str, Any]()
        if settings.token is not None or settings.token_file is not None:
            options["authentication"] = pulsar.AuthenticationToken(lambda: read_token(settings))
        elif settings.cert_file is not None:
            options["authentication"] = pulsar.AuthenticationTLS(
                str(settings.cert_file), str(settings.key_file or settings.cert_file)
            )
        if settings.ca_file is not None:
            options["tls_trust_certs_file_path"] = str(settings.ca_file)
        return options | {"tls_validate_hostname": settings.verify_hostname}

    def _keep(self, consumer: Any, message: Any) -> None:
        """Called from the client's own thread."""
        if message.data():
            self._waiting[message.partition_key()].append(message.data())
        consumer.acknowledge(message)
