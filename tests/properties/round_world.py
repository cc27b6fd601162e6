"""A cluster's truth beside the balancer: brokers that serve bundles, obey, are silent, lie, restart.

It shares the agents' rules (`agent.obey`) and the fold with the program; who owns what, who was
drained or forbidden, and which moves have been made it keeps by itself.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from lb_stream.agent.carry_out import must_give_up
from lb_stream.agent.obey import AgentMemory, acknowledgement, addressee, judge
from lb_stream.contracts.commands import COMMANDS
from lb_stream.contracts.decisions import MOVES, Decision, Ownership
from lb_stream.contracts.reports import Ack, BundleStats
from lb_stream.core.averages import fold
from lb_stream.core.averages.cluster_view import view_of
from lb_stream.core.commands.responder import Received
from lb_stream.core.model.blocks import Shard
from lb_stream.core.model.memory import Memory
from lb_stream.core.model.names import BundleRange, parse_bundle
from lb_stream.core.model.view import ClusterView
from lb_stream.core.observing.outcomes import select_valid_acks
from lb_stream.core.round.decide import Inbox, Round
from lb_stream.settings.resolve import cluster_config, resolve
from tests.support.build import Event, Report, batch_of
from tests.support.commanded_round import decide_with

BROKERS = ("a:1", "b:1", "c:1", "d:1")
BUDGETED, FREE = "t/n", "t/m"
QUARTERS = ("0x00000000_0x40000000", "0x40000000_0x80000000")
QUARTERS += ("0x80000000_0xc0000000", "0xc0000000_0xffffffff")
HALVES = ("0x00000000_0x80000000", "0x80000000_0xffffffff")
BUDGET = 2
GIVEN = {
    "dry_run": False,
    "shedding_interval_ms": 0,
    "shedding_grace_period_ms": 20_000,
    "min_throughput_mb": 0,
    "history_ratio": 0,
    "threshold_percent": 5,
    "unloading_timeout_ms": 20_000,
    "mass_disappearance_wait_ms": 60_000,
    "max_moves_in_flight_per_broker": 2,
    f"namespace.{BUDGETED}.moves_per_hour": BUDGET,
}
HOUR_MS = 3_600_000
DEAD_MS, SILENT_MS, RETENTION_MS = 30_000, 12_000, 300_000
"""The settings heartbeat_timeout_ms, silent_after_ms and bundle_retention_ms."""
YIELDED_MS = 60_000
"""Within this time a broker that was taken for dead has given up what others have."""
OPERATORS = ("unload_command", "drained", "rollout", "rollout_levels", "namespace_deleted")
"""Rules of decisions that no budget holds back."""


@dataclass
class Broker:
    """One broker. `start_ms`: of its process. `heard_ms`: when it last sent something.

    `told_usage`: what it reports in place of its usage. `back_ms`: when it was heard again after a
    silence that is taken for death. `mail`: decisions that it has not read.
    """

    name: str
    owned: set[str]
    start_ms: int = 1
    is_up: bool = True
    is_cut_off: bool = False
    has_left: bool = False
    heard_ms: int | None = None
    told_usage: float | None = None
    back_ms: int | None = None
    claimed: set[str] = field(default_factory=set)
    memory: AgentMemory = field(default_factory=AgentMemory)
    mail: list[Decision] = field(default_factory=list)

    @property
    def talks(self) -> bool:
        """Return whether it sends and reads records."""
        return self.is_up and not self.is_cut_off


@dataclass(frozen=True)
class Policy:
    """An isolation policy that a command has set."""

    namespaces: tuple[str, ...]
    primary: tuple[str, ...]
    secondary: tuple[str, ...]

    def is_for(self, namespace: str) -> bool:
        """Return whether the policy counts for a namespace."""
        return any(re.fullmatch(pattern, namespace) for pattern in self.namespaces)

    def names(self, broker: str, patterns: Iterable[str]) -> bool:
        """Return whether a pattern is of the broker's host, or of host and port."""
        host = broker.partition(":")[0]
        return any(
            re.fullmatch(pattern, broker if ":" in pattern else host) for pattern in patterns
        )


