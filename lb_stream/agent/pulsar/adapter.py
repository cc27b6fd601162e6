"""The adapter of an Apache Pulsar broker: load reports, unloads and splits by its admin REST API.

    adapter = PulsarAdapter(AdminClient(AdminSettings("http://broker-1:8080")))
    Agent(AgentConfig("kafka:9092", cluster="eu-1"), [adapter]).start()

A Pulsar broker can unload a bundle to a destination and split one. It can't take a bundle by
command: Pulsar places a bundle when a client looks up one of its topics, after a crash too. The
balancer follows what is reported (`assign_unowned = "on_lookup"`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from itertools import pairwise
from typing import Protocol
from urllib.parse import quote

from lb_stream.agent.adapter import BrokerError, Refused
from lb_stream.agent.pulsar.admin import AdminClient, AdminError, AdminRefused, AdminResponse
from lb_stream.agent.pulsar.cuts import BundleCuts, middle_of
from lb_stream.agent.pulsar.guard import SettingsGuard
from lb_stream.agent.pulsar.load_data import LoadDataCompleter
from lb_stream.agent.pulsar.namespaces import bundle_boundaries, read_cluster
from lb_stream.agent.pulsar.ownership import OwnedBundles, growing_pauses
from lb_stream.agent.pulsar.peers import Peers, probe
from lb_stream.agent.pulsar.report import LOAD_REPORT, ReportCheck
from lb_stream.agent.pulsar.stats import BundleTraffic, read_bundles
from lb_stream.agent.pulsar.topic_shares import TopicShareReader
from lb_stream.contracts.balancer import MANAGER_CLASSES
from lb_stream.contracts.namespaces import ClusterNamespaces
from lb_stream.contracts.reports import BundleStats
from lb_stream.core.model.names import BundleRange, is_system_bundle, parse_bundle
from lb_stream.core.model.releases import parse_version
from lb_stream.core.splitting import Algorithms, Topics
from lb_stream.core.splitting.base import FALLBACK as RANGE
from lb_stream.core.splitting.manual import FLOW
from lb_stream.core.splitting.perform import SPECIFIED as POSITIONS

VERSION = "/admin/v2/brokers/version"
VERSION_MAX_AGE_S = 60.0
"""How long a version that was read is used. A restart that is noticed ends it at once."""
LONGEST_VERSION = 100
SETTLE_S = 5.0
"""How long after its answer the effect of a call may take. Measured: 0.4 s at most."""
STALE_S = 10.0
"""How long after new statistics a report may still lack a change."""
DEFAULT_STATS_S = 60.0
TOPIC_SHARES_S = 60.0
"""How often the statistics of all topics are read for reports."""
RETURN_S = 1.0
"""How long an unload without a destination is watched.

Pulsar's own placement usually gives the bundle back within a quarter of a second.
"""
FIRST_LOOK_S, LONGEST_LOOK_S = 0.1, 1.0
"""How long to wait before a broker is asked again what it owns; each time twice as long."""
TAKE_INTERVAL_S = 0.01
"""How long to wait before a destination is asked again to take a bundle."""
OUTDATED_S = 0.5
"""How long a destination may name the former owner, or none, after an unload."""


CompareSettings = Callable[[Mapping[str, object], str | None], Iterable[str]]
"""Finds the keys that differ from the balancer's, of a broker's settings and its version."""


class LoadData(Protocol):
    """The source of load data of an extensible cluster's brokers (`load_topics.LoadDataTopics`)."""

    def take(self, broker: str) -> list[bytes]:
        """Return the records that the broker has written since the last call, unchanged."""
        ...


