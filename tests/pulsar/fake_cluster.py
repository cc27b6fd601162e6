"""A small cluster that answers on its admin API what Apache Pulsar was seen to answer: status codes,
redirects, delays; the settings in force of a release."""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import islice, pairwise
from typing import Any
from urllib.parse import parse_qs, urlsplit

from lb_stream.agent.pulsar.adapter import PulsarAdapter
from lb_stream.agent.pulsar.admin import AdminClient, AdminSettings
from lb_stream.core.model.topics import topic_hash
from tests.support.pulsar_keys import defaults_of

PULSAR_CLUSTER = "testbed"
NAMESPACE = "shop/orders"
FULL_RANGE = "0x00000000_0xffffffff"
ALGORITHMS = (
    "range_equally_divide",
    "topic_count_equally_divide",
    "specified_positions_divide",
    "flow_or_qps_equally_divide",
)
MANAGERS = {
    "modular": "org.apache.pulsar.broker.loadbalance.impl.ModularLoadManagerImpl",
    "extensible": "org.apache.pulsar.broker.loadbalance.extensions.ExtensibleLoadManagerImpl",
}
Reply = tuple[int, Any, dict[str, str]]


@dataclass(frozen=True)
class Call:
    """One request as a broker saw it. `broker` is its number, counted from 0."""

    broker: int
    method: str
    path: str
    query: dict[str, str]
    body: Any
    authorization: str | None


