"""Random traces that can have happened: moves there and back, drains, failovers, lost decisions,
bundles that nobody takes."""

import heapq
import random
from collections.abc import Iterator
from itertools import count
from typing import Any

import numpy as np

from lb_stream.sim.scenario.scenario import Scenario

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
        self.due: list[tuple[float, int, Any]] = []
        self.deaf = [fault for fault in scenario.faults if fault.kind == "lost_decisions"]

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
            self.later(
                round(
                    self.chance.uniform(0, self.scenario.end_s / (4 if self.sensible else 1) - 1),
                    self.chance.randrange(3),
                ),
                lambda bundle=bundle: self.unload(bundle),
            )
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
        if bundle is None:
            bundle = self.chance.choice(
                np.flatnonzero(np.array(self.owner) == self.by_throughput()[-1]).tolist()
            )
        source = self.owner[bundle]
        if source >= 0:
            yield from self.decided("unload", bundle, source, self.scenario.move.release_s)

    def assign(self, bundle: int) -> Iterator[Line]:
        broker = self.by_throughput()[0] if self.sensible else self.chance.choice(self.brokers)
        yield from self.decided("assign", bundle, broker, self.scenario.move.acquire_s)

    def by_throughput(self) -> list[int]:
        """Available brokers, the one that carries least first."""
        carried = np.bincount(np.array(self.owner) + 1, self.throughput, len(self.brokers) + 1)[1:]
        return sorted(
            (broker for broker in self.brokers if self.up[broker] and broker not in self.drained),
            key=lambda broker: carried[broker],
        )

    def decided(self, kind: str, bundle: int, broker: int, takes_s: float) -> Iterator[Line]:
        names, made_s, identity = self.scenario.brokers.names, self.now, f"d:{next(self.number)}"
        line: Line = {
            "t": made_s,
            "event": "decision",
            "id": identity,
            "kind": kind,
            "bundle": self.scenario.bundles.names[bundle],
        }
        if kind == "assign":
            line["destination"] = names[broker]
        else:
            line |= {"source": names[broker], "destination": self.chance.choice([None, *names])}
        yield line
        heard = self.up[broker] and not any(
            broker in one.brokers and one.from_s <= made_s < one.to_s for one in self.deaf
        )

        def effect() -> Iterator[Line]:
            here = heard and self.up[broker] and self.up_since[broker] <= made_s
            done = {"bundle": line["bundle"], "broker": names[broker], "decision": identity}
            if kind == "unload" and here and self.owner[bundle] == broker:
                self.owner[bundle] = -1
                yield {"t": self.now, "event": "released", **done}
            elif kind == "assign" and here and self.owner[bundle] < 0:
                self.owner[bundle] = broker
                yield {"t": self.now, "event": "acquired", **done}
            if self.owner[bundle] < 0 and (self.sensible or self.chance.random() < 0.9):
                self.later(
                    self.now + self.chance.choice([0] if self.sensible else [0, 1, 30, 90]),
                    lambda: self.assign(bundle),
                )

        self.later(made_s + takes_s + self.chance.choice([0, 0, 0.5]), effect)
