"""Scenario files: a cluster, what happens to it, and what the balancer says, readable without
knowing any code.

A file is a row of blocks: comment lines (`#`) say why, command lines say what happens, and below
`----` stands everything that was printed, up to an empty line. The cluster lives on from block to
block. Commands:

    config    key=value …              settings, under our names or Pulsar's
    brokers   a=0.92 b=0.30 …          brokers and their cpu usage
    capacity  a=100MB b=50MB …         brokers whose usage follows from what they own: 1 at this
    throughput
    bundles   a: t/n/0=40MB t/n/1 …    what a broker owns now, with throughput in (1 MB = 1 000
    msg/s); `none` empties it;
                                       t/n/0=40MB,1200topics says how many topics it has, else none
    silent    c …                      no report and no heartbeat from now on
    speaks    c …                      reports and heartbeats again
    goodbye   c …                      leaves on purpose
    restarts  c … [clock=-1h]          its process is started anew, at the time of its own clock,
    and has read no decision from before
    deaf      c …                      hears no decision from now on, though it reports
    hears     c …                      hears them again
    balances  c …                      these brokers' own cluster balances by itself, from now on;
    `none`: nobody's does
    merges    c …                      these brokers' agents say that they can merge bundles, from
    now on; `none`: nobody's does
    wait      30s                      time passes
    restart   [caught_up=no] [averages=lost]   the job starts anew with the memory that it wrote
    down
    round                              every broker reports, the balancer decides; prints what it
    decides, what came of earlier
                                       decisions, and what it refused
    loop      20 every=10s             so many rounds; after each the brokers obey and time passes.
    Prints the moves, what was
                                       refused by which rule, and what the cluster has come to
    shed      ThresholdShedder …       the shedder alone, with settings; remembers nothing
    obey      [t/n/0 …]                brokers carry out what is pending (of these bundles)
    hand_over t/n/0 …                  the broker that should act on a move does, and acknowledges
    it by name; it reports later
    refuse    t/n/0 WORDS              the broker that should act on it refuses
    memory                             prints what the balancer remembers
    command   unload bundle=t/n/0 …    an operator's command: its kind and fields; `namespace=`
    where there is no bundle; several
                                       `bundles=` with commas between; answered in the
                                       next round. Of set-config the fields are the settings. id=…
                                       gives it an id, else c1, c2, …
    isolate   t/n primary=a secondary=b min=1   a policy: what the namespaces (a regular expression)
    may use
    group     t/n=g t/m=g              namespaces that keep apart
    domain    a=east b=west            failure domains
    why                                prints the candidates of the last round's decisions
    records                            prints the ownership records of the last round, by bundle

`t/n/3` stands for the fourth of a namespace's 16 slices, `t/n/0-3` for the four slices 0 to 3 as
one bundle.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from lb_stream.contracts.commands import COMMANDS
from lb_stream.contracts.decisions import Decision
from lb_stream.contracts.reports import Ack, BundleStats
from lb_stream.core.averages import fold
from lb_stream.core.averages.cluster_view import view_of
from lb_stream.core.commands.responder import Received
from lb_stream.core.config.cluster_config import ClusterConfig
from lb_stream.core.model.blocks import Shard
from lb_stream.core.model.memory import Memory, Pending
from lb_stream.core.model.policies import NO_POLICIES, IsolationPolicy, Policies
from lb_stream.core.model.refusals import Refusal
from lb_stream.core.model.view import ClusterView
from lb_stream.core.round.decide import Inbox, Round
from lb_stream.core.shedding.base import MB, ShedContext
from lb_stream.settings.resolve import cluster_config
from tests.support.build import Event, Report, batch_of
from tests.support.commanded_round import decide_with

RULER = "----"
SLICES, SLICE = 16, 1 << 28
MSGS_PER_S_OF_A_MB = 1000.0


@dataclass
class Block:
    """Comments and commands, and the lines printed below them."""

    given: list[str]
    expected: list[str]


def parse(text: str) -> list[Block]:
    """The blocks of one file."""
    blocks: list[Block] = []
    for part in re.split(r"\n\s*\n", text.strip("\n")):
        given, ruler, expected = part.partition(f"{RULER}\n" if f"{RULER}\n" in part else RULER)
        if not ruler:
            raise ValueError(f"a block without {RULER}: {part!r}")
        blocks.append(Block(given.splitlines(), expected.splitlines()))
    return blocks


def run(path: Path) -> tuple[str, str]:
    """One file's text, and the same text with the output that its commands print now."""
    text = path.read_text(encoding="utf-8")
    cluster = Cluster()
    played = []
    for block in parse(text):
        printed = [
            line
            for command in block.given
            if not command.startswith("#")
            for line in cluster.do(command)
        ]
        played.append("\n".join([*block.given, RULER, *(printed or ["nothing"])]))
    return text, "\n\n".join(played) + "\n"


