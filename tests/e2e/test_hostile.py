"""A live job with three clusters, two of which must not notice what is done to the third one and to
the machine.

The two play a script (`tests.e2e.calm_brokers`), first alone, then while a hostile sender tries
everything on the third one (`attacks`), and while the job, its Python workers, agents and Kafka are
killed. What is decided about them must be the same. Time, and with it the numbers of rounds, is
Kafka's own: so decisions are compared without their ids and times, otherwise byte for byte and in
their order.

LB_HOSTILE_KILLS sets another number of kills than 26. `make test-hostile` prints what was seen as
JSON.
"""

from __future__ import annotations

import json
import os
import random
import re
import signal
import statistics
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import pytest

from lb_stream.kit.embedded_kafka import EmbeddedKafka
from tests.e2e.attacks import FUZZ, PARTITIONS, WILD, Attacker
from tests.e2e.calm_brokers import NAMES
from tests.e2e.hostile import UNTIMED, Watcher
from tests.e2e.kafka_reads import committed
from tests.e2e.pipeline import Pipeline, wait_until
from tests.support.killing import kill_kafka, kill_worker, processes
from tests.support.topics import topics_named

pytestmark = [pytest.mark.jvm, pytest.mark.e2e, pytest.mark.long, pytest.mark.kills]

