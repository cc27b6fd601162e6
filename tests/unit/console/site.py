"""A console over small tables, asked without a network."""

from __future__ import annotations

from html.parser import HTMLParser
from pathlib import Path
from typing import Any

from httpx2 import Response
from kafka.errors import KafkaTimeoutError
from starlette.testclient import TestClient

from lb_stream.console.address import link
from lb_stream.console.app import build_console
from lb_stream.console.auth.visitor import READ_ONLY, Access
from lb_stream.console.sending import SendCommand
from lb_stream.console.sources.reader import Reader
from lb_stream.contracts.commands import Command
from lb_stream.contracts.settings import Settings
from lb_stream.contracts.tables import (
    BROKER_HISTORY,
    BROKER_LOADS,
    BUNDLE_AVERAGES,
    BUNDLE_HISTORY,
    ROLLOUTS,
    ROUNDS,
)
from lb_stream.core.model.memory import Memory
from lb_stream.core.model.operator_state import OperatorState
from lb_stream.core.model.rollout import BrokerProgress, RolloutOrder, RolloutProgress
from lb_stream.store import Store
from tests.support.shown_tables import write
from tests.support.table_rows import NOW, fill, load

BROKER, BUNDLE = "b-1:80", "shop/hot/0x00000000_0x10000000"


def settings_of(tables: Path) -> Settings:
    return Settings.model_validate(
        {"stream": {"tables": str(tables), "checkpoint": str(tables / "checkpoint")}}
    )


def client(tables: Path, access: Access = READ_ONLY, send: SendCommand | None = None) -> TestClient:
    """Return a client of a console whose view of the tables is never replaced."""
    reader = Reader(Store.at(tables), settings_of(tables), None, clock=lambda: 0.0)
    app = build_console(reader, access=access, send=send)
    return TestClient(
        app, base_url="http://localhost", raise_server_exceptions=False, follow_redirects=False
    )


def fleet(tables: Path, broker: str = BROKER, bundle: str = BUNDLE, more: int = 0) -> None:
    """Tables of the cluster eu-1: a refused unload of the bundle, a command, an error; `more`
    brokers beside."""
    write(tables, broker, bundle)
    if more:
        fill(
            tables,
            BROKER_LOADS,
            [load("eu-1", 1, f"more-{number:03}:80", float(number)) for number in range(more)],
        )
    names = [
        f"{flow}_throughput_{way}_bytes_per_s"
        for flow in ("latest", "short", "long")
        for way in ("in", "out")
    ]
    known = [(bundle, broker, 3e6), ("shop/cold/0x00000000_0xffffffff", "b-2:80", 1e6)]
    fill(
        tables,
        BUNDLE_AVERAGES,
        [
            {
                "cluster": "eu-1",
                "bundle": name,
                "owner": owner,
                "owner_since_ms": NOW,
                "topics": 3,
                "part": "eu-1-0",
                "now_ms": NOW,
            }
            | dict.fromkeys(names, rate / 2)
            for name, owner, rate in known
        ],
    )
    fill(
        tables,
        BROKER_HISTORY,
        [{"cluster": "eu-1", "broker": broker, "slot_ms": NOW - 5000, "cpu_limit": 800.0}],
    )
    slot = {
        "cluster": "eu-1",
        "bundle": bundle,
        "slot_ms": NOW - 60_000,
        "throughput_in_bytes_per_s": 1e6,
        "throughput_out_bytes_per_s": 2e6,
    }
    fill(tables, BUNDLE_HISTORY, [slot])


