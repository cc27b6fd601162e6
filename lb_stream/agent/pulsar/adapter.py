"""A real Apache Pulsar broker as an agent's adapter: its load reports come out, unloads and splits
go in, through its admin REST API.

    adapter = PulsarAdapter(AdminClient(AdminSettings("http://broker-1:8080")))
    Agent(AgentConfig("kafka:9092", cluster="eu-1"), [adapter]).start()

What its brokers can do: unload a bundle to a destination, split one. What they can't: take a bundle
because they are told to. Pulsar places a bundle when a client looks one of its topics up, after a
crash too; the balancer follows what is reported (`assign_unowned = "on_lookup"`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from itertools import pairwise
from typing import Protocol
from urllib.parse import quote

from lb_stream.agent.adapter import BrokerError, Refused
from lb_stream.agent.pulsar.admin import AdminClient, AdminError, AdminResponse
from lb_stream.agent.pulsar.guard import SettingsGuard
from lb_stream.agent.pulsar.load_data import LoadDataCompleter
from lb_stream.agent.pulsar.namespaces import bundle_boundaries, read_cluster
from lb_stream.agent.pulsar.peers import Peers, is_answering
from lb_stream.agent.pulsar.report import ReportCheck
from lb_stream.agent.pulsar.stats import BundleTraffic, read_bundles
from lb_stream.contracts.balancer import MANAGER_CLASSES
from lb_stream.contracts.namespaces import ClusterNamespaces
from lb_stream.contracts.reports import BundleStats
from lb_stream.core.model.names import BundleRange, is_system_bundle, parse_bundle
from lb_stream.core.splitting import Topics

LOAD_REPORT = "/admin/v2/broker-stats/load-report"
SETTLE_S = 5.0
"""How long the effect of an act may take to be seen after its answer. Measured: 0.4 s at most."""
STALE_S = 10.0
"""How much longer than the interval of the broker's statistics a report may not know of a
change."""
DEFAULT_STATS_S = 60.0
RETURN_S = 1.0
"""How long an unload without a destination is watched: Pulsar's own placement mostly gives the
bundle back, in a quarter of a second."""
LOOK_EVERY_S = 0.1

RANGE, POSITIONS, FLOW = (
    "range_equally_divide",
    "specified_positions_divide",
    "flow_or_qps_equally_divide",
)


class LoadData(Protocol):
    """Where the load data of an extensible cluster's brokers comes from
    (`load_topics.LoadDataTopics`)."""

    def take(self, broker: str) -> list[bytes]:
        """The records that the broker has written since it was last asked for, as it wrote them."""
        ...


class PulsarAdapter:
    """Speaks for one broker: see `lb_stream.agent.BrokerAdapter`.

    It refuses to act while Pulsar balances by itself.

    `broker` is its id where that isn't host:port of the admin address; `load_data` is needed on an
    extensible cluster only.
    """

    def __init__(
        self,
        admin: AdminClient,
        broker: str | None = None,
        load_data: LoadData | None = None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """`clock` and `sleep` are in seconds."""
        self._admin, self._broker = admin, broker or admin.settings.broker
        self.guard = SettingsGuard(admin, clock)
        self._load_data, self._clock, self._sleep = load_data, clock, sleep
        self._known = False
        self._told = LoadDataCompleter()
        self._measured: dict[
            str, BundleTraffic
        ] = {}  # by bundle, when the statistics of all topics were last asked for
        self._peers, self._check = Peers(admin, self._broker), ReportCheck(clock)

    @property
    def name(self) -> str:
        """The broker's id, host:port of its web service."""
        return self._broker

    @property
    def manager(self) -> str:
        """Which of Pulsar's load managers the broker runs: modular, simple or extensible.

        Raises BrokerError.
        """
        given = str(self._runtime().get("loadManagerClassName", ""))
        try:
            return MANAGER_CLASSES[given.rpartition(".")[2]]
        except KeyError:
            raise BrokerError(
                f"{self.name} runs the load manager {given!r}: expected one of "
                f"{', '.join(MANAGER_CLASSES)}"
            ) from None

    @property
    def pulsar_cluster(self) -> str:
        """What Pulsar calls the broker's cluster. Raises BrokerError."""
        return str(self._runtime().get("clusterName", ""))

    @property
    def statistics_s(self) -> float:
        """How often the broker takes the statistics that its reports are made of, in seconds.

        Raises BrokerError.
        """
        try:
            return float(str(self._runtime().get("statsUpdateFrequencyInSecs", DEFAULT_STATS_S)))
        except ValueError:
            return DEFAULT_STATS_S

    # --- what the balancer hears ---

    def alive(self) -> bool:
        """Whether the broker answers: who asks for a token lives too."""
        alive = is_answering(self._admin)
        if not alive:
            self._forget()
        return alive

    def report(self) -> bytes | list[bytes]:
        """The broker's own load report, byte for byte; on an extensible cluster what it has written
        since the last one, with its bundles.

        Asking makes a modular broker compute it anew, but from statistics that it takes every
        `statsUpdateFrequencyInSecs`. Until then it may name bundles that have gone, by whomever's
        unload, or not name one that has come. Such a report is kept back (none is returned); one
        that stays so is sent without what is untrue. Raises BrokerError.
        """
        self._introduce()
        if self.manager == "extensible":
            if self._load_data is None:
                raise BrokerError(
                    f"{self.name} is of an extensible cluster: its load data is read from topics, "
                    "and nobody reads them here"
                )
            owned = self._owned()  # first: what is taken and not passed on is lost
            return self._told.records(self._load_data.take(self.name), owned)
        answer = self._admin.get(LOAD_REPORT)
        if answer.status != 200:
            self._forget()
            raise self._admin.refusal("GET", LOAD_REPORT, answer)
        if not answer.body.lstrip().startswith(b"{"):
            raise BrokerError(
                f"GET {answer.hops[-1]}{LOAD_REPORT}: expected a JSON object, got "
                f"{answer.reason[:80]!r}"
            )
        report = self._check.checked(answer.body, self._owned(), self.statistics_s + STALE_S)
        return [] if report is None else report

    def owns(self, bundle: str) -> bool:
        """Whether the broker serves the bundle now; a bundle that it is letting go of doesn't
        count. Raises BrokerError."""
        return bundle in self._owned()

    def stats(self) -> Mapping[str, BundleStats]:
        """Statistics of all bundles that are served, under the extensible manager; under the others
        none: there the leader looks at the reports, which name them all. Raises BrokerError."""
        if self.manager != "extensible":
            return {}
        self._measured, owned = read_bundles(self._admin), self._owned()
        return {
            bundle: measured.stats for bundle, measured in self._measured.items() if bundle in owned
        }

    def topics(self, bundle: str) -> Topics:
        """The topics of one of the bundles that `stats` has just named."""
        return self._measured[bundle].topics

    def balances(self) -> list[str]:
        """The settings by which Pulsar balances by itself, here or at the leader.

        Raises BrokerError.
        """
        return list(self.guard.active_balancers())

    def namespaces(self) -> ClusterNamespaces:
        """Namespaces, bundles and policies of the broker's cluster as they are now.

        Raises BrokerError.
        """
        return read_cluster(self._admin, self.pulsar_cluster)

    # --- what the balancer decides ---

    def transfer(self, bundle: str, destination: str) -> None:
        """Unload a bundle so that the destination serves it.

        Raises Refused for what can't be, BrokerError for what went wrong.

        The destination must answer, before and after. Pulsar's destination holds for one lookup
        only, and another one at the same time may place the bundle elsewhere (apache/pulsar#24884):
        then it is asked for once more.
        """
        if destination == self.name:  # modular: it would come back; extensible: 500
            raise Refused(f"{bundle} is to go to {destination}, which has it")
        self._checked(bundle)
        if not self._peers.is_answering(destination):
            raise Refused(f"{destination} does not answer: {bundle} stays at {self.name}")
        self._unload(bundle, {"destinationBroker": destination})
        owner = self._arrived(bundle, destination)
        if owner not in (None, destination):
            self._unload_again(bundle, destination, f"{owner} has it")
            owner = self._arrived(bundle, destination)
        if owner not in (None, destination):
            raise BrokerError(f"{bundle} was unloaded to {destination} twice, and {owner} has it")
        if not self._soon(lambda: not self.owns(bundle)):
            raise BrokerError(
                f"{bundle} is still at {self.name} {SETTLE_S:.0f} s after it was unloaded to "
                f"{destination}"
            )

    def release(self, bundle: str) -> None:
        """Unload a bundle; Pulsar places it at the next lookup.

        Raises BrokerError when it has come back here at once.
        """
        self._unload(bundle, {})
        self._sleep(RETURN_S)
        if self.owns(bundle):
            raise BrokerError(
                f"{bundle} was unloaded, and Pulsar's own placement has given it back to "
                f"{self.name}: name a destination"
            )

    def acquire(self, bundle: str) -> None:
        """Look whether the bundle is here, and do nothing else: a Pulsar broker can't be told to
        take one. Raises Refused when it isn't."""
        if not self._soon(lambda: self.owns(bundle), RETURN_S):
            raise Refused(
                "Pulsar places bundles when clients look their topics up (set assign_unowned = "
                "on_lookup)"
            )
        self._check.taken(bundle)

    def split(
        self, bundle: str, boundaries: Sequence[int], algorithm: str, unload_children: bool = False
    ) -> None:
        """Split a bundle at the boundaries, or by the algorithm when there are none, and look
        whether it was done.

        The extensible manager leaves the children where they are, whatever `unload_children` says.
        Raises Refused or BrokerError.
        """
        parent = self._checked(bundle)
        query, body = self._cut(parent, list(boundaries), algorithm)
        path = self._path(parent, "split")
        try:
            answer = self._admin.put(path, {"unload": str(unload_children).lower(), **query}, body)
        except AdminError as error:
            if error.status or not self._soon(lambda: self._is_split(parent)):
                raise
            return  # the answer was lost, its effect was not
        self._raise_unless_done(path, answer, bundle)
        if not self._soon(lambda: self._is_split(parent)):  # a 204 proves nothing
            raise BrokerError(
                f"{self.name} answers {answer.status} to a split of {bundle} and has not split it; "
                "has it only one topic?"
            )

    # --- details ---

    def _runtime(self) -> dict[str, object]:
        return self.guard.runtime()

    def _owned(self) -> set[str]:
        path = f"/admin/v2/brokers/{quote(self.pulsar_cluster)}/{quote(self.name, safe=':')}/ownedNamespaces"
        owned = self._admin.get_json(path)
        return {
            bundle
            for bundle, state in owned.items()
            if (state or {}).get("is_active", True) and not is_system_bundle(bundle)
        }

    def _forget(self) -> None:
        self.guard.forget()
        self._known = False

    def _introduce(self) -> None:
        """Make sure that the address answers for a broker of that name. Raises BrokerError."""
        if self._known:
            return
        active = self._admin.get_json(f"/admin/v2/brokers/{quote(self.pulsar_cluster)}")
        if self.name not in active:
            names = ", ".join(sorted(map(str, active))) or "none"
            raise BrokerError(
                f"{self._admin.settings.url} knows no active broker {self.name}; active: {names}: "
                "name it with --broker"
            )
        self._known = True

    def _checked(self, bundle: str) -> BundleRange:
        """Check what must hold before any act. Raises Refused."""
        if is_system_bundle(bundle):
            raise Refused(f"{bundle} belongs to the broker in its name")
        self.guard.check()
        return parse_bundle(bundle)

    @staticmethod
    def _path(bundle: BundleRange, act: str) -> str:
        return f"/admin/v2/namespaces/{quote(bundle.namespace)}/0x{bundle.lower:08x}_0x{bundle.upper:08x}/{act}"

    def _unload(self, bundle: str, query: dict[str, str]) -> None:
        path = self._path(self._checked(bundle), "unload")
        try:
            answer = self._admin.put(path, query)
        except AdminError as error:
            if error.status or self.owns(bundle):
                raise
            return  # the answer was lost, its effect was not
        self._raise_unless_done(path, answer, bundle)

    def _arrived(self, bundle: str, destination: str) -> str | None:
        """Who has a bundle that was unloaded; None: nobody tells.

        Raises BrokerError when its destination does not answer any more.

        Pulsar's modular manager would leave it with the dead broker until that one's session has
        ended: it is taken back here, where that can be done.
        """
        parsed = parse_bundle(bundle)
        owner: str | None = destination
        with suppress(AdminError):
            owner = self._peers.owner(parsed)
        if owner != destination or self._peers.is_answering(destination):
            return owner
        self._unload_again(bundle, self.name, f"{destination} does not answer any more")
        back = None
        with suppress(AdminError):
            back = self._peers.owner(parsed)
        now = (
            f"{back} has it"
            if back not in (None, destination)
            else "nobody serves it before Pulsar takes that one for dead"
        )
        raise BrokerError(
            f"{bundle} was unloaded to {destination}, which does not answer any more: {now}"
        )

    def _unload_again(self, bundle: str, destination: str, why: str) -> None:
        """Unload a bundle a second time, because it went elsewhere.

        It has left its source already, so a refusal counts as a failure.
        """
        try:
            self._unload(bundle, {"destinationBroker": destination})
        except BrokerError as error:
            raise BrokerError(
                f"{bundle} was unloaded, {why}, and could not be unloaded to {destination}: {error}"
            ) from error

    def _raise_unless_done(self, path: str, answer: AdminResponse, bundle: str) -> None:
        if answer.status in (200, 204):
            return
        if answer.status in (
            404,
            409,
            412,
        ):  # no such namespace, destination not active, no such bundle (any more)
            raise Refused(
                f"Pulsar refuses for {bundle}: {answer.status} "
                f"({answer.reason or 'no reason given'})"
            )
        self._forget()
        raise self._admin.refusal("PUT", path, answer)

    def _cut(
        self, parent: BundleRange, boundaries: list[int], algorithm: str
    ) -> tuple[dict[str, str], list[int] | None]:
        """The query and body that make Pulsar cut where it is wanted.

        Raises Refused for what it can't do.
        """
        if boundaries == [parent.lower + (parent.upper - parent.lower) // 2]:
            return {"splitAlgorithmName": RANGE}, None
        if boundaries:
            if len(boundaries) > 1 and self.manager == "extensible":
                raise Refused(
                    "the extensible manager cuts a bundle at one place at a time, "
                    f"{len(boundaries)} are asked for"
                )
            return {"splitAlgorithmName": POSITIONS}, boundaries
        default = str(self._runtime().get("defaultNamespaceBundleSplitAlgorithm", RANGE))
        if algorithm == FLOW != default:
            raise Refused(
                f"Pulsar splits by {FLOW} only where that is the default: set "
                f"defaultNamespaceBundleSplitAlgorithm={FLOW}"
            )
        return {"splitAlgorithmName": algorithm or default}, None

    def _is_split(self, parent: BundleRange) -> bool:
        return (parent.lower, parent.upper) not in pairwise(
            bundle_boundaries(self._admin, parent.namespace)
        )

    def _soon(self, condition: Callable[[], bool], within_s: float = SETTLE_S) -> bool:
        end = self._clock() + within_s
        while not condition():
            if self._clock() >= end:
                return False
            self._sleep(LOOK_EVERY_S)
        return True
