"""Records that no broker should send: a good load report with something done to it, by chance."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, replace
from random import Random
from typing import Any

from kafka import KafkaConsumer, TopicPartition

from lb_stream.contracts.decisions import Decision, Ownership, read_decision
from lb_stream.contracts.reads import is_reads
from tests.e2e.pipeline import Pipeline

LARGEST_TEXT = 10_000_000
CLUSTERS = tuple(f"wild-{number:02d}" for number in range(20))
OF_NOBODY = b'{"topBundlesLoadData": []}'
"""A report that can be read, of a broker whose load data nobody has seen."""
TEN_YEARS_MS = 10 * 365 * 86_400_000
NOW_MS = 1_767_225_660_000


@dataclass(frozen=True)
class Wild:
    """One record, what was done to it, and which broker sent it (each record has one of its
    own)."""

    done: str
    cluster: str
    broker: str
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes], ...] = ()

    @property
    def kind(self) -> str | None:
        """The header that counts, as Spark hands it to the decoder."""
        kinds = [value for name, value in self.headers if name == "kind"]
        return kinds[-1].decode(errors="replace") if kinds else None


def good(number: int, cluster: str) -> Wild:
    """A modular or simple report that can be taken."""
    broker = f"w{number}:8080"
    stats = {
        f"wild/w{number}/0x{at << 28:08x}_0x{(at + 1) << 28:08x}": {
            "msgRateIn": 1.5 * at,
            "msgThroughputIn": 10.0 * at,
            "topics": at,
        }
        for at in range(3)
    }
    identity = {
        "webServiceUrl": f"http://{broker}",
        "brokerVersionString": "4.0.7",
        "startTimestamp": NOW_MS,
    }
    resources = {
        "cpu": {"usage": 20.0, "limit": 400.0},
        "bandwidthIn": {"usage": 1.0, "limit": 1e6},
    }
    if number % 4:
        report = {
            **resources,
            "lastStats": stats,
            "lastUpdate": NOW_MS,
            "numTopics": 3,
            "loadReportType": "LocalBrokerData",
        }
    else:
        report = {
            "systemResourceUsage": resources,
            "bundleStats": stats,
            "timestamp": NOW_MS,
            "loadReportType": "LoadReport",
        }
    return Wild(
        "nothing",
        cluster,
        broker,
        f"{cluster}/{broker}".encode(),
        json.dumps(report | identity).encode(),
    )


def hostile(random: Random, number: int, largest: int, way: str = "") -> Wild:
    """A record of broker no.

    `number`, spoilt in one of WAYS, or in the given one. `largest`: bytes of the largest text.
    """
    cluster = random.choice(CLUSTERS)
    name = way or random.choice(tuple(WAYS))
    return replace(WAYS[name](random, good(number, cluster), largest), done=name)


def _fields(wild: Wild) -> dict[str, Any]:
    fields: dict[str, Any] = json.loads(wild.value or b"{}")
    return fields


def _leaves(fields: Any, path: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    if not isinstance(fields, dict):
        return [path]
    return [leaf for name, value in fields.items() for leaf in _leaves(value, (*path, name))] + (
        [path] if path else []
    )


def _put(wild: Wild, random: Random, values: list[Any]) -> Wild:
    """Another value at a place of the report that is chosen by chance."""
    fields = _fields(wild)
    *above, last = random.choice(_leaves(fields))
    place = fields
    for name in above:
        place = place[name]
    place[last] = random.choice(values)
    return replace(wild, value=json.dumps(fields).encode())


def _raw(wild: Wild, random: Random, raws: list[str]) -> Wild:
    """As `_put`, with JSON text that Python would not write."""
    marked = _put(wild, random, ["HERE"])
    return replace(
        marked, value=(marked.value or b"").replace(b'"HERE"', random.choice(raws).encode())
    )


def _cut(random: Random, wild: Wild, largest: int) -> Wild:
    value = wild.value or b""
    return replace(wild, value=value[: random.randrange(len(value))])


def _nested(random: Random, wild: Wild, largest: int) -> Wild:
    depth = random.choice((50, 900, 1_100, 5_000, 100_000))
    opening, closing = random.choice((("[", "]"), ('{"a":', "}")))
    return _raw(wild, random, [opening * depth + "0" + closing * depth, opening * depth])


def _large_text(random: Random, wild: Wild, largest: int) -> Wild:
    size = random.choice((1_000, 20_000, largest)) if largest < LARGEST_TEXT // 2 else largest
    letter = random.choice(("x", "ä", "\\u0000", "\\n"))
    return _raw(wild, random, ['"' + letter * (size // len(letter.encode())) + '"'])


def _unknown_fields(random: Random, wild: Wild, largest: int) -> Wild:
    added = {
        f"unknown{at}": random.choice([None, 1, "x" * 1_000, [1, {"a": []}], {}])
        for at in range(random.choice((1, 100)))
    }
    return replace(wild, value=json.dumps(_fields(wild) | added).encode())


def _twice(random: Random, wild: Wild, largest: int) -> Wild:
    """A key that is there twice, with the same value or another one."""
    name = random.choice(tuple(_fields(wild)))
    value = random.choice(["1", '"x"', "{}", "null", json.dumps(_fields(wild)[name])])
    return replace(wild, value=(wild.value or b"")[:-1] + f', "{name}": {value}}}'.encode())


def _unicode(random: Random, wild: Wild, largest: int) -> Wild:
    value = bytearray(wild.value or b"")
    for _ in range(random.choice((1, 3))):
        value[random.randrange(len(value))] = random.randrange(128, 256)
    return replace(
        wild,
        value=random.choice(
            (bytes(value), _raw(wild, random, ['"\\ud800"', '"\\udc00\\ud800"']).value)
        ),
    )


def _types(random: Random, wild: Wild, largest: int) -> Wild:
    return _put(wild, random, [None, True, "text", "12", 0, 1.5, [], [1], {}, {"usage": {}}])


def _overflow(random: Random, wild: Wild, largest: int) -> Wild:
    beyond = [
        "1e999",
        "-1e999",
        "NaN",
        "Infinity",
        "9" * 400,
        "9" * 5_000,
        "-9223372036854775809",
        "9223372036854775808",
        "1e308",
        "-0.0",
    ]
    return _raw(wild, random, beyond)


def _clock(random: Random, wild: Wild, largest: int) -> Wild:
    fields = _fields(wild)
    shift = random.choice((-1, 1)) * TEN_YEARS_MS
    for name in ("lastUpdate", "timestamp", "startTimestamp"):
        if name in fields and random.random() < 0.7:
            fields[name] += shift
    return replace(wild, value=json.dumps(fields).encode())


def _flipped(random: Random, wild: Wild, largest: int) -> Wild:
    value = bytearray(wild.value or b"")
    for _ in range(random.choice((1, 2, 20))):
        at = random.randrange(len(value))
        value[at : at + random.choice((0, 1, 2))] = random.choice(
            (b"", b'"', b"{", bytes([random.randrange(256)]))
        )
    return replace(wild, value=bytes(value))


def _noise(random: Random, wild: Wild, largest: int) -> Wild:
    return replace(wild, value=random.randbytes(random.choice((1, 30, 2_000))))


def _other_json(random: Random, wild: Wild, largest: int) -> Wild:
    others = (
        b"[]",
        b"1",
        b"null",
        b'"x"',
        b"{}",
        OF_NOBODY,
        b'{"cpu": {}} {"cpu": {}}',
        b" ",
        b'{"cpu": null}',
    )
    return replace(wild, value=random.choice(others))


def _nothing_in_it(random: Random, wild: Wild, largest: int) -> Wild:
    return replace(wild, value=random.choice((b"", None)))


def _headers(random: Random, wild: Wild, largest: int) -> Wild:
    kinds = (
        b"rumour",
        b"",
        b"\xff\xfe",
        b"REPORT",
        b"report",
        b"heartbeat",
        b"ack",
        b"goodbye",
        b"x" * 10_000,
    )
    headers = [("kind", random.choice(kinds)) for _ in range(random.choice((1, 2)))] + [
        ("Kind", b"ack"),
        ("trace", b"\x00"),
    ]
    return replace(wild, headers=tuple(headers))


def _agent(random: Random, wild: Wild, largest: int) -> Wild:
    ack = b'{"decision_id": "x:1:0", "outcome": "released"}'
    values = (
        ack,
        b"{}",
        b"",
        b'{"sent_ms": 1}',
        b'{"sent_ms": "soon"}',
        b'{"decision_id": 1}',
        b"[",
        b"\xff",
    )
    return replace(
        wild,
        value=random.choice(values),
        headers=(("kind", random.choice((b"heartbeat", b"ack", b"goodbye"))),),
    )


def _key(random: Random, wild: Wild, largest: int) -> Wild:
    cluster, broker = wild.cluster.encode(), wild.broker.encode()
    keys = (
        None,
        b"",
        b"/",
        b"//",
        b"no cluster here/",
        broker,
        cluster + b"/",
        b"\xff\xff",
        cluster + b"/b/" + broker,
        b"x/" * 50_000,
        cluster + b"/" + b"y" * 50_000,
    )
    return replace(wild, key=random.choice(keys))


def _bundles(random: Random, wild: Wild, largest: int) -> Wild:
    names = (
        "",
        "x",
        "a/b/0x00000000",
        "a/b/0xffffffff_0x00000000",
        "a/b/0x0_0x1",
        "a/b/c/0x00000000_0x10000000",
        "ä/ö/0x00000000_0x10000000",
    )
    fields = _fields(wild)
    stats = fields.get("lastStats", fields.get("bundleStats"))
    stats[random.choice((*names, "n" * largest))] = {"msgRateIn": 1.0}
    return replace(wild, value=json.dumps(fields).encode())


def _negative(random: Random, wild: Wild, largest: int) -> Wild:
    return _put(wild, random, [-1, -0.001, -(2**63)])


def _left_alone(random: Random, wild: Wild, largest: int) -> Wild:
    return wild


WAYS: dict[str, Callable[[Random, Wild, int], Wild]] = {
    "cut off": _cut,
    "nested": _nested,
    "large text": _large_text,
    "unknown fields": _unknown_fields,
    "a key twice": _twice,
    "wrong unicode": _unicode,
    "swapped types": _types,
    "overflow": _overflow,
    "clock ten years off": _clock,
    "flipped bytes": _flipped,
    "noise": _noise,
    "other JSON": _other_json,
    "nothing in it": _nothing_in_it,
    "wrong headers": _headers,
    "an agent's record": _agent,
    "wrong key": _key,
    "wrong bundles": _bundles,
    "negative": _negative,
    "left alone": _left_alone,
}

UNTIMED = {
    "dry_run": "false",
    "shedding_interval_ms": 0,
    "shedding_grace_period_ms": 0,
    "history_ratio": 0,
    "min_throughput_mb": 0,
    "stream.metrics_address": "",
}


class Watcher:
    """Reads decisions and ownership records as they come."""

    def __init__(self, pipeline: Pipeline) -> None:
        topics = pipeline.topics
        self._consumer = KafkaConsumer(
            bootstrap_servers=pipeline.bootstrap,
            auto_offset_reset="earliest",
            isolation_level="read_committed",
        )
        self._consumer.assign(
            [TopicPartition(topic, 0) for topic in (topics.decisions, topics.ownership)]
        )
        self._decisions_topic = topics.decisions
        self.decisions: dict[str, list[Decision]] = defaultdict(list)
        self.units: dict[tuple[str, str], Ownership] = {}

    def poll(self) -> list[Decision]:
        """Returns the new decisions."""
        new = []
        for record in (
            record for some in self._consumer.poll(timeout_ms=100).values() for record in some
        ):
            if is_reads(record.headers):
                continue
            if record.topic == self._decisions_topic:
                new.append(read_decision(record.value))
                self.decisions[new[-1].cluster].append(new[-1])
            elif record.value:
                unit = Ownership.model_validate_json(record.value)
                self.units[unit.cluster, unit.bundle] = unit
        return new

    def settled(self, cluster: str, moves: int) -> bool:
        """Whether so many moves have arrived."""
        assigned = [one for one in self.decisions[cluster] if one.kind == "assign"]
        if len(assigned) < moves:
            return False
        unit = self.units.get((cluster, assigned[-1].bundle))
        return unit is not None and unit.state == "Owned" and unit.owner == assigned[-1].destination

    def close(self) -> None:
        self._consumer.close()