def bundle_name(short: str) -> str:
    """t/n/3 or t/n/0-3 → the bundle's whole name."""
    namespace, _, slices = short.rpartition("/")
    first, _, last = slices.partition("-")
    lower, upper = int(first) * SLICE, min((int(last or first) + 1) * SLICE, 0xFFFFFFFF)
    return f"{namespace}/0x{lower:08x}_0x{upper:08x}"


def short_name(bundle: str) -> str:
    """The other way round."""
    namespace, _, bounds = bundle.rpartition("/")
    lower, upper = (int(bound, 16) for bound in bounds.split("_"))
    first, last = lower // SLICE, -(-upper // SLICE) - 1
    return f"{namespace}/{first}" if first == last else f"{namespace}/{first}-{last}"


@dataclass
class Cluster:
    """Brokers that report and obey, and the balancer's memory."""

    settings: dict[str, Any] = field(default_factory=dict)
    usage: dict[str, float] = field(default_factory=dict)
    owned: dict[str, dict[str, float]] = field(default_factory=dict)  # broker → bundle → bytes/s
    loads: dict[str, float] = field(default_factory=dict)
    topics: dict[str, int] = field(default_factory=dict)
    capacity: dict[str, float] = field(
        default_factory=dict
    )  # broker → bytes/s at which its usage is 1
    silent: set[str] = field(default_factory=set)
    unhearing: set[str] = field(default_factory=set)
    starts: dict[str, int] = field(
        default_factory=dict
    )  # broker → start of its process, by its own clock
    unread: set[str] = field(
        default_factory=set
    )  # ids of decisions that a broker's new process has not read
    balancing: dict[str, tuple[str, ...]] = field(default_factory=dict)
    merging: dict[str, bool] = field(default_factory=dict)
    busy: set[str] = field(default_factory=set)  # they don't report in the next round
    events: list[Event] = field(default_factory=list)
    acks: list[Ack] = field(default_factory=list)
    commands: list[Received] = field(default_factory=list)
    commanded: int = 0
    now_ms: int = 1_000_000
    offset: int = 0
    caught_up: bool = True
    shard: Shard = field(default_factory=Shard.empty)
    memory: Memory = field(default_factory=Memory)
    policies: Policies = NO_POLICIES
    last: Round | None = None
    decided: dict[str, Decision] = field(default_factory=dict)

    def do(self, command: str) -> Iterator[str]:
        """Carry out one command line; yields what it prints."""
        word, _, rest = command.strip().partition(" ")
        action: Callable[[list[str]], Iterator[str] | None] | None = getattr(self, f"_{word}", None)
        if action is None:
            raise ValueError(f"unknown command: {command!r}; they are listed in {__name__}")
        yield from action(rest.split()) or ()

    def _config(self, words: list[str]) -> None:
        self.settings |= _settings(words)

    def _brokers(self, words: list[str]) -> None:
        for word in words:
            name, _, usage = word.partition("=")
            self.usage[name] = float(usage)
            self.owned.setdefault(name, {})

    def _capacity(self, words: list[str]) -> None:
        for word in words:
            name, _, most = word.partition("=")
            self.capacity[name] = float(most.removesuffix("MB")) * MB
            self.owned.setdefault(name, {})
            self.usage[name] = self._usage(name)

    def _usage(self, broker: str) -> float:
        return (
            sum(self.owned[broker].values()) / self.capacity[broker]
            if broker in self.capacity
            else self.usage[broker]
        )

    def _bundles(self, words: list[str]) -> None:
        broker = words[0].removesuffix(":")
        self.owned[broker] = {}
        for word in words[1:]:
            if word != "none":
                short, _, load = word.partition("=")
                name = bundle_name(short)
                load, _, topics = load.partition(",")
                self.loads[name] = float(load.removesuffix("MB")) * MB if load else self.loads[name]
                self.topics[name] = (
                    int(topics.removesuffix("topics")) if topics else self.topics.get(name, 0)
                )
                self.owned[broker][name] = self.loads[name]

    def _silent(self, words: list[str]) -> None:
        self.silent |= set(words)

    def _speaks(self, words: list[str]) -> None:
        self.silent -= set(words)

    def _restarts(self, words: list[str]) -> None:
        behind_ms = (
            sum(
                int(word.removeprefix("clock=-").removesuffix("h"))
                for word in words
                if word.startswith("clock=")
            )
            * 3_600_000
        )
        names = {word for word in words if "=" not in word}
        self.starts |= dict.fromkeys(names, self.now_ms - behind_ms)
        self.unread |= {one.decision_id for one in self.memory.pending if one.asked in names}

    def _deaf(self, words: list[str]) -> None:
        self.unhearing |= set(words)

    def _hears(self, words: list[str]) -> None:
        self.unhearing -= set(words)

    def _balances(self, words: list[str]) -> None:
        self.balancing = {name: () for name in self.usage} | {
            name: ("loadBalancerSheddingEnabled",) for name in words if name != "none"
        }

    def _merges(self, words: list[str]) -> None:
        self.merging = {name: name in words for name in self.usage}

    def _goodbye(self, words: list[str]) -> None:
        self.silent |= set(words)
        self.events += [
            Event("goodbye", name, self.now_ms, offset=self._next_offset()) for name in words
        ]

    def _wait(self, words: list[str]) -> None:
        self.now_ms += int(float(words[0].removesuffix("s")) * 1000)

    def _restart(self, words: list[str]) -> None:
        self.memory = replace(Memory.from_json(self.memory.to_json()), epoch=self.memory.epoch + 1)
        self.caught_up = "caught_up=no" not in words
        self.shard = Shard.empty() if "averages=lost" in words else self.shard

    def _obey(self, words: list[str]) -> None:
        wanted = {bundle_name(word) for word in words} or {
            one.bundle for one in self.memory.pending if self._heard(one)
        }
        for one in self.memory.pending:
            if one.bundle in wanted and one.kind in ("unload", "transfer"):
                self.owned[str(one.source)].pop(one.bundle)
            elif one.bundle in wanted and one.kind == "assign":
                self.topics.setdefault(one.bundle, 0)  # of a bundle that a command has made
                self.owned[str(one.destination)][one.bundle] = self.loads.setdefault(
                    one.bundle, 0.0
                )
            elif one.bundle in wanted and one.kind == "split":
                self._split(one.bundle, str(one.source), self.decided[one.decision_id].children)
            elif one.bundle in wanted and one.kind == "merge":
                self._merge(one.bundles, str(one.source), one.children[0])

    def _heard(self, one: Pending) -> bool:
        """Whether the broker that should act on a decision does."""
        broker = str(one.destination if one.kind == "assign" else one.source)
        if one.decision_id in self.unread:
            return False
        return broker not in self.silent | self.unhearing and (
            one.kind == "assign" or one.bundle in self.owned[broker]
        )

    def _loop(self, words: list[str]) -> Iterator[str]:
        seconds = [word.partition("=")[2] for word in words[1:]]
        decided: Counter[str] = Counter()
        refused: Counter[str] = Counter()
        for _ in range(int(words[0])):
            list(self._round([]))
            assert self.last is not None
            decided.update(decision.kind for decision in self.last.decisions)
            refused.update(refusal.rule for refusal in self.last.refusals)
            self._obey([])
            self._wait(seconds or ["0s"])
        told = (
            ", ".join(f"{count} x {kind}" for kind, count in sorted(decided.items()))
            or "nothing decided"
        )
        yield told + "".join(
            f", {rule} in {count} rounds" for rule, count in sorted(refused.items())
        )
        speaking = [name for name in self.usage if name not in self.silent]
        yield "usage " + " ".join(f"{name}={self._usage(name):.2f}" for name in speaking)
        served = {bundle for name in speaking for bundle in self.owned[name]}
        if lost := sorted(short_name(bundle) for bundle in self.loads if bundle not in served):
            yield f"nobody has {', '.join(lost)}"

    def _split(self, bundle: str, broker: str, children: list[str]) -> None:
        """The children share their parent's load and topics evenly."""
        load = self.owned[broker].pop(bundle) / len(children)
        self.loads |= dict.fromkeys(children, load)
        self.topics |= dict.fromkeys(children, self.topics[bundle] // len(children))
        self.owned[broker] |= dict.fromkeys(children, load)

    def _merge(self, bundles: tuple[str, ...], broker: str, merged: str) -> None:
        """One bundle has the load and topics of both."""
        self.loads[merged] = sum(self.owned[broker].pop(bundle) for bundle in bundles)
        self.topics[merged] = sum(self.topics[bundle] for bundle in bundles)
        self.owned[broker][merged] = self.loads[merged]

    def _hand_over(self, words: list[str]) -> None:
        for one in self.memory.pending:
            if one.bundle in map(bundle_name, words):
                acquired = one.kind == "assign"
                ack = {
                    "decision_id": one.decision_id,
                    "outcome": "acquired" if acquired else "released",
                    "bundle": one.bundle,
                }
                broker = str(one.destination if acquired else one.source)
                self.events.append(
                    Event(
                        "ack",
                        broker,
                        self.now_ms,
                        offset=self._next_offset(),
                        payload=json.dumps(ack),
                    )
                )
                self.busy.add(broker)
        self._obey(words)

    def _refuse(self, words: list[str]) -> None:
        pending = next(one for one in self.memory.pending if one.bundle == bundle_name(words[0]))
        self.acks.append(
            Ack(decision_id=pending.decision_id, outcome="refused", reason=" ".join(words[1:]))
        )

    def _shed(self, words: list[str]) -> Iterator[str]:
        config = cluster_config(
            self.settings | {"shedding_strategy": words[0]} | _settings(words[1:])
        )
        view = self._next_view(config)
        eligible = np.array(~view.bundles.system)
        unloads, _ = config.shedder.function(
            ShedContext.build(view, config.shedder_config, config.shedder.memory({}), eligible)
        )
        for proposal in unloads.proposals:
            figures = (
                f"saw={proposal.saw:.2f} average={proposal.average:.2f} limit={proposal.limit:.2f}"
            )
            bundle = short_name(view.bundles.name(proposal.bundle))
            source = view.brokers.names[proposal.source]
            yield f"unload {bundle} from {source}  reason={proposal.rule} {figures}"
        yield from map(_refused, unloads.refusals)

    def _round(self, _words: list[str]) -> Iterator[str]:
        settings = {"dry_run": False} | self.settings
        view = self._next_view(cluster_config(settings))
        inbox = Inbox(
            tuple(self.acks),
            self.caught_up,
            tuple(self.commands),
            balances={
                broker: keys for broker, keys in self.balancing.items() if broker not in self.silent
            },
            merging=self.merging,
        )
        done = decide_with(view, self.memory, inbox, settings)
        self.last, self.memory, self.acks, self.caught_up, self.commands = (
            done,
            done.memory,
            [],
            True,
            [],
        )
        self.decided |= {decision.decision_id: decision for decision in done.decisions}
        yield from _printed(done)

    def _command(self, words: list[str]) -> None:
        self.commanded += 1
        fields: dict[str, Any] = {"id": f"c{self.commanded}", "kind": words[0]}
        given = _settings(words[1:])
        fields["id"] = given.pop("id", fields["id"])
        if words[0] == "set-config":
            given = {"values": given}
        for listed in ("in_order", "of"):
            if listed in given:
                given[listed] = given[listed].split(",")
        if words[0] == "pin-bundles":
            given["bundles"] = [bundle_name(short) for short in given["bundles"].split(",")]
        if "version" in given:
            given["version"] = given["version"].strip("'")
        if "bundles" in given and words[0] == "merge":
            ranges = [bundle_name(short).rpartition("/") for short in given["bundles"].split(",")]
            given["namespace"], given["bundles"] = ranges[0][0], [bounds for _, _, bounds in ranges]
        if "/" in str(given.get("bundle", "")):
            given["namespace"], _, given["bundle"] = bundle_name(given["bundle"]).rpartition("/")
        command = COMMANDS[words[0]].model_validate(fields | given)
        self.commands.append(Received.from_command(command, self.now_ms))

    def _isolate(self, words: list[str]) -> None:
        given = {name: value for name, _, value in (word.partition("=") for word in words[1:])}
        secondary = (given["secondary"],) if "secondary" in given else ()
        policy = IsolationPolicy(
            (words[0],), (given["primary"],), secondary, int(given.get("min", 1))
        )
        self.policies = replace(self.policies, isolation=(*self.policies.isolation, policy))

    def _group(self, words: list[str]) -> None:
        self.policies = replace(
            self.policies, anti_affinity=dict(word.split("=") for word in words)
        )

    def _domain(self, words: list[str]) -> None:
        self.policies = replace(
            self.policies, failure_domains=dict(word.split("=") for word in words)
        )

    def _why(self, _words: list[str]) -> Iterator[str]:
        assert self.last is not None
        for decision in self.last.decisions:
            shown = [
                f"{each.broker} {each.refused_by or _number(each.score)}"
                for each in decision.explain.candidates
            ]
            yield f"{short_name(decision.bundle)}: {', '.join(shown)}"

    def _records(self, _words: list[str]) -> Iterator[str]:
        assert self.last is not None
        for one in sorted(self.last.ownership, key=lambda record: record.bundle):
            words = [short_name(one.bundle), f"v{one.version}", one.state]
            words += [f"owner={one.owner}"] if one.owner else []
            words += [f"source={one.source}"] if one.source else []
            words += (
                [f"destination={one.destination}"]
                if one.destination not in (None, one.owner)
                else []
            )
            words += ["children=" + ",".join(map(short_name, one.children))] if one.children else []
            words += [f"epoch={one.epoch}"] if one.epoch else []
            yield " ".join([*words, "forced"] if one.force else words)

    def _memory(self, _words: list[str]) -> Iterator[str]:
        memory = self.memory
        yield f"seq {memory.seq} epoch {memory.epoch}"
        for one in memory.pending:
            yield (
                f"pending {one.kind} {short_name(one.bundle)} until "
                f"{one.expires_ms - self.now_ms} ms from now"
            )
        for bundle, move in sorted(memory.moves.items()):
            yield (
                f"moving {short_name(bundle)} from {move.source} to {move.destination}, "
                f"{move.decision_id}"
            )
        for bundle, at_ms in sorted(memory.recently_unloaded.items()):
            yield f"unloaded {short_name(bundle)} {self.now_ms - at_ms} ms ago"
        for bundle, retry in sorted(memory.retries.items()):
            yield (
                f"tried {short_name(bundle)} {retry.attempts} times, again in "
                f"{retry.not_before_ms - self.now_ms} ms"
            )
        for name in memory.dead:
            yield f"dead {name}"

    def _next_offset(self) -> int:
        self.offset += 1
        return self.offset

    def _next_view(self, config: ClusterConfig) -> ClusterView:
        """Every broker that isn't silent sends a heartbeat and a report, a millisecond later than
        the last one."""
        self.now_ms += 1
        reports = [
            Report(
                name,
                self.now_ms,
                self._stats(name),
                {"cpu": (usage * 100, 100.0)},
                offset=self._next_offset(),
            )
            for name, usage in {name: self._usage(name) for name in self.usage}.items()
            if name not in self.silent | self.busy
        ]
        reports = [
            replace(
                report, start_timestamp_ms=self.starts.get(report.broker, report.start_timestamp_ms)
            )
            for report in reports
        ]
        beats = [
            Event("heartbeat", report.broker, self.now_ms, offset=self._next_offset())
            for report in reports
        ]
        self.shard, _ = fold(
            self.shard, batch_of(reports, [*self.events, *beats]), self.now_ms, config.fold
        )
        self.events, self.busy = [], set()
        return replace(
            view_of("demo", [self.shard], self.now_ms, config.balancer.weights),
            policies=self.policies,
        )

    def _stats(self, broker: str) -> dict[str, BundleStats]:
        return {
            name: BundleStats(
                msg_throughput_in=load,
                msg_rate_in=load / MB * MSGS_PER_S_OF_A_MB,
                topics=self.topics[name],
            )
            for name, load in self.owned[broker].items()
        }


def _settings(words: list[str]) -> dict[str, Any]:
    pairs = (word.partition("=") for word in words)
    return {
        name: json.loads(value) if re.fullmatch(r"[\d.]+|true|false", value) else value
        for name, _, value in pairs
    }


def _shortened(text: str) -> str:
    """A message with short names of bundles in it."""
    return re.sub(
        r"[^\s/]+/[^\s/]+/0x[0-9a-f]{8}_0x[0-9a-f]{8}", lambda found: short_name(found[0]), text
    )


def _printed(done: Round) -> Iterator[str]:
    for answer in done.results:
        words = [
            answer.outcome,
            *(["again"] if answer.repeated else []),
            *([f"by {answer.rule}"] if answer.rule else []),
        ]
        yield f"{answer.kind} {answer.id} is {' '.join(words)}: {_shortened(answer.text)}"
    yield from (f"rollout {news.phase}: {news.text}" for news in done.rollout)
    for outcome in done.outcomes:
        yield (
            f"{outcome.outcome} {outcome.decision_id} {short_name(outcome.bundle)}: "
            f"{outcome.detail}"
        )
    for decision in done.decisions:
        words = [decision.kind, short_name(decision.bundle)]
        words += ["and", short_name(decision.neighbour)] if decision.neighbour else []
        words += ["from", decision.source] if decision.source else []
        words += ["to", decision.destination] if decision.destination else []
        words += ["into", *map(short_name, decision.children)] if decision.children else []
        words += [
            "",
            f"id={decision.decision_id}",
            f"rule={decision.rule}",
            *(["reason=Admin"] if decision.reason == "Admin" else []),
        ]
        if decision.explain.unit == "ratio":
            figures = decision.explain.model_dump(
                include={"saw", "average", "limit", "expected_after"}
            )
            words += [f"{name}={value:.2f}" for name, value in figures.items() if value is not None]
        if decision.kind == "split":
            seen = decision.explain
            words += (
                [
                    f"reason={decision.reason} saw={_number(seen.saw)} limit={_number(seen.limit)} "
                    f"{seen.unit}"
                ]
                if seen.unit
                else []
            )
            words += [
                f"algorithm={decision.algorithm}",
                *(["unload_children"] if decision.unload_children else []),
            ]
        yield " ".join([*words, "dry_run"] if decision.dry_run else words)
    yield from map(_refused, done.refusals)


def _refused(one: Refusal) -> str:
    words = ["not done:", one.rule, *([one.broker] if one.broker else [])]
    if one.least is not None:
        words.append(
            f"saw={_number(one.least)}"
            + (f"..{_number(one.greatest)}" if one.greatest != one.least else "")
        )
    if one.limit is not None:
        words.append(f"limit={_number(one.limit)}")
    words += [one.unit] if one.unit else []
    names = [short_name(name) if "/0x" in name else name for name in one.subjects]
    return " ".join(words) + (f" ({', '.join(names)})" if names else "")


def _number(value: float | None) -> str:
    return f"{value:.2f}".rstrip("0").rstrip(".")
