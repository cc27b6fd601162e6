"""A rollout's order and progress are part of a cluster's memory, which a log has kept as JSON."""

import json

from lb_stream.core.model.memory import Memory
from lb_stream.core.model.operator_state import OperatorState
from lb_stream.core.model.rollout import BrokerProgress, RolloutOrder, RolloutProgress

ORDER = RolloutOrder("roll-1", "anna", 1_000, ("a:1", "b:1", "c:1"), canary="b:1", wanted=2)
PROGRESS = RolloutProgress(
    "roll-1",
    1_000,
    {
        "a:1": BrokerProgress(start_ms=7),
        "b:1": BrokerProgress("done", 2_000, 5, 3, "the canary"),
        "c:1": BrokerProgress("draining", 3_000, 6),
    },
    ("a:1",),
)
MEMORY = Memory(seq=4, operator_state=OperatorState(rollout=ORDER), rollout=PROGRESS)


def test_a_memory_with_a_rollout_is_read_back_as_it_was() -> None:
    assert Memory.from_json(MEMORY.to_json()) == MEMORY


def test_a_memory_from_before_there_were_rollouts_has_none() -> None:
    old = json.loads(MEMORY.to_json())
    del old["rollout"], old["operator_state"]["rollout"]
    read = Memory.from_json(json.dumps(old))
    assert (read.seq, read.rollout, read.operator_state.rollout) == (4, None, None)


def test_brokers_are_found_by_their_phase_in_the_order_of_the_rollout() -> None:
    assert PROGRESS.in_phases("draining", "waiting") == ("a:1", "c:1")
    assert PROGRESS.in_phases("down") == ()
