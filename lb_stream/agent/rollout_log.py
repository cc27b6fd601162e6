"""Says in the agent's log how a rollout goes on at its brokers. It changes nothing.

An agent knows of a rollout by the decisions that it carries out, and by its brokers' own reports.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field

from lb_stream.agent.adapter import JsonReport
from lb_stream.agent.obey import AgentVerdict
from lb_stream.contracts.decisions import MOVES, Decision
from lb_stream.core.model.names import is_system_bundle
from lb_stream.core.model.rules import Decides
from lb_stream.io.messages.times import clock

log = logging.getLogger(__name__)

BUNDLE_FIELDS = ("bundles", "lastStats", "bundleStats")
"""Fields of reports that name bundles. Load data that their broker wrote have none of them."""


@dataclass(slots=True)
class RolloutLog:
    """Tells when a broker is to be restarted, when it is empty, and when it is back."""

    _leaving: set[str] = field(default_factory=set)  # brokers that a rollout empties
    _empty: set[str] = field(default_factory=set)  # those of them that were told to be empty
    _starts: dict[str, int] = field(default_factory=dict)  # broker → start of its process, ms

    def note_decision(self, broker: str, decision: Decision, verdict: AgentVerdict) -> None:
        """Note a decision that a broker was to carry out."""
        if decision.kind in MOVES and decision.rule == Decides.ROLLOUT.name:
            if verdict.action == "release" and broker not in self._leaving:
                self._leaving.add(broker)
                log.warning("%s is to be restarted by a rollout: its bundles leave", broker)
        elif verdict.action == "acquire":
            # Brokers that are to be restarted get no bundle: it is back, or the rollout has ended.
            self._forget(broker)

    def note_report(self, broker: str, report: JsonReport) -> None:
        """Note a report of a broker."""
        start_ms, was_ms = report.get("startTimestamp") or 0, self._starts.get(broker)
        if start_ms and start_ms != was_ms:
            self._starts[broker] = start_ms
            self._forget(broker)
            state = "reports" if was_ms is None else "is back"
            log.warning("%s %s: its process began at %s", broker, state, clock(start_ms))
        if broker not in self._leaving:
            return
        named = [report[name] for name in BUNDLE_FIELDS if report.get(name) is not None]
        if not named:
            return
        if any(not is_system_bundle(bundle) for bundles in named for bundle in bundles):
            self._empty.discard(broker)
        elif broker not in self._empty:
            self._empty.add(broker)
            log.warning("%s is empty: lbctl rollout status says when to restart it", broker)

    def _forget(self, broker: str) -> None:
        self._leaving.discard(broker)
        self._empty.discard(broker)
