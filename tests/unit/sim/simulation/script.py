"""A balancer that decides what a test wants, at times that it gives; it notes what it sees."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from lb_stream.contracts.decisions import Decision
from lb_stream.contracts.reports import Ack
from lb_stream.core.model.blocks import Batch
from lb_stream.core.model.rollout import RolloutProgress
from lb_stream.core.round.decide import Inbox
from lb_stream.sim.simulation.balancer import SimulatedBalancer
from lb_stream.sim.simulation.reports import START_MS


class Script:
    """Decisions by time (s), each with the keys that matter. `seen`: samples by time and bundle."""

    def __init__(self, *decisions: tuple[float, dict[str, Any]]) -> None:
        self.left, self.made = list(decisions), 0
        self.acks: list[Ack] = []
        self.seen: dict[float, dict[str, dict[str, Any]]] = {}
        self.goodbyes: list[tuple[float, str]] = []
        self.rollout: RolloutProgress | None = None

    def play(self, patch: pytest.MonkeyPatch) -> None:
        """Decide in place of the balancer."""
        patch.setattr(SimulatedBalancer, "decide", lambda _, *given: self.decide(*given))

    def decide(self, batch: Batch, inbox: Inbox, now_ms: int) -> Any:
        t_s = (now_ms - START_MS) / 1000
        self.acks += inbox.acks
        for sample in batch.samples.to_pylist():
            self.seen.setdefault(t_s, {})[sample["name"]] = sample
        for event in batch.events.to_pylist():
            if event["kind"] == "goodbye":
                self.goodbyes.append((t_s, event["broker"]))
        decisions = []
        while self.left and self.left[0][0] <= t_s:
            self.made += 1
            decisions.append(_decision(f"d:{self.made}", now_ms, **self.left.pop(0)[1]))
        memory = SimpleNamespace(rollout=self.rollout)
        return SimpleNamespace(
            cluster="small",
            seq=self.made,
            decisions=decisions,
            ownership=[],
            results=[],
            memory=memory,
        )


def _decision(identity: str, now_ms: int, **fields: Any) -> Decision:
    every = {
        "decision_id": identity,
        "cluster": "small",
        "seq": 1,
        "epoch": 1,
        "expected_version": 1,
        "reason": "Admin",
        "rule": "admin",
        "strategy": "test",
        "issued_ms": now_ms,
        "expires_ms": now_ms + 60_000,
    }
    return Decision(**(every | fields))
