"""The state of the demo: reports and decisions from the agent, outcomes and rounds from tables."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lb_stream.agent import AgentVerdict
from lb_stream.agent.adapter import JsonReport
from lb_stream.contracts.decisions import Decision
from lb_stream.contracts.tables import BROKER_LOADS, OUTCOMES, ROUNDS
from lb_stream.sim.cluster import max_over_mean
from lb_stream.sim.reports import report_throughput

if TYPE_CHECKING:
    from deltalake import DeltaTable

Row = dict[str, Any]
"""A row of a table, by columns."""

BALANCED = 1.25
"""The highest ratio of max to mean throughput that counts as balanced."""
CALM_ROUNDS = 5
"""How many rounds without a decision a calm cluster has at least."""


@dataclass(slots=True)
class DemoDecision:
    """One decision, when the demo read it (seconds since its start), and its outcome."""

    decision: Decision
    at_s: float
    outcome: str | None = None
    took_ms: int | None = None
    detail: str | None = None  # the reason of the outcome


@dataclass(frozen=True, slots=True)
class BrokerFigures:
    """One broker's figures in its last report. `cpu_ratio` is 0..1."""

    name: str
    bundles: int
    rate_msgs_per_s: float
    throughput_bytes_per_s: float
    cpu_ratio: float
    active: bool = True  # it counts in the mean and the maximum

    @staticmethod
    def from_report(broker: str, report: JsonReport, active: bool = True) -> BrokerFigures:
        """Return the figures of a modular or simple report."""
        cpu = report.get("cpu") or report["systemResourceUsage"]["cpu"]
        rate = float(report["msgRateIn"]) + float(report["msgRateOut"])
        bundles, cpu_ratio = int(report["numBundles"]), cpu["usage"] / cpu["limit"]
        return BrokerFigures(broker, bundles, rate, report_throughput(report), cpu_ratio, active)


class NewRows:
    """Reads the rows that a Delta table has gained since the last reading."""

    def __init__(self, table: Path, columns: list[str]) -> None:
        self._table, self._columns = table, columns
        self._delta: DeltaTable | None = None
        self._seen: set[str] = set()

    def skip(self) -> None:
        """Leave out the rows that are there now."""
        self._new_files()

    def read(self) -> list[Row]:
        """Return new rows; none while the table does not exist."""
        import pyarrow.parquet as pq

        rows = []
        for file in self._new_files():
            rows += pq.read_table(file, columns=self._columns, partitioning=None).to_pylist()
        return rows

    def _new_files(self) -> list[str]:
        from deltalake import DeltaTable

        if self._delta is None:
            if not DeltaTable.is_deltatable(str(self._table)):
                return []
            self._delta = DeltaTable(str(self._table))
        else:
            self._delta.update_incremental()
        new = [file for file in self._delta.file_uris() if file not in self._seen]
        self._seen.update(new)
        return new