@dataclass
class FakeCluster:
    """State that all brokers share.

    Bundles are named by their range; `reported` is what each broker's statistics still say.
    `segments`: full names of segments in each bundle, beside its topics.

    `clients`: topics are looked up at once, so a bundle that is let go has an owner again. `before`
    may answer in a broker's place.
    """

    manager: str = "modular"
    version: str = "5.0.1"
    clients: bool = True
    leader: int = 0
    boundaries: list[int] = field(
        default_factory=lambda: [0, 0x40000000, 0x80000000, 0xC0000000, 0xFFFFFFFF]
    )
    owners: dict[str, int | None] = field(default_factory=dict)
    topics: dict[str, int] = field(default_factory=dict)
    segments: dict[str, list[str]] = field(default_factory=dict)
    runtimes: list[dict[str, str]] = field(default_factory=list)
    dynamic: dict[str, str] = field(default_factory=dict)  # set in all brokers by commands
    reported: list[list[str]] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    servers: list[ThreadingHTTPServer] = field(default_factory=list)
    affinity: dict[str, int] = field(default_factory=dict)
    before: Callable[[Call], Reply | None] = lambda call: None
    group: str | None = None

    @property
    def names(self) -> list[str]:
        return [f"127.0.0.1:{server.server_port}" for server in self.servers]

    @property
    def ranges(self) -> list[str]:
        return [f"0x{low:08x}_0x{high:08x}" for low, high in pairwise(self.boundaries)]

    def adapter(self, number: int = 0, **options: Any) -> PulsarAdapter:
        """A broker's adapter whose pauses last a tenth."""
        made = AdminSettings(f"http://{self.names[number]}", **options.pop("admin", {}))
        return PulsarAdapter(AdminClient(made, sleep=_briefly), sleep=_briefly, **options)

    def bundle(self, number: int = 0) -> str:
        return f"{NAMESPACE}/{self.ranges[number]}"

    def owned(self, broker: int) -> list[str]:
        return [name for name, owner in self.owners.items() if owner == broker]

    def take_statistics(self) -> None:
        """What happens every `statsUpdateFrequencyInSecs`: from now on reports say who owns what
        now."""
        self.reported = [self.owned(broker) for broker in range(len(self.servers))]

    def acts(self) -> list[Call]:
        return [call for call in self.calls if call.method == "PUT"]

    def stop(self, broker: int) -> None:
        """As after kill -9: nobody listens any more."""
        self.servers[broker].shutdown()
        self.servers[broker].server_close()

    def start(self, broker: int) -> None:
        """Start a stopped broker at its former address."""
        server = _Quiet(self.servers[broker].server_address[:2], _handler(self, broker))
        threading.Thread(
            target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True
        ).start()
        self.servers[broker] = server

    # --- what a broker answers ---

    def answer(self, call: Call) -> Reply:
        if replaced := self.before(call):
            return replaced
        parts = call.path.strip("/").split("/")[2:]
        if (call.method, *parts[:2]) == ("POST", "brokers", "configuration"):
            self.dynamic[parts[2]] = parts[3]
            return 204, b"", {}
        found = self._broker_call(call, parts) or self._namespace_call(call, parts)
        assert found is not None, f"the cluster was asked for {call}"
        return found

    def _broker_call(self, call: Call, parts: list[str]) -> Reply | None:
        match (call.method, *parts):
            case ("GET", "brokers", "ready"):
                return 200, b"ok", {}
            case ("GET", "brokers", "version"):
                return 200, self.version.encode(), {}
            case ("GET", "brokers", "configuration", which):
                set_by_file = self.runtimes[call.broker] if which == "runtime" else {}
                return 200, set_by_file | self.dynamic, {}
            case ("GET", "brokers", "leaderBroker"):
                return (
                    200,
                    {
                        "serviceUrl": f"http://{self.names[self.leader]}",
                        "brokerId": self.names[self.leader],
                    },
                    {},
                )
            case ("GET", "brokers", _):
                return 200, self.names, {}
            case ("GET", "brokers", _, broker, "ownedNamespaces"):
                return self._owned(call, self.names.index(broker))
            case ("GET", "non-persistent", "shop", "orders", bounds):
                return self._topics_at_owner(call, bounds)
            case ("GET", "topic", "non-persistent", "shop", "orders", topic):
                return self._lookup(call, topic)
            case ("GET", "broker-stats", "load-report"):
                return self._report(call.broker)
            case ("GET", "broker-stats", "topics"):
                return self._topic_stats(call.broker)
            case ("GET", "clusters", _, policies):
                return self._cluster_policies(policies)
        return None

    def _namespace_call(self, call: Call, parts: list[str]) -> Reply | None:
        match (call.method, *parts):
            case ("GET", "tenants"):
                return 200, ["shop", "gone"], {}
            case ("GET", "namespaces", tenant):
                own = [
                    NAMESPACE,
                    "shop/elsewhere",
                    "shop/deleted",
                    f"shop/{PULSAR_CLUSTER}/{self.names[0]}",
                ]
                return 200, own if tenant == "shop" else [], {}
            case ("GET", "namespaces", "shop", name):
                clusters = {"orders": [PULSAR_CLUSTER], "elsewhere": ["other"]}.get(name)
                found = {"bundles": self._bundles(), "replication_clusters": clusters}
                return (
                    (200, found, {})
                    if clusters
                    else (404, {"reason": "Namespace does not exist"}, {})
                )
            case ("GET", "namespaces", "shop", "orders", "antiAffinity"):
                return (204, b"", {}) if self.group is None else (200, self.group, {})
            case ("GET", "namespaces", "shop", "orders", "bundles"):
                return 200, self._bundles(), {}
            case ("GET", "namespaces", "shop", "orders", bounds, "topicHashPositions"):
                listed = {topic: topic_hash(topic) for topic in self.topics_of(bounds)}
                return 200, {"bundle": bounds, "topicHashPositions": listed}, {}
            case ("PUT", "namespaces", tenant, name, bounds, act) if (
                f"{tenant}/{name}" == NAMESPACE
            ):
                return self._unload(call, bounds) if act == "unload" else self._split(call, bounds)
            case ("PUT", "namespaces", *_):
                return 404, {"reason": "Namespace not found"}, {}
        return None

    def _owned(self, call: Call, broker: int) -> Reply:
        if broker != call.broker:
            return self._to(broker, call)
        status = {"broker_assignment": "shared", "is_controlled": False, "is_active": True}
        return (
            200,
            dict.fromkeys((f"{NAMESPACE}/{name}" for name in self.owned(broker)), status),
            {},
        )

    def _topics_at_owner(self, call: Call, bounds: str) -> Reply:
        """The non-persistent topics of a bundle, which only its owner lists: none here."""
        owner = self.owners.get(bounds)
        if refused := self._checked(bounds):
            return refused
        if owner is None:
            return 204, b"", {}
        return (200, [], {}) if owner == call.broker else self._to(owner, call)

    def _lookup(self, call: Call, topic: str) -> Reply:
        """It has the bundle placed when nobody serves it.

        A modular broker sends it on to the owner, or to who is to be that; asked with authority, it
        takes the bundle itself and leaves the named destination waiting.
        """
        point = topic_hash(f"non-persistent://{NAMESPACE}/{topic}")
        bounds = next(
            name
            for name, (low, high) in zip(self.ranges, pairwise(self.boundaries), strict=True)
            if low <= point < high
        )
        owner = self.owners.get(bounds)
        has_authority = self.manager == "modular" and call.query.get("authoritative") == "true"
        if owner is None and has_authority:
            owner = self.owners[bounds] = call.broker
        if owner is None and (owner := self.affinity.get(bounds, call.broker)) == call.broker:
            self.owners[bounds] = owner
            self.affinity.pop(bounds, None)
        if self.owners.get(bounds) is None and owner != call.broker:
            return self._to(owner, call, authoritative="true")
        return (
            200,
            {
                "brokerUrl": f"pulsar://x:{owner}",
                "httpUrl": f"http://{self.names[owner]}",
                "brokerUrlSsl": "",
            }
            | ({} if self.version.startswith("4.") else {"brokerId": self.names[owner]}),
            {},
        )

    def _report(self, broker: int) -> Reply:
        if self.manager == "extensible":
            return 500, {"reason": "java.lang.UnsupportedOperationException"}, {}
        stats = {
            f"{NAMESPACE}/{name}": {"msgRateIn": 10.0, "topics": self.topics.get(name, 2)}
            for name in self.reported[broker]
        }
        # Numbers as Java writes them, which no Python would.
        named = "" if self.version.startswith("4.") else f'"brokerId":"{self.names[broker]}",'
        head = (
            f"{{{named}".encode()
            + b'"webServiceUrl":"http://x:8080","cpu":{"usage":1.5214729790815713E-7,"limit":100.0},"lastUpdate":1795270116153,"lastStats":'
        )
        return (
            200,
            head
            + json.dumps(stats).encode()
            + b',"bundles":'
            + json.dumps(list(stats)).encode()
            + b"}",
            {},
        )

    def _topic_stats(self, broker: int) -> Reply:
        """Topics in order of their hashes: `topics` of each reported bundle, each with 10 msg/s in,
        20 out, 3 producers, 2 consumers."""
        figures = {
            "producerCount": 3,
            "averageMsgSize": 100.0,
            "msgRateIn": 10.0,
            "msgRateOut": 20.0,
        }
        figures |= {
            "msgThroughputIn": 1000.0,
            "msgThroughputOut": 2000.0,
            "publishers": [],
            "replication": {},
        }
        subscriptions = {"s1": {"consumers": [{}, {}], "msgBacklog": 0}, "s2": {"consumers": []}}
        found: dict[str, Any] = {
            "pulsar/testbed": {},
            f"pulsar/{self.names[broker]}": {FULL_RANGE: {"persistent": {"p": figures}}},
        }
        for name in self.reported[broker]:
            topics = {
                topic: figures | {"subscriptions": subscriptions}
                for topic in (*self.topics_of(name), *self.segments.get(name, ()))
            }
            found.setdefault(NAMESPACE, {})[name] = {"persistent": topics}
        return 200, found, {}

    def topics_of(self, bounds: str) -> list[str]:
        """Names of the topics in a range."""
        low, high = (int(bound, 16) for bound in bounds.split("_"))
        names = (f"persistent://{NAMESPACE}/t{number}" for number in range(10_000))
        inside = (name for name in names if low <= topic_hash(name) < high)
        return list(islice(inside, self.topics.get(bounds, 2)))

    def _bundles(self) -> dict[str, Any]:
        return {
            "boundaries": [f"0x{bound:08x}" for bound in self.boundaries],
            "numBundles": len(self.boundaries) - 1,
        }

    def _cluster_policies(self, policies: str) -> Reply:
        if policies == "failureDomains":
            return 200, {"east": {"brokers": self.names[:2]}} if self.group else {}, {}
        if not self.group:
            return (
                404,
                {
                    "reason": f"NamespaceIsolationPolicies for cluster {PULSAR_CLUSTER} does not "
                    "exist"
                },
                {},
            )
        failover = {
            "parameters": {"min_limit": "2", "usage_threshold": "80"},
            "policy_type": "min_available",
        }
        policy = {
            "namespaces": ["shop/.*"],
            "primary": ["127.*"],
            "secondary": ["10.*"],
            "auto_failover_policy": failover,
        }
        return 200, {"p1": policy}, {}

    def _to(self, broker: int, call: Call, **more: str) -> Reply:
        query = "&".join(f"{name}={value}" for name, value in (call.query | more).items())
        return (
            307,
            b"",
            {"Location": f"http://{self.names[broker]}{call.path}{'?' + query if query else ''}"},
        )

    def _checked(self, bounds: str) -> Reply | None:
        if "_" not in bounds or not bounds.startswith("0x"):
            return 500, b"<html>Internal Server Error</html>", {}
        return (
            None
            if bounds in self.ranges
            else (412, {"reason": f"Invalid upper boundary for bundle {NAMESPACE}/{bounds}"}, {})
        )

    def _unload(self, call: Call, bounds: str) -> Reply:
        destination = call.query.get("destinationBroker")
        if refused := self._checked(bounds):
            return refused
        if destination is not None and destination not in self.names:
            return (
                409,
                {"reason": "Not allowed unload namespace bundle to inactive destination broker"},
                {},
            )
        owner = self.owners.get(bounds)
        if (
            destination
            and self.manager == "modular"
            and not call.query.get("authoritative")
            and call.broker != self.leader
        ):
            return self._to(self.leader, call)
        if destination and self.manager == "modular":
            self.affinity[bounds] = self.names.index(destination)
        if owner is None:
            return 204, b"", {}
        if owner != call.broker:
            return self._to(owner, call, authoritative="true")
        if self.manager == "extensible" and destination == self.names[owner]:
            return 500, b"<html>Internal Server Error</html>", {}
        self.owners[bounds] = None
        if self.clients:
            named = self.names.index(destination) if destination else owner
            self.owners[bounds] = self.affinity.pop(bounds, named)
        return 204, b"", {}

    def _split(self, call: Call, bounds: str) -> Reply:
        algorithm = call.query.get("splitAlgorithmName", ALGORITHMS[0])
        if refused := self._checked(bounds):
            return refused
        if algorithm not in ALGORITHMS or (
            algorithm == "specified_positions_divide" and not call.body
        ):
            return 412, {"reason": f"Unsupported split algorithm or no positions: {algorithm}"}, {}
        before_5 = self.version.startswith("4.")
        if (
            before_5
            and algorithm
            == "flow_or_qps_equally_divide"
            != self.runtimes[call.broker]["defaultNamespaceBundleSplitAlgorithm"]
        ):
            return 500, b"", {}
        low, high = (int(bound, 16) for bound in bounds.split("_"))
        positions = [one for one in call.body or () if low < one < high]
        cuts = positions if algorithm == "specified_positions_divide" else [low + (high - low) // 2]
        if algorithm != ALGORITHMS[0] and self.topics.get(bounds, 2) < 2:
            cuts = []
        if not cuts:
            fails = before_5 and self.manager == "extensible"
            return (500, b"", {}) if fails else (204, b"", {})
        owner = self.owners.pop(bounds, None)
        self.boundaries = sorted({*self.boundaries, *cuts})
        self.owners |= {
            f"0x{a:08x}_0x{b:08x}": owner
            for a, b in pairwise(self.boundaries)
            if low <= a and b <= high
        }
        return 204, b"", {}


class _Quiet(ThreadingHTTPServer):
    """Says nothing about connections that a test breaks on purpose."""

    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)


