"""What a hostile sender does to a running job: costly, forged, repeated, huge and made-up records
and commands."""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Callable
from random import Random
from typing import Any

from kafka import KafkaProducer

from lb_stream.contracts.base import LARGEST_RECORD_BYTES
from lb_stream.contracts.decisions import Decision
from lb_stream.contracts.settings import TopicSettings
from lb_stream.stream.context import DecodeConfig
from lb_stream.stream.shards.directory import ShardMap
from tests.e2e import bombs
from tests.e2e.hostile import OF_NOBODY, good, hostile
from tests.support.decoding import decoded, record

WILD, FUZZ = "wild", "fuzz"
"""A cluster that has brokers of its own beside what is done to it, and one that has nothing but bad
records."""
PARTITIONS = 3
MALLORY = "mallory:8080"
HOUR_MS = 3_600_000
NASTY = (
    "[/]",
    "[bold red]x[/bold]",
    "\x1b[2J\x1b]0;title\x07",
    "\u202egnp.exe",
    "a\x00b",
    "a" * 200,
    "'; drop table rounds; --",
)


class Attacker:
    """Sends, and remembers what must be refused: `asked` are ids of commands, `spoilt` are places
    of records (partition, offset)."""

    def __init__(self, bootstrap: str, topics: TopicSettings, chance: Random) -> None:
        self._bootstrap, self._topics, self._chance, self._numbers = (
            bootstrap,
            topics,
            chance,
            itertools.count(),
        )
        self._producer = KafkaProducer(
            bootstrap_servers=bootstrap,
            max_request_size=LARGEST_RECORD_BYTES,
            linger_ms=5,
            enable_idempotence=False,
            acks="all",
        )  # an idempotent one may stand still after Kafka's death
        self.inputs = 0
        self.asked: dict[str, str] = {}  # id → "refused", or "answered" where either answer will do
        self._spoilt: list[Any] = []
        self._bombs: set[tuple[int, int]] = set()

    def close(self) -> None:
        """Hand everything to Kafka."""
        self._producer.close(timeout=60)

    def spoilt(self) -> set[tuple[int, int]]:
        """Where the records lie that must be rejected."""
        return {
            (at.partition, at.offset) for at in (future.get(timeout=60) for future in self._spoilt)
        } | self._bombs

    def send(
        self,
        key: bytes | None,
        value: bytes | None,
        kind: str = "",
        *,
        spoilt: bool = False,
        partition: int | None = None,
    ) -> None:
        """A record to the reports topic."""
        headers = [("kind", kind.encode())] if kind else []
        future = self._producer.send(
            self._topics.reports, key=key, value=value, headers=headers, partition=partition
        )
        self.inputs += 1
        if spoilt:
            self._spoilt.append(future)

    def raw(self, value: bytes, key: str = WILD) -> None:
        """Bytes to the commands topic."""
        self._producer.send(self._topics.commands, key=key.encode(), value=value)
        self.inputs += 1

    def ask(self, kind: str, expected: str = "refused", **fields: Any) -> str:
        """A command. Returns its id."""
        name = f"attack-{next(self._numbers)}"
        self.asked[name] = expected
        self.raw(json.dumps({"id": name, "kind": kind, **fields}).encode())
        return name

    # --- the attacks ---

    def bomb(self, partition: int) -> None:
        """A record that is small in Kafka and larger than the job's memory when it is
        decompressed."""
        offset = bombs.send(
            self._bootstrap,
            self._topics.reports,
            partition,
            bombs.bomb(f"{WILD}/bomb:8080".encode()),
        )
        self._bombs.add((partition, offset))
        self.inputs += 1

    def costly_policies(self) -> None:
        """Regular expressions that take for ever where a machine tries all ways, and those that
        can't be had in linear time."""
        self.ask("create-namespace", "answered", namespace=f"t/{'a' * 40}!", bundles=4)
        for pattern, expected in (
            ("t/(a+)+$", "answered"),
            ("t/(a|a)*$", "answered"),
            ("t/(a*)*b", "answered"),
            ("t/(?=a)a+", "refused"),
            (r"(t)/\1", "refused"),
            ("t/" + "(a?)" * 1_000, "refused"),
            ("t/(", "refused"),
        ):
            self.ask(
                "set-policies",
                expected,
                isolation=[{"name": "costly", "namespaces": [pattern], "primary": [".*"]}],
            )
        self.ask("set-policies", "answered", remove_isolation=["costly"])

    def many_bundles(self) -> None:
        """Namespaces with more bundles than a cluster can bear, and one with many."""
        for bundles in (2**14 + 1, 2**20, 2**31, -1, 0):
            self.ask("create-namespace", namespace="t/huge", bundles=bundles)
        self.ask("create-namespace", "answered", namespace="t/large", bundles=1_024)
        boundaries = [0, *range(1, 2**14 + 1), 0xFFFFFFFF]
        self.ask(
            "import-namespaces",
            content={"namespaces": [{"name": "t/huge", "boundaries": boundaries}]},
        )

    def spoilt_reports(self) -> None:
        """Good reports with something done to them by chance; each is taken or rejected as the
        decoder says of it alone."""
        known = DecodeConfig(FUZZ, "commands", {FUZZ: ShardMap()})
        first = good(10_000, FUZZ)
        self.send(first.key, first.value)
        for _ in range(400):
            one = hostile(self._chance, next(self._numbers), 20_000)
            key = None if one.key is None else one.key.replace(one.cluster.encode(), FUZZ.encode())
            ((cluster, _), block), *_ = decoded(
                [record(key, one.value, 0, one.kind)], known
            ).items()
            rejected = (
                any(event["kind"] == "rejected" for event in block["events"])
                and one.value != OF_NOBODY
            )
            future = self._producer.send(
                self._topics.reports, key=key, value=one.value, headers=list(one.headers)
            )
            self.inputs += 1
            if rejected and cluster == FUZZ:
                self._spoilt.append(future)

    def flood(self) -> None:
        """Heartbeats of one key, into every partition: whoever shares it must not be taken for
        dead."""
        for number in range(60_000):
            self.send(
                f"{WILD}/loud:8080".encode(), b"{}", "heartbeat", partition=number % PARTITIONS
            )

    def made_up_clusters(self) -> None:
        """Records of one byte under as many names."""
        for number in range(3_000):
            self.send(f"made-up-{number}/b:1".encode(), b"x")

    def forged_acknowledgements(self, clusters: tuple[str, ...]) -> None:
        """Of decisions that may have been made, by somebody who wasn't asked."""
        for cluster, number in itertools.product(clusters, range(1, 150)):
            for outcome in ("failed", "refused"):
                self.forge(cluster, f"{cluster}:{number}:0", outcome)

    def forge(
        self, cluster: str, decision_id: str, outcome: str, bundle: str | None = None
    ) -> None:
        """One of them."""
        ack = {
            "decision_id": decision_id,
            "outcome": outcome,
            "reason": "so I say",
            "bundle": bundle,
        }
        self.send(f"{cluster}/{MALLORY}".encode(), json.dumps(ack).encode(), "ack")

    def forge_answer(self, decision: Decision) -> None:
        """Answers to a decision that has just been made, before who was asked gives one."""
        for outcome in ("failed", "refused", "released", "acquired"):
            self.forge(decision.cluster, decision.decision_id, outcome)
            self.forge(WILD, decision.decision_id, outcome)

    def repeated_commands(self) -> None:
        """An id with other contents, and a command of an hour ago."""
        again = self.ask("set-config", "answered", values={"short_samples": 10})
        for key in ("max_moves_per_minute", "min_dwell_ms"):
            self.raw(json.dumps({"id": again, "kind": "set-config", "values": {key: 0}}).encode())
        self.ask("pause-cluster", sent_ms=time.time_ns() // 1_000_000 - HOUR_MS)

    def huge_commands(self) -> None:
        """Refused, and so large that nothing should keep them."""
        for _ in range(30):
            self.ask("set-config", values={"shedding_strategy": "x" * 900_000})
        self.ask("dance", step="x" * 900_000)
        self.ask("create-namespace", namespace="t/" + "n" * 900_000)

    def flood_of_commands(self) -> None:
        """Lookups of what is not there."""
        for number in range(1_500):
            self.ask(
                "assign",
                namespace=f"nobody/knows-{number}",
                topic=f"persistent://nobody/knows-{number}/topic",
            )

    def extreme_numbers(self) -> None:
        """In settings, in commands that JSON has no words for, in reports."""
        for values in (
            {"unloading_timeout_ms": 2**63 - 1},
            {"heartbeat_timeout_ms": 2**70},
            {"threshold_percent": -1e308},
        ):
            self.ask("set-config", values=values)
        for text in ("NaN", "Infinity", "1e999", "-1e999"):
            name = f"attack-{next(self._numbers)}"
            self.asked[name] = "refused"
            self.raw(
                (
                    f'{{"id": "{name}", "kind": "set-config", "values": {{"threshold_percent": '
                    f"{text}}}}}"
                ).encode()
            )
        for number, rate in enumerate(
            ("1e308", "1.7976931348623157e308", "5e-324", "1e999", "-1", "NaN")
        ):
            stats = (
                f'{{"acme/extreme/0x00000000_0xffffffff": {{"msgRateIn": {rate}, '
                f'"msgThroughputIn": {rate}}}}}'
            )
            value = (
                f'{{"cpu": {{"usage": 5, "limit": 100}}, "lastStats": {stats}, '
                f'"loadReportType": "LocalBrokerData"}}'
            )
            self.send(f"{FUZZ}/extreme-{number}:8080".encode(), value.encode(), spoilt=number > 2)

    def nasty_names(self) -> None:
        """Markup, escape sequences, bidirectional text, NUL: of brokers, bundles, namespaces."""
        for name in NASTY:
            stats = {f"{name}/n/0x00000000_0xffffffff": {"msgRateIn": 1.0}}
            value = {
                "cpu": {"usage": 5.0, "limit": 100.0},
                "lastStats": stats,
                "loadReportType": "LocalBrokerData",
            }
            self.send(f"{FUZZ}/{name}".encode(), json.dumps(value).encode())
            self.ask("drain-broker", broker=name)
            self.ask("unload", namespace=f"{name.replace('/', '').replace(' ', '')}/n")

    def all(self, clusters: tuple[str, ...]) -> list[Callable[[], None]]:
        """One after another; `clusters` are the others."""
        return [
            self.spoilt_reports,
            self.costly_policies,
            self.many_bundles,
            self.flood,
            self.made_up_clusters,
            lambda: self.forged_acknowledgements(clusters),
            self.repeated_commands,
            self.huge_commands,
            self.flood_of_commands,
            self.extreme_numbers,
            self.nasty_names,
        ]
