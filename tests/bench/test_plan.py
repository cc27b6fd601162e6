"""The machine reassignment challenge as `make bench-plan` reads, plans and judges it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from lb_stream.core.least_moves.plan import PlannedMove
from tests.bench.plan import main, reassign
from tests.bench.reassignment import Instance, Rules, costs, read_instance, violations

# The example of the challenge's problem definition.
MODEL = """2  1 100  0 10
4  0 0 30 400 16 80 0 1 4 5  0 0 10 240 8 160 1 0 3 4  1 1 15 100 12 80 4 3 0 2  1 2 10 100 8 80 5 4 2 0
2  2 0  1 1 0
3  0 12 10 1000  0 10 20 100  1 6 200 1
1  0 1 20  10
1 10 100"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """With the example as an instance named toy."""
    (tmp_path / "model_toy.txt").write_text(MODEL)
    (tmp_path / "assignment_toy.txt").write_text("0 3 0")
    return tmp_path


@pytest.fixture
def toy(folder: Path) -> Instance:
    return read_instance(folder / "model_toy.txt", folder / "assignment_toy.txt")


@pytest.mark.parametrize(("at", "cost"), [([0, 3, 0], 4200), ([0, 2, 0], 3510), ([0, 2, 1], 2411)])
def test_the_example_of_the_problem_definition_costs_what_that_says(
    toy: Instance, at: list[int], cost: int
) -> None:
    assert sum(costs(toy, np.array(at)).values()) == cost
    assert not any(violations(toy, np.array(at)).values())


@pytest.mark.parametrize(
    ("at", "broken"),
    [
        ([1, 3, 0], "capacity"),
        ([0, 0, 0], "conflict"),
        ([0, 0, 0], "spread"),
        ([0, 3, 2], "capacity"),
        ([2, 3, 0], "dependency"),
    ],
)
def test_a_broken_constraint_is_counted(toy: Instance, at: list[int], broken: str) -> None:
    assert violations(toy, np.array(at))[broken] == 1


def an_instance(seed: int) -> Instance:
    """A few machines and processes, feasible as they are and just so: constraints are made of where
    the processes are."""
    rng = np.random.default_rng(seed)
    machines, processes, services = int(rng.integers(2, 6)), int(rng.integers(2, 11)), 4
    start, service = rng.integers(0, machines, processes), rng.integers(0, services, processes)
    for process in range(processes):
        if any(
            start[other] == start[process] and service[other] == service[process]
            for other in range(process)
        ):
            service[process], services = services, services + 1
    neighborhood, location = rng.integers(0, 2, machines), rng.integers(0, 3, machines)
    near = [set(neighborhood[start[service == one]].tolist()) for one in range(services)]
    pairs = [
        (one, other)
        for one in range(services)
        for other in range(services)
        if one != other and near[one] <= near[other]
    ]
    asked = [pair for pair in pairs if rng.random() < 0.2]
    demand = rng.integers(0, 7, (processes, 2))
    used = np.stack([demand[start == machine].sum(axis=0) for machine in range(machines)])
    places = np.array(
        [len(set(location[start[service == one]].tolist())) for one in range(services)]
    )
    capacity = used + rng.integers(0, 9, (machines, 2))
    return Instance(
        transient=np.array([True, False]),
        load_weight=np.array([10, 1]),
        neighborhood=neighborhood,
        location=location,
        capacity=capacity,
        safety=np.full((machines, 2), int(used.mean())),
        machine_move=rng.integers(0, 4, (machines, machines)),
        spread=rng.integers(0, places + 1),
        depends=tuple(tuple(other for one, other in asked if one == at) for at in range(services)),
        service=service,
        demand=demand,
        process_move=rng.integers(0, 9, processes),
        balances=((0, 1, 2, 5),),
        move_weights=np.array([1, 10, 100]),
        start=start,
    )


@pytest.mark.parametrize("seed", range(40))
def test_a_machine_may_take_a_process_just_when_that_breaks_nothing(seed: int) -> None:
    instance, rng = an_instance(seed), np.random.default_rng(seed)
    rules, moves = Rules(instance), list[PlannedMove]()
    for process in rng.permutation(len(instance.start))[:4].tolist():
        here, allowed = int(rules.at[process]), rules.takers(process)
        for machine in set(range(len(instance.capacity))) - {here}:
            at = rules.at.copy()
            at[process] = machine
            assert allowed[machine] == (not any(violations(instance, at).values())), (
                process,
                machine,
            )
        allowed[here] = False
        if allowed.any():
            moves.append(PlannedMove(process, here, int(np.argmax(allowed)), 0.0, -1, 0.0))
            rules.follow(moves)


def test_rules_follow_a_plan_that_takes_moves_back() -> None:
    instance = an_instance(1)
    rules, before = Rules(instance), Rules(instance)
    first, second, third = (
        PlannedMove(
            one, int(instance.start[one]), 1 - min(int(instance.start[one]), 1), 0.0, -1, 0.0
        )
        for one in range(3)
    )
    rules.follow([first, second])
    rules.follow([first, third])
    assert rules.at[1] == instance.start[1] and rules.at[2] == third.destination
    rules.follow([])
    for name in ("at", "held", "near"):
        np.testing.assert_array_equal(getattr(rules, name), getattr(before, name))


def test_plans_break_no_constraint() -> None:
    moved = 0
    for seed in range(100):
        instance = an_instance(seed)
        at = reassign(instance)
        assert not any(violations(instance, at).values()), seed
        moved += int((at != instance.start).sum())
    assert moved > 20


def test_the_last_line_has_cost_moves_and_what_is_broken_of_each_instance(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([str(folder)]) == 0
    table, last = capsys.readouterr().out.rstrip().rsplit("\n", 1)
    found = json.loads(last)["toy"]
    assert (
        found["before"] == 4200
        and found["violations"] == 0
        and found["after"] == sum(found["parts_after"].values())
    )
    assert "4,200" in table


def test_small_clusters_are_summed_up_in_the_last_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--cases", "3"]) == 0
    found = json.loads(capsys.readouterr().out.rstrip().rsplit("\n", 1)[1])
    assert found["cases"] and found["fewest"] <= found["moves"] and found["bound_over_fewest"] <= 1


def test_a_folder_without_instances_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([str(tmp_path)]) == 2
    assert "expected instances" in capsys.readouterr().err
