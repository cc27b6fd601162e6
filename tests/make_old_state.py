"""`python -m tests.make_old_state`: has today's job leave tests/data/old_state, as a job leaves it that is killed before it can publish.

Two clusters of three brokers, one modular, one extensible. Brokers obey, refuse, send what can't be read; operators split, drain, limit,
make a namespace and are refused. The last batch is logged, not published. A copy of all that goes on with the records of `next`; what it
decides is `expected`.

RocksDB writes the machine's name into its files, so it wants a machine without one (Linux):
`unshare --map-root-user --uts sh -c 'hostname localhost; exec python -m tests.make_old_state'`
"""

import contextlib
import getpass
import json
import socket
import tarfile
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from io import BytesIO
from itertools import pairwise
from pathlib import Path
from shutil import rmtree
from typing import Any
from unittest import mock

from kafka import KafkaConsumer, KafkaProducer, TopicPartition

from lb_stream.contracts.decisions import Decision, read_decision
from lb_stream.core.model.names import parse_bundle
from lb_stream.io.kafka.checkpoint import next_offsets
from lb_stream.io.leadership.leader import announce
from lb_stream.kit.embedded_kafka import EmbeddedKafka
from lb_stream.store import Store
from tests.e2e.kafka_reads import committed, end_offsets
from tests.e2e.pipeline import Pipeline, wait_until
from tests.old_state import (
    BEFORE,
    COMPARED,
    DATA,
    EXPECTED,
    FOLDERS,
    HERE,
    NAMES,
    NEXT,
    PARTITIONS,
    PIPELINE,
    READ,
    SETTINGS,
    TOPICS,
    Record,
    fill,
    names_places,
    read_records,
    unpack,
    watermark,
    write_lines,
    write_records,
)

BROKERS = ("b1:8080", "b2:8080", "b3:8080")
SPACES = {"east": ("acme/orders", 24), "west": ("shop/carts", 15)}
NEXT_ROUNDS = 5