CALM = ("calm-1", "calm-2")
VICTIMS = {
    "a Python worker": 8,
    "a calm cluster's agent": 7,
    "the wild cluster's agent": 3,
    "the whole job": 4,
    "Kafka": 4,
}
KILLS = int(os.environ.get("LB_HOSTILE_KILLS", str(sum(VICTIMS.values()))))
KILLS_A_STEP = 2
ATTACKS = 11
STEPS = 1 + ATTACKS + 1 + -(-KILLS // KILLS_A_STEP)
"""The first step is left alone: it comes with the job's start.

After the attacks that a job must outlive comes the bomb.
"""
STEP_S, ANSWERS_S = 400, 600
OUT_OF_MEMORY = 3  # the job's exit code
SETTINGS = UNTIMED | {"unloading_timeout_ms": 600_000, "stream.default_cluster": FUZZ}
"""Nothing that is decided depends on when: shedding runs with new reports only, and no move expires
while something is started anew."""
OF_THE_RUN = {"decision_id", "seq", "epoch", "issued_ms", "expires_ms"}
MOST_GROWTH = {"descriptors": 300, "threads": 250, "memory_mib": 1_500}
"""Spark's block manager has two pools of up to 100 threads each, which fill and empty."""


@dataclass
class Play:
    """The job, the agents of all clusters, and where their script is.

    What ends is started again, as a service manager does.
    """

    pipeline: Pipeline
    clusters: tuple[str, ...]
    attacker: Attacker | None = None
    delays_ms: list[int] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)  # exit codes of the job
    kills: Counter[str] = field(default_factory=Counter)
    step: int = 0

    def __enter__(self) -> Self:
        self._stack, self._agents = ExitStack(), dict[str, subprocess.Popen[bytes]]()
        self._watcher = Watcher(self.pipeline)
        self._stack.callback(self._watcher.close)
        self.job = self._stack.enter_context(self.pipeline.running())
        for cluster in self.clusters:
            self._folder(cluster).mkdir()
            self._start(cluster)
        return self

    def __exit__(self, *_: object) -> None:
        for agent in self._agents.values():
            agent.kill()
            agent.wait()
        self._stack.close()

    def _folder(self, cluster: str) -> Path:
        return self.pipeline.folder / cluster

    def _start(self, cluster: str) -> None:
        topics, bootstrap = self.pipeline.topics, self.pipeline.bootstrap
        if cluster in CALM:
            given = [
                bootstrap,
                cluster,
                topics.reports,
                topics.decisions,
                topics.ownership,
                str(self._folder(cluster)),
            ]
            command = ["-m", "tests.e2e.calm_brokers", *given]
        else:
            given = {"kafka.bootstrap_servers": bootstrap} | {
                f"topics.{name}": getattr(topics, name)
                for name in ("reports", "decisions", "ownership")
            }
            names = [part for name, value in given.items() for part in ("--set", f"{name}={value}")]
            size = (
                "--brokers",
                "3",
                "--bundles",
                "24",
                "--workload",
                "skewed",
                "--interval-s",
                "2",
            )
            command = [
                "-c",
                "from lb_stream.cli.main import main; main()",
                "sim",
                "--cluster",
                cluster,
                *size,
                *names,
            ]
        with (self._folder(cluster) / "agent.log").open("ab") as log:
            self._agents[cluster] = subprocess.Popen(
                [sys.executable, *command], stdout=log, stderr=subprocess.STDOUT
            )

    def tend(self) -> None:
        """Read what is new, forge answers to it, start again what has ended."""
        for decision in self._watcher.poll():
            if self.attacker is not None and decision.cluster in CALM:
                self.attacker.forge_answer(decision)
        if (code := self.job.poll()) is not None:
            self.ends.append(code)
            self.job = self._stack.enter_context(self.pipeline.running())
        for cluster in [name for name, agent in self._agents.items() if agent.poll() is not None]:
            self._start(cluster)

    def get_ready(self) -> None:
        """Until the job knows every bundle of the calm clusters: the script must find the same
        averages each time."""

        def known() -> bool:
            owned = Counter(
                cluster
                for (cluster, _), unit in self._watcher.units.items()
                if unit.state == "Owned"
            )
            return all(owned[cluster] == len(NAMES) for cluster in CALM)

        self.until(known, "all bundles of the calm clusters", STEP_S)

    def begin(self) -> None:
        """The next step of the calm clusters' script."""
        self.step += 1
        self._since = time.monotonic()
        for cluster in CALM:
            new = self._folder(cluster) / "step.new"
            new.write_text(str(self.step))
            new.rename(new.with_name("step"))

    def settle(self) -> None:
        """Until the step's moves have arrived in both of them."""
        self.until(
            lambda: all(self._watcher.settled(cluster, self.step) for cluster in CALM),
            f"step {self.step}",
            STEP_S,
        )
        self.delays_ms.append(round(1_000 * (time.monotonic() - self._since)))
        print(f"{time.strftime('%H:%M:%S')} step {self.step}: {self.delays_ms[-1]} ms", flush=True)

    def until(self, condition: Any, what: str, timeout_s: float) -> None:
        """As `wait_until`, with everything tended meanwhile."""

        def tended() -> bool:
            self.tend()
            return bool(condition())

        wait_until(
            tended,
            f"{what}; ends of the job: {self.ends}; its log:\n{self.pipeline.log()[-3000:]}",
            timeout_s,
        )

    def kill(self, victim: str, broker: EmbeddedKafka, chance: random.Random) -> None:
        """SIGKILL; tend() starts it again, but for Kafka, which is started here."""
        if victim == "Kafka":
            kill_kafka(broker)
            broker.start(STEP_S)
        elif victim == "the whole job":
            self.until(lambda: self.job.poll() is None, "a job to kill", STEP_S)
            self.pipeline.kill(self.job)
        elif victim == "a Python worker":
            self.until(lambda: kill_worker(self.job.pid, chance), "a Python worker to kill", STEP_S)
        else:
            cluster = WILD if "wild" in victim else chance.choice(CALM)
            self.until(
                lambda: self._agents[cluster].poll() is None,
                f"an agent of {cluster} to kill",
                STEP_S,
            )
            self._agents[cluster].kill()
            self._agents[cluster].wait()
        self.kills[victim] += 1

    def look(self) -> Counter[str]:
        """What the job's processes hold; threads also by their names without numbers."""
        seen: Counter[str] = Counter()
        for pid in processes(self.job.pid):
            with suppress(OSError):
                seen["descriptors"] += len(os.listdir(f"/proc/{pid}/fd"))
                names = [
                    re.sub(r"[\d-]+", "", comm.read_text().strip())
                    for comm in Path(f"/proc/{pid}/task").glob("*/comm")
                ]
                seen.update({"threads": len(names)} | Counter(names))
                resident = re.search(r"VmRSS:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())
                seen["memory_mib"] += int(resident[1]) // 1024 if resident else 0
        return seen


@dataclass
class Runs:
    """Both plays after their end."""

    quiet: Play
    hostile: Play
    attacker: Attacker
    before: Counter[str]
    after: Counter[str]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedKafka]:
    """A Kafka of our own, as it will be killed."""
    with EmbeddedKafka(tmp_path_factory.mktemp("hostile-kafka")) as started:
        yield started


