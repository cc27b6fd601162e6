"""The progress of a drain, from the tables: bundles left, time to go, which remain and why."""

from __future__ import annotations

import time
from contextlib import suppress

from lb_stream.cli.shared.output import note
from lb_stream.core.model.memory import bound_for
from lb_stream.core.model.names import is_system_bundle
from lb_stream.io.messages.times import clock
from lb_stream.query import QueryError
from lb_stream.query.cluster_state import ClusterState, read_cluster_states
from lb_stream.query.lake import open_lake, records, run
from lb_stream.query.wording import RULES_BY_PLACE, explain_refusal
from lb_stream.store import Store

INTERVAL_S = 5.0
MAX_NAMED = 3

_LEFT = "SELECT bundle FROM bundle_averages WHERE cluster = $1 AND owner = $2 ORDER BY bundle"
_HINDERING = RULES_BY_PLACE["limits"] + RULES_BY_PLACE["policies"] + RULES_BY_PLACE["suspension"]
_REFUSED = f"""
    SELECT rule FROM refusals
    WHERE cluster = $1 AND now_ms >= $3 AND (broker = $2 OR broker IS NULL) AND rule IN {_HINDERING}
    ORDER BY log_seq DESC, rule LIMIT 1
"""


class DrainWatch:
    """Notes the progress of a drain on stderr when it has changed.

    It notes nothing while the tables can't be read.
    """

    def __init__(self, tables: Store, cluster: str, broker: str) -> None:
        self._tables, self._cluster, self._broker = tables, cluster, broker
        self._began_s, self._next_s = time.monotonic(), 0.0
        self._first: int | None = None
        self._last = ""

    def look(self) -> None:
        """Read the tables and note what has changed, every INTERVAL_S seconds."""
        if time.monotonic() < self._next_s:
            return
        self._next_s = time.monotonic() + INTERVAL_S
        with suppress(QueryError, OSError):
            line = self._describe()
            if line != self._last:
                note(line)
            self._last = line

    def _describe(self) -> str:
        with open_lake(self._tables) as lake:
            owned = [
                row["bundle"] for row in records(run(lake, _LEFT, [self._cluster, self._broker]))
            ]
            (now,) = read_cluster_states(lake, self._cluster)
            refused = records(run(lake, _REFUSED, [self._cluster, self._broker, now.now_ms]))
        left = [bundle for bundle in owned if not is_system_bundle(bundle)]
        self._first = len(left) if self._first is None else max(self._first, len(left))
        rule = refused[0]["rule"] if refused else None
        arriving = bound_for(self._broker, now.memory.pending).difference(left)
        coming = f", {len(arriving)} moving to it" if arriving else ""
        progress = f"{len(left)} of {self._first} bundles left{coming}{self._to_go(len(left))}"
        return f"{self._broker}: {progress}{_explain_remaining(left, now, rule)}"

    def _to_go(self, left: int) -> str:
        assert self._first is not None
        gone, took_s = self._first - left, time.monotonic() - self._began_s
        return f", about {max(1, round(left * took_s / gone))} s to go" if gone and left else ""


def _explain_remaining(left: list[str], now: ClusterState, rule: str | None) -> str:
    """Explain why some bundles remain; those without a pending move come first."""
    moving = {
        pending.bundle: f"moving until {clock(pending.expires_ms)}"
        for pending in now.memory.pending
    }
    waiting = {
        name: f"its last decision failed, the next may follow at {clock(retry.not_before_ms)}"
        for name, retry in now.memory.retries.items()
    }
    why = {
        name: moving.get(name)
        or waiting.get(name)
        or (explain_refusal(rule) if rule else "it waits for its turn")
        for name in left
    }
    shown = sorted(left, key=lambda name: name in moving)[:MAX_NAMED]
    return "".join(f"; {name}: {why[name]}" for name in shown)
