"""Random traces that can have happened: moves there and back, drains, failovers, lost decisions,
bundles that no broker takes; splits and restarts where the scenario has topics and a rollout."""

import heapq
import random
from collections.abc import Iterator
from itertools import count
from typing import Any

import numpy as np

from lb_stream.sim.scenario.bundle_tree import SPLIT_ALGORITHMS, BundleTree
from lb_stream.sim.scenario.rollout_state import RolloutState
from lb_stream.sim.scenario.scenario import Event, Scenario

Line = dict[str, Any]


def random_trace(scenario: Scenario, seed: int, moves: int, sensible: bool = False) -> list[Line]:
    """Lines of a trace in which so many moves are begun.

    Half of them concern a few bundles, so that these come and go.

    Sensible ones go from the broker with the most throughput to the one with the least, in the
    first quarter of the time.
    """
    return list(_Maker(scenario, random.Random(seed), sensible).lines(moves))


class _Maker:
    def __init__(self, scenario: Scenario, chance: random.Random, sensible: bool) -> None:
        self.sensible, self.throughput = sensible, scenario.loads_at(0)[2:].sum(axis=0)
        self.scenario, self.chance, self.number, self.order = scenario, chance, count(), count()
        self.brokers, self.owner = (
            range(len(scenario.brokers)),
            scenario.bundles.start_owner.tolist(),
        )
        self.up, self.up_since = (
            scenario.brokers.up.tolist(),
            [float("-inf")] * len(scenario.brokers),
        )
        self.drained: set[int] = set()
        self.gone: set[int] = set()  # bundles that have been split
        self.due: list[tuple[float, int, Any]] = []
        self.deaf = [fault for fault in scenario.faults if fault.kind == "lost_decisions"]
        self.tree, self.rollout = BundleTree(scenario), RolloutState(scenario.rollout)

    def lines(self, moves: int) -> Iterator[Line]:
        ruled = {
            namespace
            for group in self.scenario.policies.anti_affinity
            for namespace in group.namespaces
        }
        ruled |= {*self.scenario.policies.pinned_namespaces, *self.scenario.policies.budgets}
        rows = range(len(self.scenario.bundles))
        special = [row for row in rows if self.scenario.namespaces[row] in ruled] or list(rows)
        few = self.chance.sample(special, min(8, len(special)))
        for event in self.scenario.events:
            self.later(event.t_s, lambda event=event: self.happens(event), first=True)
        for _ in range(moves):
            bundle = (
                None
                if self.sensible
                else self.chance.choice(few)
                if self.chance.random() < 0.5
                else self.chance.randrange(len(rows))
            )
            if bundle is not None and self.scenario.topics is not None:
                bundle = None if self.chance.random() < 0.7 else bundle
            self.later(
                round(
                    self.chance.uniform(0, self.scenario.end_s / (4 if self.sensible else 1) - 1),
                    self.chance.randrange(3),
                ),
                lambda bundle=bundle: self.unload(bundle),
            )
        for _ in range(0 if self.scenario.topics is None else moves // 3):
            self.later(self.chance.uniform(0, self.scenario.end_s - 1), self.split)
        if self.scenario.rollout is not None:
            begin_s = self.scenario.rollout.t_s
            for _ in range(12 * len(self.brokers)):
                self.later(self.chance.uniform(begin_s, self.scenario.end_s - 1), self.restart)
        while self.due:
            self.now, _, act = heapq.heappop(self.due)
            if self.now > self.scenario.end_s:
                return
            yield from act() or ()

    def later(self, t_s: float, act: Any, first: bool = False) -> None:
        heapq.heappush(self.due, (round(t_s, 3), next(self.order) - (10**9 if first else 0), act))

    def happens(self, event: Any) -> None:
        if event.kind == "up":
            self.up[event.broker], self.up_since[event.broker] = True, self.now
        elif event.kind in ("crash", "leave"):
            self.up[event.broker] = False
            for bundle in np.flatnonzero(np.array(self.owner) == event.broker).tolist():
                self.owner[bundle] = -1
                if self.chance.random() < 0.8:
                    self.later(
                        self.now + self.chance.uniform(1, 100),
                        lambda bundle=bundle: self.assign(bundle),
                    )
        elif event.kind == "undrain":
            self.drained.discard(event.broker)
        elif event.kind == "drain":
            self.drained.add(event.broker)
            for bundle in np.flatnonzero(np.array(self.owner) == event.broker).tolist():
                self.later(
                    self.now + self.chance.uniform(0, 60), lambda bundle=bundle: self.unload(bundle)
                )

    def unload(self, bundle: int | None) -> Iterator[Line]:
        if bundle is None and not self.sensible:
            bundle = self.chance.randrange(len(self.owner))  # often one that a split has made
        elif bundle is None:
            bundle = self.chance.choice(
                np.flatnonzero(np.array(self.owner) == self.by_throughput()[-1]).tolist()
            )
        source = self.owner[bundle]
        if source >= 0:
            yield from self.decided("unload", bundle, source, self.scenario.move.release_s)

    def split(self) -> Iterator[Line]:
        owned = np.flatnonzero(np.array(self.owner) >= 0).tolist()
        bundle, algorithm = self.chance.choice(owned), self.chance.choice(SPLIT_ALGORITHMS)
        hashes, _ = self.tree.topics_of(bundle)
        given = [int(at) + self.chance.randrange(2) for at in hashes[:: self.chance.randint(1, 5)]]
        splits = self.scenario.splits
        assert splits is not None
        yield from self.decided(
            "split", bundle, self.owner[bundle], splits.split_s, algorithm=algorithm, given=given
        )

    def restart(self) -> Iterator[Line]:
        broker = self.chance.choice(self.brokers)
        name, made_s, identity = self.scenario.brokers.names[broker], self.now, self.identity()
        yield {
            "t": made_s,
            "event": "decision",
            "id": identity,
            "kind": "restart",
            "broker": name,
        }
        heard = self.hears(broker)

        def effect() -> Iterator[Line]:
            here = heard and self.up[broker] and self.up_since[broker] <= made_s
            if here and self.rollout.refusal(broker, self.now, np.array(self.up)) is None:
                back = self.rollout.stop(broker, self.now)
                self.happens(Event(self.now, broker, "leave"))
                self.later(back.t_s, lambda: self.happens(back), first=True)
                yield {"t": self.now, "event": "stopped", "broker": name, "decision": identity}

        self.later(made_s + self.scenario.move.release_s, effect)

    def identity(self) -> str:
        return f"d:{next(self.number)}"

    def hears(self, broker: int) -> bool:
        """Whether a decision that is sent now reaches the broker."""
        return self.up[broker] and not any(
            broker in fault.brokers and fault.from_s <= self.now < fault.to_s for fault in self.deaf
        )

    def assign(self, bundle: int) -> Iterator[Line]:
        broker = self.by_throughput()[0] if self.sensible else self.chance.choice(self.brokers)
        yield from self.decided("assign", bundle, broker, self.scenario.move.acquire_s)

    def by_throughput(self) -> list[int]:
        """Available brokers, the one that carries least first."""
        throughput = self.tree.of_roots(self.throughput)
        carried = np.bincount(np.array(self.owner) + 1, throughput, len(self.brokers) + 1)[1:]
        return sorted(
            (broker for broker in self.brokers if self.up[broker] and broker not in self.drained),
            key=lambda broker: carried[broker],
        )

    def decided(
        self,
        kind: str,
        bundle: int,
        broker: int,
        takes_s: float,
        algorithm: str = "",
        given: list[int] | None = None,
    ) -> Iterator[Line]:
        names, made_s, identity = self.scenario.brokers.names, self.now, self.identity()
        line: Line = {
            "t": made_s,
            "event": "decision",
            "id": identity,
            "kind": kind,
            "bundle": self.tree.names[bundle],
        }
        if kind == "split":
            line |= {"broker": names[broker], "algorithm": algorithm, "boundaries": given}
        elif kind == "assign":
            line["destination"] = names[broker]
        else:
            line |= {"source": names[broker], "destination": self.chance.choice([None, *names])}
        yield line
        heard = self.hears(broker)

        def effect() -> Iterator[Line]:
            here = heard and self.up[broker] and self.up_since[broker] <= made_s
            done = {"bundle": line["bundle"], "broker": names[broker], "decision": identity}
            if kind == "unload" and here and self.owner[bundle] == broker:
                self.owner[bundle] = -1
                yield {"t": self.now, "event": "released", **done}
            elif kind == "split" and here and self.owner[bundle] == broker:
                tick = self.scenario.tick_of(self.now)
                loads = self.tree.of_roots(self.scenario.loads_at(tick))
                positions = self.tree.find_positions(bundle, algorithm, given or [], loads)
                if positions:
                    children = self.tree.split(bundle, positions)
                    self.owner[bundle] = -1
                    self.gone.add(bundle)
                    self.owner += [broker] * len(children)
                    names_of = [self.tree.names[child] for child in children]
                    yield {"t": self.now, "event": "split", **done, "children": names_of}
            elif kind == "assign" and here and self.owner[bundle] < 0 and bundle not in self.gone:
                self.owner[bundle] = broker
                yield {"t": self.now, "event": "acquired", **done}
            if bundle in self.gone:
                return
            if self.owner[bundle] < 0 and (self.sensible or self.chance.random() < 0.9):
                self.later(
                    self.now + self.chance.choice([0] if self.sensible else [0, 1, 30, 90]),
                    lambda: self.assign(bundle),
                )

        self.later(made_s + takes_s + self.chance.choice([0, 0, 0.5]), effect)