class World:
    """Four brokers, two namespaces, a balancer, and what an observer knows of them."""

    def __init__(self, **settings: Any) -> None:
        self.given = {**GIVEN, **settings}
        self.now_ms = 1_700_000_000_000
        self.brokers = {name: Broker(name, set()) for name in BROKERS}
        self.brokers["a:1"].owned = {f"{BUDGETED}/{bounds}" for bounds in QUARTERS}
        self.brokers["b:1"].owned = {f"{FREE}/{bounds}" for bounds in HALVES}
        self.shard, self.memory = Shard.empty(), Memory(epoch=1)
        self.caught_up, self.has_lied = True, False
        self.offset, self.sent = 0, 0
        self.waiting: list[Received] = []
        self.acks: list[tuple[str, Ack]] = []
        self.ownership: dict[str, Ownership] = {}
        # What the observer has noted.
        self.drained: set[str] = set()
        self.policies: dict[str, Policy] = {}
        self.namespaces = {BUDGETED, FREE}
        self.moved_ms: list[int] = []  # releases of the budgeted namespace by balancing
        self.changes: dict[str, tuple[str, Mapping[str, Any]]] = {}  # command → kind, fields

    # --- what happens ---

    def command(self, kind: str, **fields: Any) -> None:
        """Send a command, for the next round."""
        self.sent += 1
        name = f"command-{self.sent}"
        self.changes[name] = kind, fields
        model = COMMANDS[kind].model_validate({"id": name, "by": "ann", **fields})
        self.waiting.append(Received.from_command(model, self.now_ms))

    def restart(self, name: str) -> None:
        """Kill a broker and start it: it serves nothing, and reads only what comes from now on."""
        heard_ms = self.brokers[name].heard_ms
        self.brokers[name] = Broker(name, set(), start_ms=self.now_ms, heard_ms=heard_ms)

    def restart_job(self) -> None:
        """Have another job go on from the log, before it has caught up."""
        self.memory = replace(Memory.from_json(self.memory.to_json()), epoch=self.memory.epoch + 1)
        self.caught_up = False

    def tick(self, wait_ms: int, obeys: bool) -> tuple[ClusterView, Memory, Inbox, Round]:
        """Have brokers report and the balancer decide; then brokers read, if they `obey`.

        Returns what the round was given, and what it has made.
        """
        self.now_ms += wait_ms
        reports, events = self._records()
        config = cluster_config(self.given)
        self.shard, _ = fold(self.shard, batch_of(reports, events), self.now_ms, config.fold)
        view = view_of("c", [self.shard], self.now_ms, config.balancer.weights)
        acks = select_valid_acks(self.acks, self.memory)
        merging = {name: broker.is_up for name, broker in self.brokers.items()}
        inbox = Inbox(acks, self.caught_up, tuple(self.waiting), merging=merging)
        before, self.waiting, self.acks = self.memory, [], []
        made = decide_with(view, before, inbox, self.given)
        self.memory = Memory.from_json(made.memory.to_json())
        self.caught_up = True
        self._note_answers(made)
        for record in made.ownership:
            self.ownership[record.bundle] = record
        for decision in made.decisions:
            receiver = self.brokers.get(addressee(decision) or "")
            if receiver is not None and receiver.is_up:
                receiver.mail.append(decision)
        if obeys:
            for broker in self.brokers.values():
                self._read(broker)
        return view, before, inbox, made

    def _records(self) -> tuple[list[Report], list[Event]]:
        """Return what brokers send: acknowledgements, a heartbeat, and a report."""
        reports, events = [], []

        def place() -> dict[str, int]:
            self.offset += 1
            return {"append_ms": self.now_ms, "offset": self.offset}

        for sender, ack in self.acks:
            sent = place() | {"append_ms": ack.sent_ms}
            events.append(Event("ack", sender, payload=ack.to_json(), **sent))
        for broker in self.brokers.values():
            if broker.has_left:
                events.append(Event("goodbye", broker.name, **place()))
                broker.has_left = False
            if not broker.talks:
                continue
            self._yield(broker)
            if broker.heard_ms is not None and self.is_silent(broker.name, DEAD_MS):
                broker.back_ms = self.now_ms
            broker.heard_ms = self.now_ms
            bundles = sorted(broker.owned | broker.claimed)
            usage = 12.0 * sum(map(_load, bundles))
            told = min(usage if broker.told_usage is None else broker.told_usage, 100.0)
            reports.append(
                Report(
                    broker.name,
                    bundles={
                        name: BundleStats(
                            msg_rate_in=100.0 * _load(name),
                            msg_throughput_in=1e6 * _load(name),
                            topics=3,
                        )
                        for name in bundles
                    },
                    resources={"cpu": (told, 100.0)},
                    start_timestamp_ms=broker.start_ms,
                    **place(),
                )
            )
            # A heartbeat counts once the broker is known by a report.
            events.append(Event("heartbeat", broker.name, **place()))
        return reports, events

    def _yield(self, broker: Broker) -> None:
        """Have a broker give up what isn't its own by the bundles' records, as agents do."""
        for bundle in sorted(broker.owned):
            record = self.ownership.get(bundle)
            if record is not None and must_give_up(broker.name, record):
                broker.owned.discard(bundle)

    def _read(self, broker: Broker) -> None:
        """Have a broker carry out the decisions that it has got, by the agents' rules."""
        if not broker.talks:
            return
        mail, broker.mail = broker.mail, []
        for decision in mail:
            broker.memory.note_epoch(decision)
            owns = broker.owned.issuperset(decision.bundles)
            verdict = judge(broker.name, broker.memory, decision, owns, self.now_ms)
            if verdict.action in ("ignore", "wait"):
                continue
            broker.memory.note_done(broker.name, decision, self.now_ms)
            done = self._carry_out(broker, decision, verdict.action)
            ack = acknowledgement(decision, done, verdict.reason, self.now_ms)
            self.acks.append((broker.name, ack))

    def _carry_out(self, broker: Broker, decision: Decision, action: str) -> str:
        if action == "acquire":
            broker.owned.add(decision.bundle)
        elif action == "release":
            broker.owned.discard(decision.bundle)
            if (
                decision.bundle.startswith(f"{BUDGETED}/")
                and decision.kind in MOVES
                and decision.rule not in OPERATORS
            ):
                self.moved_ms.append(self.now_ms)
        elif action in ("split", "merge"):
            if not decision.children:
                return "failed"  # its algorithm would find them among the topics
            broker.owned.difference_update(decision.bundles)
            broker.owned.update(decision.children)
        return action

    def _note_answers(self, made: Round) -> None:
        """Note what commands have changed, by their answers."""
        for answer in made.results:
            # A later answer only says what has come of it.
            kind, fields = self.changes.pop(answer.id, ("", {}))
            if answer.outcome == "refused":
                continue
            if kind == "drain-broker":
                self.drained.add(fields["broker"])
            elif kind == "undrain-broker":
                self.drained.discard(fields["broker"])
            elif kind == "set-policies" and answer.outcome == "done":
                for name in fields.get("remove_isolation", ()):
                    self.policies.pop(name, None)
                for policy in fields.get("isolation", ()):
                    self.policies[policy["name"]] = Policy(
                        tuple(policy["namespaces"]),
                        tuple(policy["primary"]),
                        tuple(policy.get("secondary", ())),
                    )
            elif kind == "import-namespaces":
                self.policies = {}  # those of the import replace all others, and it has none
                self.namespaces |= {given["name"] for given in fields["content"]["namespaces"]}
            elif kind == "create-namespace":
                self.namespaces.add(fields["namespace"])
            elif kind == "delete-namespace":
                self.namespaces.discard(fields["namespace"])

    # --- what the observer knows ---

    def is_forbidden(self, bundle: str, broker: str) -> bool:
        """Return whether isolation policies keep a bundle from a broker, whatever others do."""
        namespace = bundle.rpartition("/")[0]
        by_name = (self.policies[name] for name in sorted(self.policies))
        policy = next((own for own in by_name if own.is_for(namespace)), None)
        if policy is None:
            return any(own.names(broker, own.primary) for own in self.policies.values())
        return not policy.names(broker, (*policy.primary, *policy.secondary))

    def is_silent(self, broker: str, limit_ms: int) -> bool:
        """Return whether nothing was heard of a broker for this long."""
        heard_ms = self.brokers[broker].heard_ms
        return heard_ms is None or self.now_ms - heard_ms >= limit_ms

    def owners(self) -> dict[str, list[str]]:
        """Return bundle → brokers that serve it, of those that can be reached."""
        found: dict[str, list[str]] = {}
        for broker in self.brokers.values():
            for bundle in broker.owned if broker.talks else ():
                found.setdefault(bundle, []).append(broker.name)
        return found

    def twice(self) -> dict[str, list[str]]:
        """Return the bundles with two owners, but for one that has just come back.

        A broker that was cut off serves what it had until it reads who has it now.
        """
        back = {
            broker.name
            for broker in self.brokers.values()
            if broker.back_ms is not None and self.now_ms - broker.back_ms < YIELDED_MS
        }
        return {
            bundle: names
            for bundle, names in self.owners().items()
            if len(set(names) - back) > 1 or (len(names) > 1 and not back & set(names))
        }

    def acts(self) -> bool:
        """Return whether decisions are published, by the settings that count now."""
        overrides = self.memory.operator_state.settings
        config = resolve(self.given, overrides, self.memory.followed.profile).config
        return not config.balancer.dry_run

    def has_nothing_pending(self) -> bool:
        """Return whether the balancer acts, and waits neither for brokers nor with commands."""
        busy = self.memory.pending or self.memory.retries or self.waiting
        return self.acts() and not busy

    def find_waiting(self, made: Round) -> frozenset[str]:
        """Return the bundles that have no broker, and got none by a round that may give them one.

        One that a broker has failed to take doesn't count.
        """
        if not self.acts():
            return frozenset()
        bundles = made.view.bundles
        rows = np.flatnonzero((bundles.owner < 0) & ~bundles.in_flight).tolist()
        decided = {name for decision in made.decisions for name in decision.bundles}
        return frozenset(map(bundles.name, rows)) - decided - made.memory.retries.keys()

    def find_unknown(self, bundles: Iterable[str], made: Round) -> list[str]:
        """Return those of the bundles of which a round knows nothing: nor of others instead."""
        known = made.view.bundles.names.to_pylist()
        ranges = [parse_bundle(name) for name in known]
        return [
            name
            for name in sorted(set(bundles).difference(known))
            if name.rpartition("/")[0] in self.namespaces
            and not any(_overlap(parse_bundle(name), other) for other in ranges)
        ]

    def gaps(self) -> list[str]:
        """Return where a namespace's hashes have no broker, or two."""
        faults = []
        owners = self.owners()
        for namespace in sorted(self.namespaces):
            ranges = sorted(
                (parse_bundle(name).lower, parse_bundle(name).upper, name)
                for name, brokers in owners.items()
                for _ in brokers
                if name.rpartition("/")[0] == namespace
            )
            end = 0
            for lower, upper, name in ranges:
                if lower != end:
                    faults.append(f"{name} begins at {lower:#x}, expected {end:#x}")
                end = upper
            if end != 0xFFFFFFFF:
                faults.append(f"{namespace} ends at {end:#x}")
        return faults


def _overlap(one: BundleRange, other: BundleRange) -> bool:
    """Return whether two bundles of a namespace share hashes."""
    same = one.namespace == other.namespace
    return same and one.lower < other.upper and other.lower < one.upper


def _load(bundle: str) -> float:
    """Return a bundle's load, 0.2 to 2: always the same for its name."""
    return 0.2 + zlib.crc32(bundle.encode()) % 100 / 55