def add_rollout(
    tables: Path, brokers: dict[str, BrokerProgress], planned: tuple[str, ...], **order: Any
) -> None:
    """A rollout of eu-1 that is on since NOW - 300 s, and one that ended the day before.

    `brokers`: the progress of each; `planned`: those that wait, in their order. `still_ms`: since
    when it stands still.
    """
    start_ms, still_ms = NOW - 300_000, order.pop("still_ms", None)
    given = RolloutOrder("roll-2", "alice", start_ms, tuple(brokers), wanted=2, **order)
    progress = RolloutProgress(
        "roll-2",
        start_ms,
        brokers,
        planned,
        peak_usage=0.712,
        expected_usage=0.734,
        still_ms=still_ms,
    )
    memory = Memory(operator_state=OperatorState(rollout=given), rollout=progress)
    now = {"cluster": "eu-1", "seq": 2, "log_seq": 2, "now_ms": NOW, "epoch": 1, "batch_id": 2}
    logged = {"outcomes": "[]", "inputs": '{"settings": {}}', "memory": memory.to_json()}
    fill(tables, ROUNDS, [now | logged])
    events = [
        ("roll-1", None, "started", -86_400_000, "a rollout of 1 broker begins"),
        ("roll-1", None, "ended", -86_100_000, "all brokers are back"),
        ("roll-2", None, "started", -300_000, "a rollout of the brokers begins"),
    ]
    events += [
        ("roll-2", name, broker.phase, broker.since_ms - NOW, f"{name} is {broker.phase}")
        for name, broker in brokers.items()
        if broker.phase != "waiting"
    ]
    rows = [
        {"cluster": "eu-1", "rollout": rollout, "broker": broker, "phase": phase}
        | {"at_ms": NOW + at_ms, "text": text, "moves": 3, "seq": 1, "now_ms": NOW + at_ms}
        | {"log_seq": number}
        for number, (rollout, broker, phase, at_ms, text) in enumerate(events)
    ]
    fill(tables, ROLLOUTS, rows)


def addresses(broker: str = BROKER, bundle: str = BUNDLE) -> list[str]:
    """Return the addresses of all pages."""
    namespace = bundle.rpartition("/")[0] or bundle
    return [
        "/",
        link("cluster", name="eu-1"),
        link("broker", cluster="eu-1", name=broker),
        link("bundle", cluster="eu-1", name=bundle),
        link("namespace", cluster="eu-1", name=namespace),
        link("tenant", cluster="eu-1", name=namespace.partition("/")[0]),
        link("heat", cluster="eu-1"),
        link("groups", cluster="eu-1"),
        link("groups", cluster="eu-1", by="tenant"),
        link("bundles", cluster="eu-1"),
        link("history", cluster="eu-1"),
        link("audit", cluster="eu-1"),
        link("search", q=broker[:3]),
        link("decision", id="eu-1:1:0"),
        link("round", cluster="eu-1", seq=1),
        link("plan", cluster="eu-1"),
        link("what-if", cluster="eu-1", drain=broker),
        link("proposals", cluster="eu-1"),
        link("rollout", cluster="eu-1"),
        link("settings", cluster="eu-1"),
        link("changes", cluster="eu-1"),
        link("cost", cluster="eu-1"),
        link("cost", cluster="eu-1", by="namespace", each="total"),
    ]


class Topic:
    """Records the commands that are sent."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, Command]] = []
        self.away = False

    def __call__(self, cluster: str, command: Command) -> None:
        if self.away:
            raise KafkaTimeoutError("no broker answers")
        self.sent.append((cluster, command))


class Tags(HTMLParser):
    """The tags of a page with their attributes, and its text."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self._times: list[tuple[dict[str, Any], str]] = []
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag == "time":
            self._times.append((dict(attrs), ""))

    def handle_data(self, data: str) -> None:
        self.text += data
        if self._times and not self._times[-1][1]:
            self._times[-1] = (self._times[-1][0], data)

    def times(self) -> list[tuple[dict[str, Any], str]]:
        """Attributes and text of each time."""
        return self._times

    def all(self, tag: str) -> list[dict[str, Any]]:
        return [attributes for name, attributes in self.tags if name == tag]


PASSWORD = "correct horse"


def log_in(site: TestClient, name: str, password: str = PASSWORD, following: str = "/") -> Response:
    return site.post("/login", data={"name": name, "password": password, "next": following})