@dataclass(slots=True)
class DemoState:
    """Everything that the demo shows and judges.

    The agent's thread writes reports and decisions, the demo's thread everything else.
    """

    tables: Path
    cluster: str
    calm_s: float
    started: float = field(default_factory=time.monotonic)
    reports: dict[str, JsonReport] = field(default_factory=dict)
    made: dict[str, DemoDecision] = field(default_factory=dict)
    before: list[BrokerFigures] = field(default_factory=list)
    first_seq: int | None = None
    last_seq: int = 0
    first_round_s: float | None = None
    error: str | None = None
    failed_in_a_row: int = 0
    _rounds: NewRows = field(init=False)
    _outcomes: NewRows = field(init=False)
    _loads: NewRows = field(init=False)
    _inactive: frozenset[str] = frozenset()  # by the last round: drained, silent, dead
    _early: dict[str, Row] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._rounds = NewRows(self.tables / ROUNDS.name, ["cluster", "log_seq", "seq", "error"])
        columns = ["cluster", "log_seq", "broker", "active"]
        self._loads = NewRows(self.tables / BROKER_LOADS.name, columns)
        columns = ["decision_id", "outcome", "detail", "took_ms"]
        self._outcomes = NewRows(self.tables / OUTCOMES.name, columns)

    # --- input ---

    def skip_past(self) -> None:
        """Leave out the rows of an earlier demo."""
        for rows in (self._rounds, self._outcomes, self._loads):
            rows.skip()

    def on_report(self, broker: str, report: JsonReport) -> None:
        """Take a broker's report."""
        self.reports[broker] = report

    def on_decision(
        self, decision: Decision, _broker: str | None, _verdict: AgentVerdict | None
    ) -> None:
        """Take a decision that the agent has carried out; reports that show it come later."""
        if not self.made:
            self.before = self.figures()
        self.made[decision.decision_id] = DemoDecision(decision, self.elapsed_s())

    def refresh(self) -> None:
        """Read what the tables have gained since the last call."""
        now = self.figures()
        if not self.made:
            self.before = now
        ours = [row for row in self._rounds.read() if row["cluster"] == self.cluster]
        for row in sorted(ours, key=lambda row: row["log_seq"]):  # files come in any order
            self.last_seq = max(self.last_seq, row["seq"])
            self.error = row["error"] or self.error
            self.failed_in_a_row = self.failed_in_a_row + 1 if row["error"] else 0
            if self.first_seq is None:
                self.first_seq, self.first_round_s = row["seq"], self.elapsed_s()
        if loads := [row for row in self._loads.read() if row["cluster"] == self.cluster]:
            last = max(row["log_seq"] for row in loads)
            seen = [row for row in loads if row["log_seq"] == last]
            self._inactive = frozenset(row["broker"] for row in seen if not row["active"])
        for row in self._outcomes.read():
            self._early[row["decision_id"]] = row
        # An outcome may be in its table before the agent has read the decision.
        for decision_id in [early for early in self._early if early in self.made]:
            row, made = self._early.pop(decision_id), self.made[decision_id]
            made.outcome = row["outcome"]
            made.took_ms = row["took_ms"]
            made.detail = row["detail"]

    # --- figures ---

    def elapsed_s(self) -> float:
        """Return the seconds since the demo began."""
        return time.monotonic() - self.started

    def figures(self) -> list[BrokerFigures]:
        """Return all brokers' present figures, by name."""
        reports = sorted(self.reports.copy().items())
        return [
            BrokerFigures.from_report(broker, report, broker not in self._inactive)
            for broker, report in reports
        ]

    def decisions(self) -> list[DemoDecision]:
        """Return all decisions in their order."""
        return list(self.made.copy().values())

    @property
    def rounds(self) -> int:
        """Rounds since the demo began."""
        return 0 if self.first_seq is None else self.last_seq - self.first_seq + 1

    def unconfirmed(self) -> list[DemoDecision]:
        """Return the decisions without an outcome."""
        return [made for made in self.decisions() if made.outcome is None]

    def confirmed(self) -> int:
        """Return how many decisions reports have confirmed."""
        return sum(made.outcome == "confirmed" for made in self.decisions())

    def calm(self, for_s: float | None = None) -> bool:
        """Return whether no decision is pending, and none was made for `for_s` seconds.

        Without `for_s` it is `calm_s`. CALM_ROUNDS rounds must have passed, too.
        """
        if self.first_seq is None or self.first_round_s is None or self.unconfirmed():
            return False
        made = self.decisions()
        last_s = max((decision.at_s for decision in made), default=self.first_round_s)
        last_seq = max((decision.decision.seq for decision in made), default=self.first_seq)
        wait_s = self.calm_s if for_s is None else for_s
        return self.last_seq - last_seq >= CALM_ROUNDS and self.elapsed_s() - last_s >= wait_s


def throughput_imbalance(figures: list[BrokerFigures]) -> float:
    """Return the active brokers' max throughput, as a multiple of their mean."""
    return max_over_mean(figure.throughput_bytes_per_s for figure in figures if figure.active)
