"""How a drain gets on: bundles left, time to go, who remains and why.

From the tables, while the command is waited for.
"""

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

EVERY_S = 5.0
MOST_NAMED = 3

_LEFT = "SELECT bundle FROM bundle_averages WHERE cluster = $1 AND owner = $2 ORDER BY bundle"
_REFUSED = f"""
    SELECT rule FROM refusals WHERE cluster = $1 AND now_ms >= $3 AND (broker = $2 OR broker IS NULL)
    AND rule IN {RULES_BY_PLACE["limits"] + RULES_BY_PLACE["policies"] + RULES_BY_PLACE["suspension"]} ORDER BY log_seq DESC, rule LIMIT 1
"""


class DrainWatch:
    """Tells on stderr, now and then, what has changed.

    Where the tables can't be read nothing is told: the answer comes all the same.
    """

    def __init__(self, tables: Store, cluster: str, broker: str) -> None:
        self._tables, self._cluster, self._broker = tables, cluster, broker
        self._began_s, self._next_s = time.monotonic(), 0.0
        self._first: int | None = None
        self._told = ""

    def look(self) -> None:
        """Look, if that is due."""
        if time.monotonic() < self._next_s:
            return
        self._next_s = time.monotonic() + EVERY_S
        with suppress(QueryError, OSError):
            told = self._line()
            if told != self._told:
                note(told)
            self._told = told

    def _line(self) -> str:
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
        coming = f", {len(arriving)} on their way to it" if arriving else ""
        progress = f"{len(left)} of {self._first} bundles left{coming}{self._to_go(len(left))}"
        return f"{self._broker}: {progress}{_remaining(left, now, rule)}"

    def _to_go(self, left: int) -> str:
        assert self._first is not None
        gone, took_s = self._first - left, time.monotonic() - self._began_s
        return f", about {max(1, round(left * took_s / gone))} s to go" if gone and left else ""


def _remaining(left: list[str], now: ClusterState, rule: str | None) -> str:
    """Some of those that remain, and why: those that aren't on their way first."""
    moving = {
        pending.bundle: f"on its way until {clock(pending.expires_ms)}"
        for pending in now.memory.pending
    }
    waiting = {
        name: f"its last decision failed: again at {clock(retry.not_before_ms)}"
        for name, retry in now.memory.retries.items()
    }
    why = {
        name: moving.get(name)
        or waiting.get(name)
        or (explain_refusal(rule) if rule else "its turn comes")
        for name in left
    }
    shown = sorted(left, key=lambda name: name in moving)[:MOST_NAMED]
    return "".join(f"; {name}: {why[name]}" for name in shown)
