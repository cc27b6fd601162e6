"""The other brokers of a Pulsar cluster: whether they answer, and which of them serves a bundle."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from urllib.parse import quote, urlsplit

from lb_stream.agent.pulsar.admin import AdminClient, AdminError, UnusableAnswer
from lb_stream.core.model.names import FULL_RANGE_END, BundleRange
from lb_stream.core.model.topics import topic_hash

READY = "/admin/v2/brokers/ready"
PROBE_S = 2.0
"""How long a broker may take to answer that it is ready."""
MAX_NAMES = 100_000
"""How many names are tried to find one whose hash is in a bundle.

For a bundle with a ten-thousandth of the hash range the search fails once in 22,000 times.
"""


def probe(admin: AdminClient) -> bool:
    """Return whether a broker is ready; an answer that asks for a token counts too.

    Raises AdminError when there is no answer.
    """
    return admin.get(READY, timeout_s=PROBE_S).status in (200, 401, 403)


def is_answering(admin: AdminClient) -> bool:
    """Return whether a broker answers, as `probe`; False also without an answer."""
    try:
        return probe(admin)
    except AdminError:
        return False


class Peers:
    """The other brokers of the cluster. `broker` is the id of the agent's own broker."""

    def __init__(self, admin: AdminClient, broker: str) -> None:
        self._admin, self._broker = admin, broker
        self._clients: dict[str, AdminClient] = {}

    def is_answering(self, broker: str) -> bool:
        """Return whether another broker answers; False also for an id that is no address."""
        try:
            return is_answering(self._client(broker))
        except ValueError:
            return False

    def find_owner(self, bundle: BundleRange) -> str | None:
        """Look up which broker serves a bundle; None: the lookup names no broker.

        Pulsar places a bundle without an owner when a topic of it is looked up. A modular broker
        redirects the lookup to the owner, an extensible one names the owner, dead or alive. Raises
        AdminError when no broker answers.
        """
        return self._look_up(self._admin, bundle, {})

    def ask_to_take(self, bundle: BundleRange, destination: str) -> str | None:
        """Ask a modular broker to take a bundle that has no owner; return which broker serves it.

        The lookup is authoritative: the destination doesn't ask the leader, which may place the
        bundle elsewhere. If another broker serves the bundle, it stays there. None: no broker has
        it yet, another is just taking it, or the destination doesn't answer.
        """
        try:
            client = self._client(destination)
            return self._look_up(client, bundle, {"authoritative": "true"}, timeout_s=PROBE_S)
        except (AdminError, ValueError):
            return None

    def _look_up(
        self,
        admin: AdminClient,
        bundle: BundleRange,
        query: dict[str, str],
        timeout_s: float | None = None,
    ) -> str | None:
        topic = _topic_in(bundle)
        if topic is None:
            return None
        path = f"/lookup/v2/topic/non-persistent/{quote(bundle.namespace)}/{topic}"
        answer = admin.get(path, query, timeout_s)
        if answer.status != 200:
            return None
        found = self._admin.parse("", answer)
        if not isinstance(found, dict):
            return None
        if broker_id := found.get("brokerId"):  # since Pulsar 5.0
            return str(broker_id)
        urls = [str(found.get(name) or "") for name in ("httpUrl", "httpUrlTls")]
        try:
            names = list(filter(None, (urlsplit(url).netloc for url in urls)))
        except ValueError:
            raise UnusableAnswer(f"GET {path}: expected addresses, got {urls}", 200) from None
        return self._broker if self._broker in names else next(iter(names), None)

    def _client(self, broker: str) -> AdminClient:
        """Return a client for another broker, at the host and port of its id.

        Ids name the port without TLS. If the own address has another port than the own id, that
        port is taken for other brokers too.
        """
        if broker not in self._clients:
            settings = self._admin.settings
            host, _, port = broker.rpartition(":")
            own = urlsplit(settings.url)
            if self._broker.rpartition(":")[2] != settings.broker.rpartition(":")[2]:
                port = settings.broker.rpartition(":")[2]
            self._clients[broker] = AdminClient(
                replace(settings, url=f"{own.scheme}://{host}:{port}")
            )
        return self._clients[broker]


@lru_cache(maxsize=128)
def _topic_in(bundle: BundleRange) -> str | None:
    """Return a topic's name whose hash is in the bundle; None if none of the tried names is.

    The topic need not exist: a lookup doesn't create it.
    """
    upper = FULL_RANGE_END + 1 if bundle.upper == FULL_RANGE_END else bundle.upper
    names = (f"lb-lookup-{number}" for number in range(MAX_NAMES))
    inside = (
        name
        for name in names
        if bundle.lower <= topic_hash(f"non-persistent://{bundle.namespace}/{name}") < upper
    )
    return next(inside, None)
