"""The other brokers of a Pulsar cluster: whether one answers, and who serves a bundle by Pulsar's
own lookup."""

from __future__ import annotations

from dataclasses import replace
from urllib.parse import quote, urlsplit

from lb_stream.agent.pulsar.admin import AdminClient, AdminError
from lb_stream.core.model.names import FULL_RANGE_END, BundleRange
from lb_stream.core.model.topics import topic_hash

READY = "/admin/v2/brokers/ready"
PROBE_S = 2.0
"""How long a broker may take to say that it lives."""
MOST_NAMES = 100_000
"""Names that are tried for a topic in a bundle.

A bundle of a ten-thousandth of its namespace's ring is hit by then all but surely.
"""


def is_answering(admin: AdminClient) -> bool:
    """Whether a broker answers: who asks for a token lives too."""
    try:
        return admin.get(READY, timeout_s=PROBE_S).status in (200, 401, 403)
    except AdminError:
        return False


class Peers:
    """The other brokers of the cluster. `broker` is the id of the one that the agent speaks for."""

    def __init__(self, admin: AdminClient, broker: str) -> None:
        self._admin, self._broker = admin, broker
        self._known: dict[str, AdminClient] = {}

    def is_answering(self, broker: str) -> bool:
        """Whether another broker answers at its own address.

        False too for an id that is no address.
        """
        try:
            return is_answering(self._client(broker))
        except ValueError:
            return False

    def owner(self, bundle: BundleRange) -> str | None:
        """Who serves a bundle; a lookup has it placed when nobody does.

        None: the lookup tells nobody.

        Raises AdminError when nobody answers: a modular broker sends a lookup on to the owner. An
        extensible one names it, dead or alive.
        """
        topic = _topic_in(bundle)
        if topic is None:
            return None
        answer = self._admin.get(
            f"/lookup/v2/topic/non-persistent/{quote(bundle.namespace)}/{topic}"
        )
        if answer.status != 200:
            return None
        found = self._admin.parsed("", answer)
        urls = (
            [urlsplit(str(found.get(name) or "")).netloc for name in ("httpUrl", "httpUrlTls")]
            if isinstance(found, dict)
            else []
        )
        names = [netloc for netloc in urls if netloc]
        return self._broker if self._broker in names else next(iter(names), None)

    def _client(self, broker: str) -> AdminClient:
        """A client for another broker, at the host and port of its id.

        Ids name the port without TLS: if our own address has another port than our id, the other
        broker is asked at that port too.
        """
        if broker not in self._known:
            settings = self._admin.settings
            host, _, port = broker.rpartition(":")
            own = urlsplit(settings.url)
            if self._broker.rpartition(":")[2] != settings.broker.rpartition(":")[2]:
                port = settings.broker.rpartition(":")[2]
            self._known[broker] = AdminClient(
                replace(settings, url=f"{own.scheme}://{host}:{port}")
            )
        return self._known[broker]


def _topic_in(bundle: BundleRange) -> str | None:
    """The name of a topic that would be in the bundle.

    It is only looked up: nothing is made by that, nor need it be there.
    """
    upper = FULL_RANGE_END + 1 if bundle.upper == FULL_RANGE_END else bundle.upper
    names = (f"lb-lookup-{number}" for number in range(MOST_NAMES))
    inside = (
        name
        for name in names
        if bundle.lower <= topic_hash(f"non-persistent://{bundle.namespace}/{name}") < upper
    )
    return next(inside, None)