def _briefly(seconds: float) -> None:
    time.sleep(seconds / 10)


def default_runtime(release: str) -> dict[str, str]:
    """The balancing settings in force of a broker of a release, 4.0, 4.2 or 5.0, with an empty
    broker.conf, as Java writes them."""
    found = {}
    for name, (kind, default) in defaults_of(release).items():
        text = "null" if default is None else default
        if kind == "Optional":
            text = "Optional.empty" if default is None else f"Optional[{default}]"
        elif kind in ("List", "Set"):
            text = f"[{', '.join(text.split(','))}]"
        found[name] = text
    return found


@contextmanager
def fake_cluster(brokers: int = 3, **state: Any) -> Iterator[FakeCluster]:
    """A started cluster; its bundles are dealt to the brokers in turn, and reported."""
    cluster = FakeCluster(**state)
    for number in range(brokers):
        server = _Quiet(("127.0.0.1", 0), _handler(cluster, number))
        threading.Thread(
            target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True
        ).start()
        cluster.servers.append(server)
    cluster.runtimes = [
        {
            "clusterName": PULSAR_CLUSTER,
            "loadManagerClassName": MANAGERS[cluster.manager],
            "loadBalancerEnabled": "true",
            "loadBalancerSheddingEnabled": "false",
            "loadBalancerAutoBundleSplitEnabled": "false",
            "statsUpdateFrequencyInSecs": "5",
            "defaultNamespaceBundleSplitAlgorithm": "range_equally_divide",
            "brokerServicePort": f"Optional[{6650 + number}]",
            "brokerServicePortTls": "Optional.empty",
        }
        for number in range(brokers)
    ]
    cluster.owners = {name: number % brokers for number, name in enumerate(cluster.ranges)}
    cluster.take_statistics()
    try:
        yield cluster
    finally:
        for server in cluster.servers:
            server.shutdown()
            server.server_close()


def _handler(cluster: FakeCluster, broker: int) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def _serve(self) -> None:
            parts = urlsplit(self.path)
            content = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            query = {name: values[0] for name, values in parse_qs(parts.query).items()}
            body = json.loads(content) if content else None
            call = Call(
                broker, self.command, parts.path, query, body, self.headers.get("Authorization")
            )
            cluster.calls.append(call)
            status, value, headers = cluster.answer(call)
            self.send_response(status)
            chunks: Iterable[bytes] = (
                value
                if isinstance(value, Iterator)
                else [value if isinstance(value, bytes) else json.dumps(value).encode()]
            )
            for name, text in headers.items():
                self.send_header(name, text)
            self.end_headers()
            try:
                for chunk in chunks:
                    self.wfile.write(chunk)
                    self.wfile.flush()
            except OSError:  # the client has had enough
                pass

        do_GET = do_PUT = do_POST = _serve

        def log_message(self, *_: Any) -> None:
            pass

    return Handler