def new_pipeline(broker: EmbeddedKafka, folder: Path, name: str) -> Pipeline:
    """One partition for decisions: whoever reads them anew reads them in the order in which they
    were made."""
    topics = topics_named(f"hostile-{name}")
    pipeline = Pipeline(broker.bootstrap, topics, folder / name, SETTINGS)
    pipeline.folder.mkdir()
    pipeline.create_topics(reports=PARTITIONS, decisions=1, ownership=1)
    return pipeline


@pytest.fixture(scope="module")
def runs(
    broker: EmbeddedKafka,
    tmp_path_factory: pytest.TempPathFactory,
    last_words: dict[str, Any],
    seed: int,
) -> Runs:
    """The same script twice: undisturbed, and with everything done at once."""
    chance, folder = random.Random(seed), tmp_path_factory.mktemp("hostile")
    last_words["seed"] = seed
    quiet = Play(new_pipeline(broker, folder, "quiet"), CALM)
    pipeline = new_pipeline(broker, folder, "disturbed")
    attacker = Attacker(broker.bootstrap, pipeline.topics, chance)
    with Play(pipeline, (*CALM, WILD), attacker) as play:
        attacks = attacker.all(CALM)
        assert len(attacks) == ATTACKS
        before: Counter[str] = Counter()
        play.get_ready()
        play.until(
            lambda: WILD in pipeline.table("rounds").to_pydict().get("cluster", []),
            "a round of the wild cluster",
            STEP_S,
        )
        for attack in (None, *attacks):
            if attack is not None:
                attack()
            play.begin()
            play.settle()
            before = before or play.look()
        everything_answered(play, attacker, last_words)
        after = play.look()
        note(last_words, quiet, play, attacker)
        last_words |= {name: [before[name], after[name]] for name in MOST_GROWTH}
        last_words["ends_by_attacks"] = len(play.ends)
        for partition in range(PARTITIONS):
            attacker.bomb(partition)
        play.begin()
        play.settle()
        victims = [victim for victim, number in VICTIMS.items() for _ in range(number)]
        chance.shuffle(victims)
        for at in range(0, KILLS, KILLS_A_STEP):
            play.begin()
            for victim in (victims * (1 + KILLS // len(victims)))[
                at : min(at + KILLS_A_STEP, KILLS)
            ]:
                pause = time.monotonic() + chance.uniform(0, 4)
                play.until(lambda over=pause: time.monotonic() > over, "a moment", STEP_S)
                print(f"{time.strftime('%H:%M:%S')} kill {victim}", flush=True)
                play.kill(victim, broker, chance)
                chance.choice(
                    (attacker.costly_policies, attacker.nasty_names, attacker.extreme_numbers)
                )()
            play.settle()
            note(last_words, quiet, play, attacker)
        everything_answered(play, attacker, last_words)
        attacker.close()
    with quiet:
        quiet.get_ready()
        for _ in range(STEPS):
            quiet.begin()
            quiet.settle()
    note(last_words, quiet, play, attacker)
    return Runs(quiet, play, attacker, before, after)


def note(last_words: dict[str, Any], quiet: Play, play: Play, attacker: Attacker) -> None:
    """What has been done so far, for the last line."""
    delays = {
        "undisturbed": quiet.delays_ms[1:],
        "attacked": play.delays_ms[1 : 1 + ATTACKS],
        "killed": play.delays_ms[1 + ATTACKS :],
    }
    last_words |= {
        "inputs": attacker.inputs,
        "kills": play.kills.total(),
        "killed": dict(play.kills),
    }
    last_words["delay_ms_of_others"] = {
        name: {"median": round(statistics.median(some)), "worst": max(some)}
        for name, some in delays.items()
        if some
    }


def answers(pipeline: Pipeline) -> dict[str, list[str]]:
    """Each command's outcomes."""
    found = defaultdict(list)
    for record in committed(pipeline.bootstrap, pipeline.topics.results):
        answer = json.loads(record.value)
        found[answer["id"]].append(answer["outcome"])
    return found


def rejected(pipeline: Pipeline) -> set[tuple[int, int]]:
    """Where the records lie that have been rejected."""
    rows = pipeline.table("rejected_reports").to_pylist()
    return {
        (row["partition"], row["offset"]) for row in rows if row["topic"] == pipeline.topics.reports
    }


def everything_answered(play: Play, attacker: Attacker, last_words: dict[str, Any]) -> None:
    """Until each command has its answer, and each spoilt record its row."""
    spoilt, looked = attacker.spoilt(), time.monotonic()

    def complete() -> bool:
        nonlocal looked
        if time.monotonic() < looked:
            return False
        given, rows = answers(play.pipeline), rejected(play.pipeline)
        looked = time.monotonic() + 5
        last_words["refused"] = sum("refused" in some for some in given.values()) + len(rows)
        last_words["unanswered"] = (
            sorted(set(attacker.asked) - set(given))[:5] + sorted(spoilt - rows)[:5]
        )
        return not last_words["unanswered"]

    play.until(complete, f"all answers; missing {last_words.get('unanswered')}", ANSWERS_S)


def test_what_is_decided_about_the_others_is_what_an_undisturbed_run_decides(runs: Runs) -> None:
    for cluster in CALM:
        ours, theirs = (decided(play.pipeline, cluster) for play in (runs.hostile, runs.quiet))
        assert len(theirs) == 2 * STEPS
        assert ours == theirs, cluster


def decided(pipeline: Pipeline, cluster: str) -> list[str]:
    """All decisions about a cluster, in their order, without what tells when they were made."""
    found = [
        json.loads(record.value)
        for record in committed(pipeline.bootstrap, pipeline.topics.decisions)
    ]
    return [
        json.dumps({name: one[name] for name in one if name not in OF_THE_RUN})
        for one in found
        if one["cluster"] == cluster
    ]


def test_every_hostile_input_that_asks_for_a_refusal_gets_one(runs: Runs) -> None:
    given = answers(runs.hostile.pipeline)
    wrong = {
        name: given[name]
        for name, wanted in runs.attacker.asked.items()
        if wanted == "refused" and set(given[name]) != {"refused"}
    }
    assert wrong == {}
    assert runs.attacker.spoilt() <= rejected(runs.hostile.pipeline)


def test_nothing_is_lost_and_nothing_comes_twice(runs: Runs) -> None:
    for play in (runs.quiet, runs.hostile):
        rows = play.pipeline.table("rounds").to_pylist()
        logged = Counter(
            one["decision_id"]
            for row in rows
            for one in json.loads(row["decisions"])
            if not one["dry_run"]
        )
        seen = committed(play.pipeline.bootstrap, play.pipeline.topics.decisions)
        assert Counter(json.loads(record.value)["decision_id"] for record in seen) == logged
        assert max(logged.values()) == 1
        assert {row["error"] for row in rows if row["cluster"] in CALM} == {None}


def test_what_nobody_has_is_no_cluster(runs: Runs) -> None:
    rounds = runs.hostile.pipeline.table("rounds")
    assert set(rounds["cluster"].to_pylist()) <= {*CALM, WILD, FUZZ}


def test_what_the_job_holds_is_bounded(runs: Runs) -> None:
    grown = {name: runs.after[name] - runs.before[name] for name in MOST_GROWTH}
    assert {name: more for name, more in grown.items() if more > MOST_GROWTH[name]} == {}, (
        runs.after - runs.before
    ).most_common(15)


def test_no_other_attack_ends_the_job_and_the_bombs_do_once(
    runs: Runs, last_words: dict[str, Any]
) -> None:
    assert last_words["ends_by_attacks"] == 0
    assert Counter(runs.hostile.ends)[OUT_OF_MEMORY] <= 1


def test_everything_was_killed_as_often_as_wanted(runs: Runs) -> None:
    assert runs.hostile.kills.total() == KILLS
    assert Counter(runs.hostile.ends)[-signal.SIGKILL] >= runs.hostile.kills["the whole job"]
