"""Records what a Pulsar cluster's brokers report and how they are set, by GET requests alone.

The recording is a file of load reports that every command with `--reports` reads. Lines about other
answers have a `path`; readers of reports pass them over.
"""

from __future__ import annotations

import json
import math
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import quote, urlsplit

from lb_stream.agent.adapter import BrokerError
from lb_stream.agent.pulsar.adapter import VERSION
from lb_stream.agent.pulsar.admin import AdminClient, AdminSettings, UnusableAnswer
from lb_stream.agent.pulsar.guard import RUNTIME
from lb_stream.agent.pulsar.namespaces import NAMESPACES, read_cluster
from lb_stream.agent.pulsar.report import LOAD_REPORT
from lb_stream.agent.pulsar.stats import read_bundles
from lb_stream.contracts.balancer import MANAGER_CLASSES
from lb_stream.io.local.report_lines import format_line

BROKERS = "/admin/v2/brokers"
"""Path of the line with the brokers that gave no report, each with the reason."""
WORKERS = 8
"""Brokers that are asked at the same time, so that one that hangs delays no other."""
STEP_S, TOLERANCE = 0.2, 1e-9


class Pace:
    """Lets requests through, at most `per_s` a second, evenly spaced. For any thread."""

    def __init__(
        self,
        per_s: float,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.per_s = per_s
        self._clock, self._sleep, self._lock = clock, sleep, threading.Lock()
        self._next = 0.0

    def wait(self) -> None:
        """Wait until another request may be sent."""
        with self._lock:
            now = self._clock()
            at = max(now, self._next)
            self._next = at + 1.0 / self.per_s
        if at > now:
            self._sleep(at - now)


class ReadOnlyClient(AdminClient):
    """An admin API from which is only read, redirects and repetitions at the same pace."""

    def __init__(self, settings: AdminSettings, pace: Pace) -> None:
        super().__init__(settings)
        self.pace = pace

    def _once(
        self, method: str, address: str, target: str, body: object, deadline: float
    ) -> tuple[int, str | None, bytes]:
        if method != "GET":
            raise BrokerError(f"{method} {address}{target}: this client only reads")
        self.pace.wait()
        return super()._once(method, address, target, body, deadline)

    def at_broker(self, broker: str) -> ReadOnlyClient:
        """Return a client of another broker, at host and port of its id; with TLS, our own port."""
        own = urlsplit(self.settings.url)
        place = broker
        if own.scheme == "https":
            place = f"{broker.rpartition(':')[0]}:{self.settings.broker.rpartition(':')[2]}"
        return ReadOnlyClient(replace(self.settings, url=f"{own.scheme}://{place}"), self.pace)


@dataclass(frozen=True, slots=True)
class Recorded:
    """What was recorded. `silent`: broker without any report → why. `notes`: what wasn't read."""

    cluster: str
    brokers: tuple[str, ...]
    silent: Mapping[str, str]
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class FoundCluster:
    """A cluster as one of its brokers knows it.

    `runtime`: that broker's settings in force. `clients`: broker → a client of it, sorted.
    """

    name: str
    runtime: Mapping[str, object]
    clients: Mapping[str, ReadOnlyClient]

    @property
    def is_extensible(self) -> bool:
        """Whether the cluster has the extensible load manager."""
        return has_extensible_manager(self.runtime)


def find_cluster(client: ReadOnlyClient) -> FoundCluster:
    """Return the cluster of any broker. Raises BrokerError if it doesn't answer."""
    runtime = _get(client, RUNTIME, dict)
    cluster = str(runtime.get("clusterName", ""))
    names = [str(name) for name in _get(client, f"{BROKERS}/{quote(cluster)}", list)]
    if not names:
        raise BrokerError(f"{client.settings.url} names no broker of the cluster {cluster!r}")
    return FoundCluster(cluster, runtime, {name: client.at_broker(name) for name in sorted(names)})


def record(
    client: ReadOnlyClient,
    minutes: float,
    interval_s: float,
    write: Callable[[str], object],
    on_progress: Callable[[str, float], None] = lambda _text, _share: None,
    is_stopped: Callable[[], bool] = lambda: False,
) -> Recorded:
    """Record a cluster's brokers for some minutes, and give every line to `write`.

    `client`: of any broker. Each broker is asked every `interval_s`, or as often as the pace
    allows. Raises BrokerError if the broker doesn't answer, or no broker gives a report.
    """
    # the cluster, its brokers and their settings
    found = find_cluster(client)
    cluster, clients = found.name, found.clients
    # their reports, round after round, and after the first one the settings of those that answer
    spacing_s = max(interval_s, len(clients) / client.pace.per_s)
    rounds = 1 + math.floor(minutes * 60 / spacing_s + TOLERANCE)
    begin, reported, why = time.monotonic(), set[str](), dict[str, BrokerError]()
    end = begin + minutes * 60  # many brokers that hang delay a round, but not the end
    notes: list[str] = []
    pool = ThreadPoolExecutor(WORKERS)
    try:
        for number in range(rounds):
            on_progress("reading reports", number / rounds)
            for name, answer in zip(clients, pool.map(_read_report, clients.values()), strict=True):
                if isinstance(answer, bytes):
                    reported.add(name)
                    write(format_line(name, answer, _now_ms()))
                else:
                    why[name] = answer
                if is_stopped():
                    break
            if not reported:
                raise _build_none(clients, why)
            if number == 0:
                answering = {name: own for name, own in clients.items() if name in reported}
                notes += _record_settings(client, answering, cluster, write)
            if number + 1 == rounds or is_stopped() or time.monotonic() >= end:
                break
            _wait_until(begin + minutes * 60 * (number + 1) / (rounds - 1), is_stopped)
    finally:
        pool.shutdown(cancel_futures=True)
    asked = [name for name in clients if name in why and name not in reported]
    silent = {name: str(why[name]) for name in asked}
    write(line_aside(BROKERS, silent))
    return Recorded(cluster, tuple(clients), silent, tuple(notes))


def line_aside(path: str, data: Any, broker: str | None = None) -> str:
    """Return a line of a recording that is no load report: what a path of the API answered."""
    fields = {"path": path, "capturedAtMs": _now_ms(), "data": data}
    return json.dumps(fields | ({} if broker is None else {"broker": broker})) + "\n"


def _record_settings(
    client: ReadOnlyClient,
    clients: Mapping[str, ReadOnlyClient],
    cluster: str,
    write: Callable[[str], object],
) -> Iterator[str]:
    """Record each broker's settings in force, and the cluster's policies; yield what is missing."""
    for name, own in clients.items():
        try:
            write(line_aside(RUNTIME, _get(own, RUNTIME, dict), name))
        except BrokerError as error:
            yield f"settings of {name} were not read: {error}"
    try:
        content = read_cluster(client, cluster, with_namespaces=False)
        write(line_aside(NAMESPACES, content.model_dump(mode="json")))
        yield "anti-affinity groups of namespaces are not read: no rule of them holds"
    except BrokerError as error:
        yield f"policies were not read: {error}"


def _read_report(client: ReadOnlyClient) -> bytes | BrokerError:
    """Return a broker's report, or why there is none."""
    try:
        answer = client.get(LOAD_REPORT)
        if answer.status == 500 and _is_extensible(client):
            return _make_report(client)
        if answer.status != 200:
            return client.refusal("GET", LOAD_REPORT, answer)
        if not isinstance(client.parse(LOAD_REPORT, answer), dict):
            return UnusableAnswer(f"GET {answer.hops[-1]}{LOAD_REPORT}: expected a JSON object")
        return answer.body
    except BrokerError as error:
        return error


def _is_extensible(client: ReadOnlyClient) -> bool:
    return has_extensible_manager(_get(client, RUNTIME, dict))


def has_extensible_manager(runtime: Mapping[str, object]) -> bool:
    """Return whether a broker with these settings in force has the extensible load manager."""
    given = str(runtime.get("loadManagerClassName", ""))
    return MANAGER_CLASSES.get(given.rpartition(".")[2]) == "extensible"


def _make_report(client: ReadOnlyClient) -> bytes:
    """Return what the statistics of topics tell of a broker of the extensible manager.

    It gives its usages to Pulsar's own clients only: cpu, memory and bandwidth are missing.
    """
    version = client.get(VERSION)
    stats = {
        name: traffic.stats.model_dump(mode="json", by_alias=True)
        for name, traffic in read_bundles(client).items()
    }
    sums = {
        field: sum(float(own.get(field) or 0.0) for own in stats.values())
        for field in ("msgRateIn", "msgRateOut", "msgThroughputIn", "msgThroughputOut")
    }
    fields = {
        "webServiceUrl": client.settings.url,
        "lastStats": stats,
        "bundles": sorted(stats),
        "numBundles": len(stats),
        "lastUpdate": _now_ms(),
        **sums,
    }
    if version.status == 200:
        fields["brokerVersionString"] = version.body[:100].decode("utf-8", "replace").strip()
    return json.dumps(fields).encode()


def _get(client: ReadOnlyClient, path: str, kind: type) -> Any:
    value = client.get_json(path)
    if not isinstance(value, kind):
        what = "a JSON object" if kind is dict else "a JSON list"
        raise UnusableAnswer(f"GET {client.settings.url}{path}: expected {what}")
    return value


def _build_none(clients: Iterable[str], why: Mapping[str, BrokerError]) -> BrokerError:
    """Return the error for a cluster of which no broker answers; its cause is the first one's."""
    first = next(name for name in clients if name in why)
    error = BrokerError(
        f"none of the {len(why)} brokers gives a load report at its own address, such as {first}: "
        f"{why[first]}"
    )
    error.__cause__ = why[first]
    return error


def _wait_until(at: float, is_stopped: Callable[[], bool]) -> None:
    while (left := at - time.monotonic()) > 0 and not is_stopped():
        time.sleep(min(STEP_S, left))


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
