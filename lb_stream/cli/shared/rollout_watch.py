"""The progress of a rollout, from the tables: one line whenever it has changed."""

from __future__ import annotations

import time
from contextlib import suppress
from typing import TYPE_CHECKING

from lb_stream.cli.shared.output import CommandError, note
from lb_stream.io.messages.times import clock
from lb_stream.query import QueryError
from lb_stream.query.cluster_state import ClusterState, read_cluster_states
from lb_stream.query.lake import open_lake
from lb_stream.query.rollouts import build_rollout_facts, load_left, load_rollout_events
from lb_stream.store import Store

if TYPE_CHECKING:
    from lb_stream.query.lake import Lake

INTERVAL_S = 2.0


class RolloutWatch:
    """Notes the progress of a cluster's rollout on stderr when it has changed.

    It notes nothing while the tables can't be read.
    """

    def __init__(self, tables: Store, cluster: str) -> None:
        self._tables, self._cluster, self._next_s = tables, cluster, 0.0
        self._last = ""

    def look(self) -> None:
        """Read the tables and note what has changed, every INTERVAL_S seconds."""
        if time.monotonic() < self._next_s:
            return
        self._next_s = time.monotonic() + INTERVAL_S
        with suppress(QueryError, OSError), open_lake(self._tables) as lake:
            for state in read_cluster_states(lake, self._cluster):
                self.tell(describe_progress(lake, state))

    def tell(self, line: str) -> None:
        """Note a line, unless it is the last one that was noted."""
        if line and line != self._last:
            note(line)
        self._last = line


class BackWatch:
    """Looks in the tables whether a broker of a rollout is back.

    `state`: what is known of it, as a text. Each change of it is noted on stderr.
    """

    def __init__(self, tables: Store, cluster: str, broker: str) -> None:
        self._tables, self._cluster, self._broker = tables, cluster, broker
        self.state = "the tables can't be read"
        self._noted = ""

    def look(self) -> str | None:
        """Return that the broker is back, as a text; None: it isn't yet.

        Raises CommandError where no rollout of the broker is on, or (code 2) it is none of its.
        """
        with suppress(QueryError, OSError), open_lake(self._tables) as lake:
            found = read_cluster_states(lake, self._cluster)
            rollout = found[0].operator_state.rollout if found else None
            if rollout is None or rollout.aborted:
                return self._look_back(lake)
            if self._broker not in rollout.brokers:
                raise CommandError(
                    f"{self._broker} is no broker of the rollout: expected one of "
                    f"{', '.join(rollout.brokers)}",
                    2,
                )
            progress = found[0].memory.rollout
            broker = None if progress is None else progress.brokers.get(self._broker)
            if broker is not None and broker.phase == "done":
                return f"{self._broker} is back since {clock(broker.since_ms)}"
            if broker is None or broker.phase == "waiting":
                self._note("its turn has not come")
            else:
                untold = "; its reports have no start: lbctl rollout settle says that it is back"
                is_untold = broker.phase == "empty" and not broker.start_ms
                since = f"{broker.phase} since {clock(broker.since_ms)}"
                self._note(since + (untold if is_untold else ""))
        return None

    def _note(self, state: str) -> None:
        self.state = state
        if state != self._noted:
            note(f"{self._broker}: {state}")
        self._noted = state

    def _look_back(self, lake: Lake) -> str:
        """Return that the broker is back by the events of the last rollout. Raises CommandError."""
        events = load_rollout_events(lake, self._cluster)
        last = [event for event in events if event["rollout"] == events[-1]["rollout"]]
        own = [event for event in last if event["broker"] == self._broker]
        if own and own[-1]["phase"] == "done":
            return f"{self._broker} is back since {clock(own[-1]['at_ms'])}; the rollout has ended"
        raise CommandError(
            f"no rollout of {self._cluster} is on, and its last one has not restarted "
            f"{self._broker}: lbctl rollout history"
        )


def describe_progress(lake: Lake, state: ClusterState) -> str:
    """Describe how far a cluster's rollout is, with the bundles left at draining brokers.

    Empty: none is on.
    """
    facts = build_rollout_facts(state.memory)
    if facts is None or state.memory.rollout is None:
        return ""
    draining = state.memory.rollout.in_phases("draining")
    left = load_left(lake, state.cluster, draining)
    return facts.text + "".join(
        f"; {name}: {len(bundles)} bundle{'' if len(bundles) == 1 else 's'} left"
        for name, bundles in left.items()
    )
