"""Which bundles a broker owns, by questions that can't block it.

`GET …/ownedNamespaces` names all of them. But a modular broker of Pulsar 5.0.1 can block for good
while it answers: the answer waits for bundles that the broker is acquiring, and may do so in the
very thread that is to end the waiting. A question about one bundle waits in no thread. So bundles
are asked for one by one where they are few, the list is read seldom, and after a request without an
answer no other is sent for a while.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Set
from urllib.parse import quote

from lb_stream.agent.pulsar.admin import AdminClient, AdminResponse, AdminTimeout
from lb_stream.core.model.names import is_system_bundle, parse_bundle

MAX_QUESTIONS = 32
"""How many bundles are asked for one by one; more of them by one list."""
LIST_MAX_AGE_S = 30.0
"""How long a list is believed to name what is owned, but for bundles given up by the agent."""
FIRST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 30.0
"""How long a broker that has not answered is not asked again; each time twice as long."""
_ELSEWHERE = {204, 307, 308, 404, 412}
"""Not owned; owned by another broker (two); no such namespace; no such bundle."""
_BEING_UNLOADED = "is being unloaded"
"""Part of the reason with which 5.0.1 answers 500 for a bundle that is leaving its broker."""


def growing_pauses(first_s: float, longest_s: float) -> Iterator[float]:
    """Yield pauses in seconds: each one twice as long as the one before, up to the longest."""
    pause_s = first_s
    while True:
        yield pause_s
        pause_s = min(2 * pause_s, longest_s)


class OwnedBundles:
    """The bundles of one broker. One thread asks, so that one request is in flight at most."""

    def __init__(
        self,
        admin: AdminClient,
        broker: str,
        find_cluster: Callable[[], str],
        clock: Callable[[], float],
    ) -> None:
        """`find_cluster` returns Pulsar's name of the cluster. `clock` gives seconds."""
        self._admin, self._broker, self._clock = admin, broker, clock
        self._find_cluster = find_cluster
        self._listed: set[str] = set()
        self._listed_at: float | None = None
        self._pauses = growing_pauses(FIRST_PAUSE_S, LONGEST_PAUSE_S)
        self._silent_until: float | None = None

    def read_all(self) -> set[str]:
        """Return the bundles that the broker owns, without those that it is unloading.

        Raises AdminError.
        """
        cluster, broker = quote(self._find_cluster()), quote(self._broker, safe=":")
        path = f"/admin/v2/brokers/{cluster}/{broker}/ownedNamespaces"
        answer = self._ask(path, follow=True)
        owned = self._admin.parse_as(path, answer, dict[str, dict[str, object] | None])
        return {
            bundle
            for bundle, state in owned.items()
            if (state or {}).get("is_active", True) and not is_system_bundle(bundle)
        }

    def is_owned(self, bundle: str) -> bool:
        """Return whether the broker owns a bundle now, and is not unloading it.

        For modular and simple brokers. The question lists the bundle's non-persistent topics, of
        which there are few. It places no bundle. Raises AdminError.
        """
        parsed = parse_bundle(bundle)
        path = f"/admin/v2/non-persistent/{quote(parsed.namespace)}/{bundle.rpartition('/')[2]}"
        answer = self._ask(path, follow=False)
        is_leaving = answer.status == 500 and _BEING_UNLOADED in answer.reason
        if is_leaving or answer.status in _ELSEWHERE:
            return False
        if answer.status != 200:
            raise self._admin.refusal("GET", path, answer)
        return True

    def find_owned(self, bundles: Set[str]) -> set[str]:
        """Return those of the bundles that the broker owns. For modular and simple brokers.

        Of more than MAX_QUESTIONS bundles an answer may be LIST_MAX_AGE_S old. Raises AdminError.
        """
        if len(bundles) <= MAX_QUESTIONS:
            return {bundle for bundle in sorted(bundles) if self.is_owned(bundle)}
        now = self._clock()
        is_recent = self._listed_at is not None and now - self._listed_at < LIST_MAX_AGE_S
        if not is_recent or len(bundles - self._listed) > MAX_QUESTIONS:
            self._listed, self._listed_at = self.read_all(), now
        else:
            came = sorted(bundles - self._listed)
            self._listed |= {bundle for bundle in came if self.is_owned(bundle)}
        return self._listed & bundles

    def note_gone(self, bundle: str) -> None:
        """Note that the broker has been told to give up a bundle: an earlier list is void."""
        self._listed.discard(bundle)

    def forget(self) -> None:
        """Forget the list, and that an answer is missing: the broker is asked anew."""
        self._listed, self._listed_at = set(), None
        self._pauses = growing_pauses(FIRST_PAUSE_S, LONGEST_PAUSE_S)
        self._silent_until = None

    def _ask(self, path: str, follow: bool) -> AdminResponse:
        """Send a request.

        Raises AdminError; AdminTimeout also without sending, for a while after a request that was
        not answered in time: the broker may still be busy with that one.
        """
        silent_s = 0.0 if self._silent_until is None else self._silent_until - self._clock()
        if silent_s > 0:
            raise AdminTimeout(
                f"GET {self._admin.settings.url}{path}: not sent, as the last request had no "
                f"answer in time; the next one is sent in {silent_s:.0f} s"
            )
        try:
            answer = self._admin.get(path, follow=follow)
        except AdminTimeout:
            self._silent_until = self._clock() + next(self._pauses)
            raise
        self._pauses = growing_pauses(FIRST_PAUSE_S, LONGEST_PAUSE_S)
        return answer
