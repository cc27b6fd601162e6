"""The machine reassignment problem of the ROADEF/EURO challenge 2012 (Google): instances, hard
constraints, objective.

Formats and terms are those of the challenge's problem definition. Machines are to processes what
brokers are to bundles.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from lb_stream.core.least_moves.plan import PlannedMove
from lb_stream.core.model.view import Bools, Ints


@dataclass(frozen=True, slots=True)
class Instance:
    """One instance.

    Machines, services, processes, resources, locations and neighborhoods are numbered from 0.
    """

    transient: Bools  # (resources): a moved process takes it on both machines
    load_weight: Ints  # (resources)
    neighborhood: Ints  # (machines)
    location: Ints  # (machines)
    capacity: Ints  # (machines, resources)
    safety: Ints  # (machines, resources): what is used above it costs
    machine_move: Ints  # (machines, machines): cost of moving a process from one to another
    spread: Ints  # (services): in so many locations each must be, at least
    depends: tuple[
        tuple[int, ...], ...
    ]  # services: those that must be in each neighborhood that one is in
    service: Ints  # (processes); two of one service are never on one machine
    demand: Ints  # (processes, resources)
    process_move: Ints  # (processes): cost of moving it
    balances: tuple[
        tuple[int, int, int, int], ...
    ]  # two resources, so much of the second is to be free for one of the first, weight
    move_weights: Ints  # of process_move, of the most moves of a service, of machine_move
    start: Ints  # (processes): the machine that each is on


class _Numbers:
    """A file of whole numbers, read from front to back."""

    def __init__(self, path: Path) -> None:
        self.left = np.array(path.read_text().split(), np.int64)

    def one(self) -> int:
        return int(self.take(1)[0])

    def take(self, count: int) -> Ints:
        taken, self.left = self.left[:count], self.left[count:]
        return taken

    def table(self, rows: int, *widths: int) -> list[Ints]:
        """Columns of so many widths each."""
        whole = self.take(rows * sum(widths)).reshape(rows, sum(widths))
        return np.split(whole, np.cumsum(widths)[:-1], axis=1)


def read_instance(model: Path, assignment: Path) -> Instance:
    """From the two files of an instance."""
    file = _Numbers(model)
    transient, load_weight = file.table(resources := file.one(), 1, 1)
    machines = file.one()
    neighborhood, location, capacity, safety, machine_move = file.table(
        machines, 1, 1, resources, resources, machines
    )
    services = [(file.one(), tuple(file.take(file.one()).tolist())) for _ in range(file.one())]
    service, demand, process_move = file.table(file.one(), 1, resources, 1)
    balances = [(*file.take(3).tolist(), file.one()) for _ in range(file.one())]
    return Instance(
        transient[:, 0] > 0,
        load_weight[:, 0],
        neighborhood[:, 0],
        location[:, 0],
        capacity,
        safety,
        machine_move,
        np.array([spread for spread, _ in services], np.int64),
        tuple(depends for _, depends in services),
        service[:, 0],
        demand,
        process_move[:, 0],
        tuple(balances),
        file.take(3),
        _Numbers(assignment).left,
    )


def usage(instance: Instance, at: Ints) -> Ints:
    """(machines, resources): what the processes on each take."""
    used = np.zeros_like(instance.capacity)
    np.add.at(used, at, instance.demand)
    return used


def costs(instance: Instance, at: Ints) -> dict[str, int]:
    """The parts of the objective, weighted; their sum is what the challenge minimises."""
    used = usage(instance, at)
    load = instance.load_weight * np.maximum(used - instance.safety, 0).sum(axis=0)
    free = instance.capacity - used
    balance = [
        weight * int(np.maximum(per * free[:, one] - free[:, other], 0).sum())
        for one, other, per, weight in instance.balances
    ]
    moved = at != instance.start
    process, service, machine = instance.move_weights.tolist()
    return {
        "load": int(load.sum()),
        "balance": sum(balance),
        "process_move": process * int(instance.process_move[moved].sum()),
        "service_move": service * int(np.bincount(instance.service[moved], minlength=1).max()),
        "machine_move": machine * int(instance.machine_move[instance.start, at].sum()),
    }


def violations(instance: Instance, at: Ints) -> dict[str, int]:
    """How often each hard constraint is broken."""
    used, moved = usage(instance, at), at != instance.start
    np.add.at(used, instance.start[moved], instance.demand[moved] * instance.transient)
    places = np.unique(np.stack([instance.service, instance.location[at]]), axis=1)[0]
    near = _near(instance, at) > 0
    return {
        "capacity": int((used > instance.capacity).sum()),
        "conflict": len(at) - np.unique(np.stack([instance.service, at]), axis=1).shape[1],
        "spread": int(
            (np.bincount(places, minlength=len(instance.spread)) < instance.spread).sum()
        ),
        "dependency": sum(
            int((near[one] & ~near[other]).sum())
            for one, others in enumerate(instance.depends)
            for other in others
        ),
    }


def _near(instance: Instance, at: Ints) -> Ints:
    """(services, neighborhoods): how many processes of each are in each."""
    found = np.zeros((len(instance.spread), int(instance.neighborhood.max()) + 1), np.int64)
    np.add.at(found, (instance.service, instance.neighborhood[at]), 1)
    return found


class Rules:
    """Which machines may take a process, as a plan's moves have left things.

    Keeps all hard constraints, one move at a time.
    """

    def __init__(self, instance: Instance) -> None:
        self.instance = instance
        self.at = instance.start.copy()
        self.held = usage(instance, self.at)  # with what moved processes still take where they were
        self.near = _near(instance, self.at)
        order = np.argsort(instance.service, kind="stable")
        self.members = np.split(
            order, np.cumsum(np.bincount(instance.service, minlength=len(instance.spread)))[:-1]
        )
        self.dependents: list[list[int]] = [[] for _ in instance.depends]
        for one, others in enumerate(instance.depends):
            for other in others:
                self.dependents[other].append(one)
        self.done: list[PlannedMove] = []

    def follow(self, moves: Sequence[PlannedMove]) -> None:
        """Come to where a plan is now, which may have taken moves back.

        Each move is an object of its own: it tells what came before it.
        """
        while self.done and (
            len(self.done) > len(moves) or self.done[-1] is not moves[len(self.done) - 1]
        ):
            self._count(self.done.pop(), -1)
        for move in moves[len(self.done) :]:
            self._count(move, 1)
            self.done.append(move)

    def carry_out(self, moves: Sequence[PlannedMove]) -> None:
        """Make a plan's moves: but what a rule forbids by now, as in the balancer.

        A swap's two are planned as if each were alone.
        """
        self.follow([])
        made = list[PlannedMove]()
        for move in moves:
            if self.takers(move.bundle)[move.destination]:
                made.append(move)
                self.follow(made)

    def _count(self, move: PlannedMove, sign: int) -> None:
        one, demand, service = (
            self.instance,
            self.instance.demand[move.bundle],
            self.instance.service[move.bundle],
        )
        self.held[move.source] -= sign * demand * ~one.transient
        self.held[move.destination] += sign * demand
        self.near[service, one.neighborhood[move.source]] -= sign
        self.near[service, one.neighborhood[move.destination]] += sign
        self.at[move.bundle] = move.destination if sign > 0 else move.source

    def takers(self, process: int) -> Bools:
        """(machines): those that may have it."""
        one, service = self.instance, int(self.instance.service[process])
        others = self.at[self.members[service][self.members[service] != process]]
        allowed: Bools = (self.held + one.demand[process] <= one.capacity).all(axis=1)
        allowed[others] = False
        places = np.unique(one.location[others])
        if len(places) < one.spread[service]:
            allowed &= ~np.isin(one.location, places)
        for needed in one.depends[service]:
            allowed &= self.near[needed, one.neighborhood] > 0
        here = int(one.neighborhood[self.at[process]])
        if self.near[service, here] == 1 and self.near[self.dependents[service], here].any():
            allowed &= one.neighborhood == here
        return allowed