def cut(namespace: str, parts: int) -> list[str]:
    """A namespace's bundles."""
    bounds = [0xFFFFFFFF * at // parts for at in range(parts + 1)]
    return [f"{namespace}/0x{low:08x}_0x{high:08x}" for low, high in pairwise(bounds)]


@dataclass
class World:
    """The brokers, what they serve, and what they say."""

    number: int = 0
    owned: dict[tuple[str, str], list[str]] = field(default_factory=dict)
    weights: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for cluster, (namespace, parts) in SPACES.items():
            bundles = cut(namespace, parts)
            for at, broker in enumerate(BROKERS):
                self.owned[cluster, broker] = bundles[at :: len(BROKERS)]
                self.weights |= dict.fromkeys(self.owned[cluster, broker], 60.0 if at else 300.0)

    def reports(self) -> Iterator[tuple[str, str, str]]:
        """Key, value and kind of one round of reports."""
        self.number += 1
        for cluster, broker in self.owned:
            for value in self._reports(cluster, broker):
                yield f"{cluster}/{broker}", json.dumps(value), "report"

    def _reports(self, cluster: str, broker: str) -> list[dict[str, Any]]:
        stats = {}
        for at, bundle in enumerate(self.owned[cluster, broker]):
            rate = self.weights.get(bundle, 10.0) + (self.number * (at + 3)) % 7
            stats[bundle] = {
                "msgRateIn": rate,
                "msgThroughputIn": 1000 * rate,
                "msgRateOut": rate / 2,
                "topics": 5,
            }
        total = sum(stat["msgRateIn"] for stat in stats.values())
        usage = {
            "cpu": {"usage": total / 30, "limit": 100.0},
            "msgThroughputIn": 1000 * total,
            "msgRateIn": total,
        }
        if cluster == "east":
            return [
                usage
                | {
                    "lastUpdate": 1000 * self.number,
                    "lastStats": stats,
                    "loadReportType": "LocalBrokerData",
                }
            ]
        load = {
            "weightedMaxEMA": total / 3000,
            "msgThroughputEMA": 1000 * total,
            "updatedAt": self.number,
            "bundles": list(stats),
        }
        top = [{"bundleName": name, "stats": one} for name, one in stats.items()]
        return [usage | load, {"topBundlesLoadData": top[-4:]}]

    def obey(self, decision: Decision) -> tuple[str, str, str]:
        """Do it; the acknowledgement."""
        broker = decision.destination if decision.kind == "assign" else decision.source
        mine, outcome = self.owned[decision.cluster, str(broker)], "acquired"
        if decision.kind == "assign":
            mine.append(decision.bundle)
        else:
            mine.remove(decision.bundle)
            outcome = "released"
        if decision.kind == "split":
            namespace, lower, upper = parse_bundle(decision.bundle)
            middle = (lower + upper) // 2
            children = decision.children or [
                f"{namespace}/0x{one:08x}_0x{other:08x}"
                for one, other in ((lower, middle), (middle, upper))
            ]
            mine += children
            self.weights |= dict.fromkeys(children, self.weights[decision.bundle] / 2)
            outcome = "split"
        return self.said(decision, outcome, str(broker))

    @staticmethod
    def said(decision: Decision, outcome: str, broker: str) -> tuple[str, str, str]:
        """An acknowledgement."""
        said = {
            "decision_id": decision.decision_id,
            "outcome": outcome,
            "reason": "busy" if outcome == "refused" else "",
            "sent_ms": 1,
        }
        if decision.cluster == "west" and outcome in ("released", "acquired"):
            said["bundle"] = decision.bundle
        return f"{decision.cluster}/{broker}", json.dumps(said), "ack"


class Scene:
    """The job that runs, and what is said to it."""

    def __init__(self, run: Pipeline) -> None:
        self.run, self.world, self.heard, self.asked = run, World(), set[str](), 0
        self.producer = KafkaProducer(bootstrap_servers=run.bootstrap)

    def say(self, *messages: tuple[str, str, str]) -> None:
        """To the reports topic."""
        for key, value, kind in messages:
            place = {"partition": partition_of(key), "headers": [("kind", kind.encode())]}
            self.producer.send(TOPICS.reports, key=key.encode(), value=value.encode(), **place)
        self.producer.flush()

    def order(self, cluster: str, kind: str, **fields: Any) -> None:
        """A command."""
        self.producer.send(
            TOPICS.commands,
            key=cluster.encode(),
            value=command(self.asked, kind, **fields).encode(),
        )
        self.producer.flush()
        self.asked += 1

    def read(self) -> None:
        """Wait until the job has nothing left to do."""
        ends = {
            (place.topic, place.partition): end
            for topic in READ
            for place, end in end_offsets(self.run.bootstrap, topic).items()
        }
        checkpoint = Store.at(self.run.folder / "checkpoint")
        wait_until(
            lambda: ends.items() <= next_offsets(checkpoint).items(), "the job to have read all"
        )

    def decided(self, *clusters: str) -> list[Decision]:
        """What was decided for these clusters since it was asked last."""
        rows = (
            self.run.table("rounds")
            .sort_by([("log_seq", "ascending"), ("cluster", "ascending")])
            .to_pylist()
        )
        every = [
            read_decision(json.dumps(one)) for row in rows for one in json.loads(row["decisions"])
        ]
        new = [
            one
            for one in every
            if one.decision_id not in self.heard and one.cluster in (clusters or SPACES)
        ]
        self.heard |= {one.decision_id for one in new}
        return new

    def turn(self) -> None:
        """The brokers obey, then report."""
        self.say(*map(self.world.obey, self.decided()), *self.world.reports())
        self.read()


def partition_of(key: str) -> int:
    """Of the reports topic: a broker's records stay together."""
    return int(key.rpartition("/")[2][1:2]) % PARTITIONS["reports"]


def command(number: int, kind: str, **fields: Any) -> str:
    """A command's JSON."""
    return json.dumps({"id": f"order-{number}", "kind": kind, "by": "operator", **fields})


def first_life(scene: Scene) -> None:
    """All that the job sees before it ends for the first time."""
    world = scene.world
    scene.say(*world.reports(), ("east/b1:8080", '{"cpu": {"usage": "hot"', "report"))
    scene.read()
    scene.turn()
    hottest = world.owned["east", BROKERS[0]][0].rpartition("/")
    scene.order("east", "split", namespace=hottest[0], bundle=hottest[2])
    scene.order("east", "unload", namespace="acme/orders", bundle="0x00000000_0x00000001")
    scene.order("west", "create-namespace", namespace="shop/new", bundles=2)
    scene.order(
        "west",
        "set-policies",
        anti_affinity={"shop/carts": "carts"},
        failure_domains={BROKERS[0]: "rack-1"},
    )
    scene.read()
    for _ in range(3):
        scene.turn()
    scene.order(
        "east",
        "set-config",
        values={"max_moves_in_flight_per_broker": 3, "loadBalancerCPUResourceWeight": 0.9},
    )
    scene.order("east", "drain-broker", broker=BROKERS[2])
    stale = next(world.reports())
    scene.turn()
    scene.say(stale)
    bundle = world.owned["west", BROKERS[0]][0].rpartition("/")
    scene.order("west", "unload", namespace=bundle[0], bundle=bundle[2], destination=BROKERS[2])
    scene.read()
    heard = scene.decided("east")
    first, refused, *_ = [
        one for one in heard if one.rule == "drained"
    ]  # of the others nobody knows what became
    done = [one for one in heard if one.kind == "assign" or one is first]
    scene.say(
        *map(world.obey, done),
        world.said(refused, "refused", str(refused.source)),
        *world.reports(),
    )
    scene.read()


def next_records(scene: Scene, begin: list[Record]) -> list[Record]:
    """What comes after the job's end: some acknowledgements, rounds of reports, commands."""
    offsets = {
        (topic, number): 0
        for topic in ("reports", "commands")
        for number in range(PARTITIONS["reports"])
    }
    for one in begin:
        offsets[one.topic, one.partition] = one.offset + 1
    now_ms = max(one.timestamp for one in begin)
    found = []

    def add(topic: str, key: str, value: str, kind: str | None) -> None:
        partition = partition_of(key) if topic == "reports" else 0
        offset = offsets[topic, partition]
        offsets[topic, partition] += 1
        found.append(
            Record(topic, partition, offset, now_ms, key, value, [["kind", kind]] if kind else [])
        )

    for number in range(NEXT_ROUNDS):
        now_ms += 1_000
        if number == 0:
            for decision in scene.decided():
                add("reports", *scene.world.obey(decision))
        if number == 1:
            scene.world.weights |= dict.fromkeys(scene.world.owned["west", BROKERS[2]], 400.0)
            add("commands", "east", command(scene.asked, "undrain-broker", broker=BROKERS[2]), None)
            bundle = scene.world.owned["west", BROKERS[1]][0].rpartition("/")
            add(
                "commands",
                "west",
                command(
                    scene.asked + 1,
                    "unload",
                    namespace=bundle[0],
                    bundle=bundle[2],
                    destination=BROKERS[2],
                ),
                None,
            )
        for message in scene.world.reports():
            add("reports", *message)
    return found


def pack(folder: Path) -> None:
    """Tables and checkpoint into one file, without the name of the folder, and without checksums."""
    rmtree(
        folder / "tables" / "leaders"
    )  # this machine may be called as another one that has no name
    with mock.patch("lb_stream.io.leadership.leader.this_host", lambda: "balancer.example"):
        for epoch in (1, 2):
            announce(Store.at(folder / "tables"), PIPELINE, epoch - 1)
    here = str(folder).encode()
    with tarfile.open(FOLDERS, "w:xz", preset=9) as archive:
        for path in sorted(
            path for part in ("tables", "checkpoint") for path in (folder / part).rglob("*")
        ):
            if not path.is_file() or path.suffix == ".crc":
                continue
            content = path.read_bytes()
            if here in content:
                assert names_places(path), path
                content = content.replace(here, HERE.encode())
            check_nameless(path, content)
            entry = tarfile.TarInfo(str(path.relative_to(folder)))
            entry.size = len(content)
            archive.addfile(entry, BytesIO(content))


def check_nameless(path: Path, content: bytes) -> None:
    """Nothing may tell where this was made."""
    for told in ("/tmp", "/home", "/work", "/root", "127.0.0.1", f"{getpass.getuser()}@"):
        assert told.encode() not in content, (path, told)


def kept(bootstrap: str) -> list[Record]:
    """All that is on the topics."""
    found = []
    for name in NAMES:
        for one in committed(bootstrap, getattr(TOPICS, name)):
            key, value = (
                None if content is None else content.decode() for content in (one.key, one.value)
            )
            headers = [[name, content.decode()] for name, content in one.headers]
            found.append(
                Record(name, one.partition, one.offset, one.timestamp, key, value, headers)
            )
    return found


def published(bootstrap: str) -> int:
    """How many batches the job has published."""
    with contextlib.closing(
        KafkaConsumer(
            bootstrap_servers=bootstrap, group_id=f"{PIPELINE}-watermark", enable_auto_commit=False
        )
    ) as mark:
        return int(mark.committed(TopicPartition(TOPICS.decisions, 0)))


def make(folder: Path, run: Pipeline) -> list[Record]:
    """All files but `expected`. Returns what comes next."""
    run.create_topics(**PARTITIONS)
    scene = Scene(run)
    with run.running():
        first_life(scene)
    scene.say(*map(scene.world.obey, scene.decided("west")), *scene.world.reports())
    with run.running("--once", "--set", "stream.crash_at=after_log:1") as job:
        job.wait(timeout=180)
    rounds, mark = run.table("rounds"), published(run.bootstrap)
    assert mark == max(rounds["log_seq"].to_pylist()), (mark, run.log()[-3000:])
    before = kept(run.bootstrap)
    following = next_records(scene, [one for one in before if one.topic in ("reports", "commands")])
    write_records(BEFORE, before)
    write_records(NEXT, following)
    (DATA / "watermark.json").write_text(f"{mark}\n")
    pack(folder)
    return before


def go_on(folder: Path, bootstrap: str, before: list[Record]) -> None:
    """`expected`: what today's job makes of `next`."""
    unpack(folder)
    last = max(Pipeline(bootstrap, TOPICS, folder).table("rounds")["log_seq"].to_pylist())
    fill(bootstrap, [*before, *read_records(NEXT)], watermark())
    run = Pipeline(bootstrap, TOPICS, folder, SETTINGS)
    run.run_once()
    rounds = run.table("rounds").sort_by([("log_seq", "ascending"), ("cluster", "ascending")])
    write_lines(
        EXPECTED,
        (row for row in rounds.select(list(COMPARED)).to_pylist() if row["log_seq"] > last),
    )


def main() -> None:
    """Two brokers, one after the other: what is kept must be enough for a new one."""
    assert socket.gethostname() == "localhost", __doc__
    DATA.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as name:
        for part in ("first", "second"):
            (Path(name) / part).mkdir()
        with EmbeddedKafka(Path(name) / "kafka") as kafka:
            settings = SETTINGS | {"stream.max_offsets_per_trigger": 100}  # a batch for each turn
            before = make(
                Path(name) / "first",
                Pipeline(kafka.bootstrap, TOPICS, Path(name) / "first", settings),
            )
        with EmbeddedKafka(Path(name) / "other-kafka") as kafka:
            go_on(Path(name) / "second", kafka.bootstrap, before)


if __name__ == "__main__":
    main()