class PulsarAdapter:
    """One Pulsar broker as a `BrokerAdapter`. It refuses to act while Pulsar itself balances."""

    def __init__(
        self,
        admin: AdminClient,
        broker: str | None = None,
        load_data: LoadData | None = None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
        algorithms: Algorithms | None = None,
        compare: CompareSettings | None = None,
        topic_shares_s: float = TOPIC_SHARES_S,
    ) -> None:
        """Connect to nothing yet.

        `broker` is the broker's id where that isn't host:port of the admin address. `load_data` is
        needed on an extensible cluster. `clock` and `sleep` are in seconds. `algorithms` cut
        bundles with segments, which Pulsar's own don't count. `compare` finds the settings that
        differ from the balancer's; None: they are not compared. `topic_shares_s`: how often the
        shares of topics are read, which reports of the heaviest bundles have; 0: never.
        """
        self._admin = admin
        self._broker = broker or admin.settings.broker
        self._load_data = load_data
        self._clock = clock
        self._sleep = sleep
        self._compare = compare
        self._compared: tuple[Mapping[str, object], list[str]] = ({}, [])
        self.guard = SettingsGuard(admin, clock)
        self._peers = Peers(admin, self._broker)
        self._owned = OwnedBundles(admin, self._broker, lambda: self.pulsar_cluster, clock)
        self._cuts = BundleCuts(admin, algorithms)
        self._report_check = ReportCheck(self._broker, clock)
        self._completer = LoadDataCompleter()
        self._topic_shares = TopicShareReader(admin, topic_shares_s, clock)
        self._version: str | None = None  # None: not read yet; empty: the broker gives none
        self._version_read_at = 0.0
        self._is_verified = False  # whether the address is that of this broker
        self._is_stopped = False  # whether no process has listened at it since the last answer
        self._start_ms: int | None = None  # when the process there was first seen; None: not known
        self._traffic: dict[str, BundleTraffic] = {}  # by bundle, as `stats` last read it

    @property
    def name(self) -> str:
        """The broker's id, host:port of its web service."""
        return self._broker

    @property
    def manager(self) -> str:
        """The broker's load manager: modular, simple or extensible. Raises BrokerError."""
        given = str(self._runtime().get("loadManagerClassName", ""))
        try:
            return MANAGER_CLASSES[given.rpartition(".")[2]]
        except KeyError:
            raise BrokerError(
                f"{self.name} runs the load manager {given!r}: expected one of "
                f"{', '.join(MANAGER_CLASSES)}"
            ) from None

    @property
    def version(self) -> str | None:
        """The version that the broker gives, such as 5.0.1; None: it gives none.

        Raises BrokerError.
        """
        answer = self._admin.get(VERSION)
        lines = answer.body[:LONGEST_VERSION].decode("utf-8", "replace").split()
        return lines[0] if answer.status == 200 and len(lines) == 1 else None

    @property
    def pulsar_cluster(self) -> str:
        """Pulsar's name of the broker's cluster. Raises BrokerError."""
        return str(self._runtime().get("clusterName", ""))

    @property
    def statistics_s(self) -> float:
        """Seconds between the statistics from which the broker's reports are made.

        Raises BrokerError.
        """
        try:
            return float(str(self._runtime().get("statsUpdateFrequencyInSecs", DEFAULT_STATS_S)))
        except ValueError:
            return DEFAULT_STATS_S

    # --- reports ---

    def alive(self) -> bool:
        """Return whether the broker answers; an answer that asks for a token counts too."""
        try:
            alive = probe(self._admin)
        except AdminRefused:
            alive, self._is_stopped = False, True
        except AdminError:
            alive = False
        if not alive:
            self._forget()
        elif self._is_stopped:
            self._is_stopped, self._start_ms = False, round(time.time() * 1_000)
        return alive

    def report(self) -> bytes | list[bytes]:
        """Return the broker's own load report; of an extensible broker, its new load data.

        A modular broker makes a report from statistics that are `statsUpdateFrequencyInSecs` old at
        most. While such a report names bundles that have left, or lacks one that has come, none is
        returned; if it stays so, its bundles are corrected. Otherwise it is returned byte for byte,
        with the shares of topics in its heaviest bundles added. Raises BrokerError.
        """
        self._require_broker()
        if self.manager == "extensible":
            if self._load_data is None:
                raise BrokerError(
                    f"{self.name} is of an extensible cluster, and its agent reads no load data: "
                    "give PulsarAdapter a load_data"
                )
            # Read the owned bundles first: if that fails, no load data has been taken and is lost.
            owned = self._owned.read_all()
            version = self._find_version()
            written = self._load_data.take(self.name)
            records = self._completer.complete(written, owned, version, self._start_ms)
            return [
                self._topic_shares.add_to(record) if b'"weightedMaxEMA"' in record else record
                for record in records
            ]
        answer = self._admin.get(LOAD_REPORT)
        if answer.status != 200:
            self._forget()
            raise self._admin.refusal("GET", LOAD_REPORT, answer)
        if not answer.body.lstrip().startswith(b"{"):
            raise BrokerError(
                f"GET {answer.hops[-1]}{LOAD_REPORT}: expected a JSON object, got "
                f"{answer.reason[:80]!r}"
            )
        hold_s = self.statistics_s + STALE_S
        report = self._report_check.check(answer.body, self._owned.find_owned, hold_s)
        return [] if report is None else self._topic_shares.add_to(report)

    def owns(self, bundle: str) -> bool:
        """Return whether the broker serves the bundle. Raises BrokerError."""
        if self.manager == "extensible":
            return bundle in self._owned.read_all()
        return self._owned.is_owned(bundle)

    def stats(self) -> Mapping[str, BundleStats]:
        """Return the statistics of all bundles that an extensible broker serves.

        Under the other managers it returns none: the leader finds all bundles in the reports.
        Raises BrokerError.
        """
        if self.manager != "extensible":
            return {}
        self._traffic, owned = read_bundles(self._admin), self._owned.read_all()
        return {
            bundle: traffic.stats for bundle, traffic in self._traffic.items() if bundle in owned
        }

    def topics(self, bundle: str) -> Topics:
        """Return the topics of a bundle that `stats` has named."""
        return self._traffic[bundle].topics

    def feasible_cut(self, bundle: str, positions: Sequence[int]) -> list[int]:
        """Return the positions if Pulsar can cut the bundle there, else its middle.

        Raises BrokerError.
        """
        parent, asked = parse_bundle(bundle), list(positions)
        return asked if self._cuts.is_possible(parent, asked) else [middle_of(parent)]

    def balances(self) -> list[str]:
        """Return the settings with which Pulsar itself balances, here or at the leader.

        Raises BrokerError.
        """
        return list(self.guard.active_balancers())

    def differing(self) -> list[str]:
        """Return Pulsar's keys with other values in force than the balancer's. Raises BrokerError.

        They are compared again when the broker's settings have changed.
        """
        if self._compare is None:
            return []
        runtime = self._runtime()
        if runtime != self._compared[0]:
            self._compared = runtime, list(self._compare(runtime, self.version))
        return self._compared[1]

    def namespaces(self) -> ClusterNamespaces:
        """Return namespaces, bundles and policies of the broker's cluster. Raises BrokerError."""
        return read_cluster(self._admin, self.pulsar_cluster)

    # --- decisions ---

    def transfer(self, bundle: str, destination: str) -> str:
        """Unload a bundle so that the destination serves it; return its detour, "" for none.

        The destination must answer, before and after. If another lookup places the bundle elsewhere
        meanwhile (apache/pulsar#24884), it is unloaded once more. Raises Refused before anything is
        changed, and BrokerError after a failure.
        """
        # What must hold before.
        if destination == self.name:  # modular: the bundle would come back; extensible: status 500
            raise Refused(f"{bundle} is to move to {destination}, which has it")
        self._require_may_act(bundle)
        if not self._peers.is_answering(destination):
            raise Refused(f"{destination} does not answer: {bundle} stays at {self.name}")

        # The unload, and a second one if the bundle went elsewhere.
        detour = ""
        owner = self._hand_over(bundle, destination, self.name)
        if owner not in (None, destination):
            detour = f"at the second unload: after the first Pulsar placed it at {owner}"
            owner = self._hand_over(bundle, destination, owner)

        # What must hold afterwards.
        if owner not in (None, destination):
            raise BrokerError(f"{bundle} was unloaded to {destination} twice, and {owner} has it")
        if not self._wait_until(lambda: not self.owns(bundle)):
            raise BrokerError(
                f"{bundle} is still at {self.name} {SETTLE_S:.0f} s after it was unloaded to "
                f"{destination}"
            )
        return detour

    def release(self, bundle: str) -> None:
        """Unload a bundle; Pulsar places it at the next lookup.

        Raises BrokerError if Pulsar gives it back to this broker.
        """
        self._unload(bundle)
        self._sleep(RETURN_S)
        if self.owns(bundle):
            raise BrokerError(
                f"{bundle} was unloaded, and Pulsar's own placement has given it back to "
                f"{self.name}: name a destination"
            )

    def acquire(self, bundle: str) -> None:
        """Check that the broker has the bundle; raise Refused if it hasn't.

        A Pulsar broker can't take a bundle by command.
        """
        if not self._wait_until(lambda: self.owns(bundle), RETURN_S):
            raise Refused(
                "Pulsar places bundles when clients look their topics up (set assign_unowned = "
                "on_lookup)"
            )
        self._report_check.note_taken(bundle)

    def split(
        self, bundle: str, boundaries: Sequence[int], algorithm: str, unload_children: bool = False
    ) -> None:
        """Split a bundle at the boundaries, or by the algorithm if there are none.

        The extensible manager leaves the children where they are, whatever `unload_children` says.
        Raises Refused also for a split that does nothing, which Pulsar answers with a success (204;
        before 5.0 with 500 under the extensible manager); BrokerError after a failure.
        """
        parent = self._require_may_act(bundle)
        query, body = self._describe_cut(parent, list(boundaries), algorithm)
        path = self._path(parent, "split")
        self._owned.note_gone(bundle)
        try:
            answer = self._admin.put(path, {"unload": str(unload_children).lower(), **query}, body)
        except AdminError as error:
            if error.status or not self._wait_until(lambda: self._is_split(parent)):
                raise
            return  # the answer was lost, but the bundle is split
        if answer.status >= 500 and (reason := self._cuts.explain_no_position(parent, query)):
            also = f" (its answer: {answer.reason})" if answer.reason else ""
            raise Refused(
                f"{self.name} answers {answer.status} and has not split {bundle}: {reason}{also}"
            )
        self._require_done(path, answer, bundle)
        if not self._wait_until(lambda: self._is_split(parent)):
            reason = self._cuts.explain_no_position(parent, query) or "it gives no reason"
            raise Refused(
                f"{self.name} answers {answer.status} and has not split {bundle}: {reason}"
            )

    # --- details ---

    def _runtime(self) -> dict[str, object]:
        return self.guard.runtime()

    def _find_version(self) -> str | None:
        """Return the broker's version, a minute old at most; None: it does not give it.

        A modular broker's report has it already.
        """
        if self._version is None or self._clock() - self._version_read_at >= VERSION_MAX_AGE_S:
            self._version = ""
            with suppress(AdminError):
                self._version = self.version or ""
            self._version_read_at = self._clock()
        return self._version or None

    def _forget(self) -> None:
        self._version = None
        self.guard.forget()
        self._owned.forget()
        self._is_verified = False

    def _require_broker(self) -> None:
        """Raise BrokerError if the address is not that of a broker with this name."""
        if self._is_verified:
            return
        path = f"/admin/v2/brokers/{quote(self.pulsar_cluster)}"
        active = self._admin.get_as(path, list[str])
        if self.name not in active:
            names = ", ".join(sorted(active)) or "none"
            raise BrokerError(
                f"{self._admin.settings.url} knows no active broker {self.name}; active: {names}: "
                "name it with --broker"
            )
        self._is_verified = True

    def _require_may_act(self, bundle: str) -> BundleRange:
        """Return the bundle's range; raise Refused if nothing may be done with the bundle."""
        if is_system_bundle(bundle):
            raise Refused(f"{bundle} belongs to the broker in its name")
        self.guard.check()
        return parse_bundle(bundle)

    @staticmethod
    def _path(bundle: BundleRange, act: str) -> str:
        bounds = f"0x{bundle.lower:08x}_0x{bundle.upper:08x}"
        return f"/admin/v2/namespaces/{quote(bundle.namespace)}/{bounds}/{act}"

    def _unload(self, bundle: str, destination: str | None = None) -> None:
        path = self._path(self._require_may_act(bundle), "unload")
        query = {} if destination is None else {"destinationBroker": destination}
        self._owned.note_gone(bundle)
        try:
            answer = self._admin.put(path, query)
        except AdminError as error:
            if error.status or self.owns(bundle):
                raise
            return  # the answer was lost, but the bundle is unloaded
        self._require_done(path, answer, bundle)

    def _hand_over(self, bundle: str, destination: str, holder: str) -> str | None:
        """Unload a bundle from its holder to a destination; return its owner, None: not known.

        Raises Refused and BrokerError as `_unload` does.
        """
        if holder == self.name:
            self._unload(bundle, destination)
        else:
            self._unload_again(bundle, destination, f"{holder} has it")
        if self.manager != "extensible":  # that one's channel keeps the destination until it serves
            owner = self._ask_to_take(bundle, destination, holder)
            if owner is not None:
                return owner
        return self._check_arrival(bundle, destination)

    def _ask_to_take(self, bundle: str, destination: str, holder: str) -> str | None:
        """Ask the destination to take a bundle; return which broker has it, None: not known.

        A modular leader gives the named destination to the first lookup only. Until a broker has
        taken the bundle it places it anew for each further lookup, and whichever broker is first
        keeps it. So the destination is asked itself, before clients come back.
        """
        parsed = parse_bundle(bundle)
        pauses = growing_pauses(FIRST_LOOK_S, LONGEST_LOOK_S)
        end, look_at = self._clock() + OUTDATED_S, self._clock() + next(pauses)
        while True:
            owner = self._peers.ask_to_take(parsed, destination)
            is_back = False
            if owner == holder == self.name and self._clock() >= look_at:
                is_back = self.owns(bundle)
                look_at = self._clock() + next(pauses)
            if owner not in (None, holder) or is_back or self._clock() >= end:
                return owner
            self._sleep(TAKE_INTERVAL_S)

    def _check_arrival(self, bundle: str, destination: str) -> str | None:
        """Return the owner of a bundle that was unloaded; None: the lookup names no owner.

        Raises BrokerError if the owner is a destination that no longer answers. Pulsar's modular
        manager would leave the bundle there until the broker's session ends, so it is taken back.
        """
        parsed = parse_bundle(bundle)
        owner: str | None = destination
        with suppress(AdminError):
            owner = self._peers.find_owner(parsed)
        if owner != destination or self._peers.is_answering(destination):
            return owner

        # The destination died meanwhile.
        self._unload_again(bundle, self.name, f"{destination} no longer answers")
        owner = None
        with suppress(AdminError):
            owner = self._peers.find_owner(parsed)
        state = f"{owner} has it"
        if owner in (None, destination):
            state = f"no broker serves it until Pulsar counts {destination} as dead"
        raise BrokerError(
            f"{bundle} was unloaded to {destination}, which no longer answers: {state}"
        )

    def _unload_again(self, bundle: str, destination: str, reason: str) -> None:
        """Unload a bundle that has left its source a second time.

        Raises BrokerError even where Pulsar refuses: the bundle has moved.
        """
        try:
            self._unload(bundle, destination)
        except BrokerError as error:
            raise BrokerError(
                f"{bundle} was unloaded, {reason}, and could not be unloaded to {destination}: "
                f"{error}"
            ) from error

    def _require_done(self, path: str, answer: AdminResponse, bundle: str) -> None:
        """Raise Refused or AdminError for an answer that reports no success."""
        if answer.status in (200, 204):
            return
        # No such namespace, destination not active, no such bundle (any more).
        if answer.status in (404, 409, 412):
            raise Refused(
                f"Pulsar refuses for {bundle}: {answer.status} "
                f"({answer.reason or 'no reason given'})"
            )
        self._forget()
        raise self._admin.refusal("PUT", path, answer)

    def _describe_cut(
        self, parent: BundleRange, boundaries: list[int], algorithm: str
    ) -> tuple[dict[str, str], list[int] | None]:
        """Return query and body of a split at these boundaries, or by this algorithm.

        Raises Refused for a cut that Pulsar can't make.
        """
        if boundaries == [middle_of(parent)]:
            return {"splitAlgorithmName": RANGE}, None
        if boundaries:
            if len(boundaries) > 1 and self.manager == "extensible":
                raise Refused(
                    "the extensible manager cuts a bundle at one place at a time, "
                    f"{len(boundaries)} are asked for"
                )
            if not self._cuts.is_possible(parent, boundaries):
                raise Refused(
                    "Pulsar lists fewer than two topics of the bundle (segments aren't listed), so "
                    f"it cuts it only in the middle: split it by {RANGE}"
                )
            return {"splitAlgorithmName": POSITIONS}, boundaries
        default = str(self._runtime().get("defaultNamespaceBundleSplitAlgorithm", RANGE))
        needs_topics = (algorithm or default) != RANGE
        if needs_topics and (found := self._cuts.find(parent, algorithm or default)):
            return self._describe_cut(parent, found, POSITIONS)
        if algorithm == FLOW != default and not self._splits_by_any_algorithm():
            raise Refused(
                f"Pulsar before 5.0 splits by {FLOW} only where that is the default: set "
                f"defaultNamespaceBundleSplitAlgorithm={FLOW}"
            )
        return {"splitAlgorithmName": algorithm or default}, None

    def _splits_by_any_algorithm(self) -> bool:
        """Return whether each algorithm gets what it needs, also if another is the default."""
        return parse_version(self.version or "").numbers[:2] >= (5, 0)

    def _is_split(self, parent: BundleRange) -> bool:
        return (parent.lower, parent.upper) not in pairwise(
            bundle_boundaries(self._admin, parent.namespace)
        )

    def _wait_until(self, condition: Callable[[], bool], within_s: float = SETTLE_S) -> bool:
        """Wait for a condition, with growing pauses; return whether it holds within the time."""
        end = self._clock() + within_s
        pauses = growing_pauses(FIRST_LOOK_S, LONGEST_LOOK_S)
        while not condition():
            left_s = end - self._clock()
            if left_s <= 0:
                return False
            self._sleep(min(next(pauses), left_s))
        return True
