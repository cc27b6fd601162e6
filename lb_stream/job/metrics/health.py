"""`/health` and `/ready` of the job, for supervisors and for load balancers of requests.

The verdict is `query.health`'s.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable

import msgspec

from lb_stream.contracts.settings import StreamSettings
from lb_stream.core.model.rollout import RolloutOrder, RolloutProgress
from lb_stream.io.leadership.leader import this_host
from lb_stream.io.local.http_server import HttpAnswer
from lb_stream.job.metrics.round_figures import MemorySource
from lb_stream.query.health import LAG_LIMIT, LATE_MS, ClusterFacts, Facts, JobFacts, judge
from lb_stream.query.rollouts import describe_rollout
from lb_stream.stream.ports import Logged, forgotten_clusters


class _Pending(msgspec.Struct):
    decision_id: str


class _Suspension(msgspec.Struct):
    rule: str


class _OperatorState(msgspec.Struct):
    paused: bool = False
    drained: list[str] = []
    rollout: RolloutOrder | None = None


class _HealthMemory(msgspec.Struct):
    seq: int = 0
    retry_ms: int = 0
    dead: list[str] = []
    pending: list[_Pending] = []
    operator_state: _OperatorState = msgspec.field(default_factory=_OperatorState)
    suspension: _Suspension | None = None
    rollout: RolloutProgress | None = None


_read_memory = msgspec.json.Decoder(_HealthMemory).decode


class Health:
    """The job's own facts about its health, and the answers made from them."""

    def __init__(self, settings: StreamSettings, epoch: int, memories: MemorySource) -> None:
        self._settings, self._epoch, self._memories = settings, epoch, memories
        self._errors: dict[str, str | None] = {}
        self._last_ms: dict[str, int] = {}
        self._started_ms = 0
        self._batch_ms: int | None = None
        self.lag_records: int | None = None

    def start(self) -> None:
        """Note that the stream begins."""
        self._started_ms = _now_ms()

    def record_batch(self, logged: Logged, ended_s: float) -> None:
        """Note a finished batch."""
        self._batch_ms = int(ended_s * 1000)
        for row in logged.rounds.select(["cluster", "now_ms", "error"]).to_pylist():
            self._errors[row["cluster"]] = row["error"]
            self._last_ms[row["cluster"]] = row["now_ms"]
        for cluster in forgotten_clusters(logged):
            del self._errors[cluster], self._last_ms[cluster]

    @property
    def answers(self) -> dict[str, Callable[[], HttpAnswer]]:
        """Path → function that answers it."""
        return {"/health": self._healthy, "/ready": self._ready}

    def _healthy(self) -> HttpAnswer:
        """Return 503 if no batch has ended for `stream.batch_timeout_ms`: restart the job."""
        limit_ms = self._settings.batch_timeout_ms
        return self._answer(
            not limit_ms or _now_ms() - (self._batch_ms or self._started_ms) <= limit_ms
        )

    def _ready(self) -> HttpAnswer:
        """Return status 503 before the first finished batch, and when none has finished lately."""
        return self._answer(
            self._batch_ms is not None
            and (_now_ms() - self._batch_ms <= LATE_MS or not self._settings.tick_interval_ms)
        )

    def _answer(self, is_ok: bool) -> HttpAnswer:
        """Return the verdict on the job; the status is what `is_ok` says."""
        found = judge(self._facts()).to_dict()
        return HttpAnswer(
            200 if is_ok else 503,
            "application/json",
            json.dumps(found, ensure_ascii=False).encode() + b"\n",
        )

    def _facts(self) -> Facts:
        stream = self._settings
        job = JobFacts(
            stream.pipeline_id,
            self._epoch,
            this_host(),
            os.getpid(),
            self._started_ms,
            True,
            "it answers",
            self._batch_ms,
            self.lag_records,
            stream.tick_interval_ms > 0,
        )
        clusters = tuple(
            self._cluster(name, text) for name, text in sorted(dict(self._memories()).items())
        )
        return Facts(
            _now_ms(), job, clusters, lag_limit=stream.max_offsets_per_trigger or LAG_LIMIT
        )

    def _cluster(self, name: str, text: str) -> ClusterFacts:
        known = _read_memory(text)
        order = known.operator_state.rollout
        return ClusterFacts(
            cluster=name,
            last_round_ms=self._last_ms.get(name, 0),
            seq=known.seq,
            error=self._errors.get(name),
            retry_ms=known.retry_ms,
            suspended_by=known.suspension.rule if known.suspension else None,
            paused=known.operator_state.paused,
            drained=tuple(known.operator_state.drained),
            gone=tuple(known.dead),
            pending=len(known.pending),
            rollout=None if order is None else describe_rollout(order, known.rollout),
        )


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
