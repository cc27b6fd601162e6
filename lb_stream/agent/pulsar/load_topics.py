"""Load data of an extensible Pulsar cluster, which its brokers write to topics.

Needs the package `pulsar-client` (the extra `pulsar`), imported when the first connection is made.
"""

from __future__ import annotations

import logging
import os
import socket
import threading
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol
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
"""How many records of a broker may wait to be taken. Then the oldest is dropped."""
OPERATION_S = 10


def import_client() -> Any:
    """Import and return the module `pulsar`. Raises BrokerError that names what to install."""
    try:
        import pulsar  # noqa: PLC0415 (optional, and slow to import)
    except ModuleNotFoundError as error:
        if error.name not in ("pulsar", "_pulsar"):
            raise
        raise BrokerError(
            "an extensible cluster's load data is read with the package pulsar-client, which is "
            "not installed: pip install 'lb_stream[pulsar]'"
        ) from None
    return pulsar


def find_service_url(admins: Iterable[AdminClient]) -> str:
    """Return the address for clients of the first broker that answers.

    Raises BrokerError when none answers.
    """
    troubles = []
    for admin in admins:
        try:
            return build_service_url(admin.settings, admin.get_json(RUNTIME))
        except BrokerError as error:
            troubles.append(str(error))
    raise BrokerError(f"no broker gives its address for clients: {'; '.join(troubles)}")


def build_service_url(settings: AdminSettings, runtime: Mapping[str, object]) -> str:
    """Return a broker's address for clients, on the host of its admin address.

    `runtime` holds the broker's settings in force. Raises BrokerError when they lack a port.
    """
    host = urlsplit(settings.url).hostname or ""
    tls = settings.url.startswith("https:")
    port = (
        str(runtime.get("brokerServicePortTls" if tls else "brokerServicePort") or "")
        .removeprefix("Optional[")
        .removesuffix("]")
    )
    if not port.isdigit():
        raise BrokerError(
            f"the settings of {settings.broker} have no port for clients: name its address with "
            "--service-url"
        )
    scheme = "pulsar+ssl" if tls else "pulsar"
    return f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}"


class PulsarMessage(Protocol):
    """What is used of pulsar-client's Message."""

    def data(self) -> bytes: ...
    def partition_key(self) -> str: ...


class PulsarConsumer(Protocol):
    """What is used of pulsar-client's Consumer."""

    def acknowledge(self, message: PulsarMessage) -> None: ...


class PulsarClient(Protocol):
    """What is used of pulsar-client's Client."""

    def subscribe(
        self,
        topic: str,
        subscription_name: str,
        *,
        message_listener: Callable[[PulsarConsumer, PulsarMessage], None],
    ) -> object: ...
    def close(self) -> None: ...


class LoadDataTopics:
    """Reads the load data of all brokers of a cluster, and gives each broker's unchanged.

    Records without a value are left out: a broker deletes its data for a moment before it writes
    new data.
    """

    def __init__(self, find_address: Callable[[], str], settings: AdminSettings) -> None:
        """Connect at the first `take`.

        `find_address` gives pulsar://HOST:PORT or pulsar+ssl://HOST:PORT, or several with commas
        between them.
        """
        self._find_address, self._settings = find_address, settings
        self._client: PulsarClient | None = None
        self._waiting: defaultdict[str, deque[bytes]] = defaultdict(lambda: deque(maxlen=KEPT))
        self._lock = threading.Lock()

    def take(self, broker: str) -> list[bytes]:
        """Return what the broker has written since the last call, in its order.

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

    def _connect(self) -> PulsarClient:
        pulsar, address = import_client(), self._find_address()
        client: PulsarClient = pulsar.Client(
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
        except Exception as error:  # the client's errors have no common class across its versions
            client.close()
            raise BrokerError(
                f"{topic} at {address} can't be read: {type(error).__name__}: {error}"
            ) from error
        return client

    def _options(self, pulsar: Any) -> dict[str, object]:
        settings = self._settings
        options: dict[str, object] = {}
        if settings.token is not None or settings.token_file is not None:
            options["authentication"] = pulsar.AuthenticationToken(lambda: read_token(settings))
        elif settings.cert_file is not None:
            options["authentication"] = pulsar.AuthenticationTLS(
                str(settings.cert_file), str(settings.key_file or settings.cert_file)
            )
        if settings.ca_file is not None:
            options["tls_trust_certs_file_path"] = str(settings.ca_file)
        return options | {"tls_validate_hostname": settings.verify_hostname}

    def _keep(self, consumer: PulsarConsumer, message: PulsarMessage) -> None:
        """Keep a record; the client's own thread calls this."""
        if message.data():
            self._waiting[message.partition_key()].append(message.data())
        consumer.acknowledge(message)
