"""An agent's settings, and the error of an agent that can't start."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from lb_stream.agent.hooks import HookConfig
from lb_stream.agent.report_throttle import ReportThrottle
from lb_stream.agent.splits import SplitWatch
from lb_stream.contracts.reports import ReportConfig
from lb_stream.io.telemetry.port import NO_TELEMETRY, Telemetry

if TYPE_CHECKING:
    from lb_stream.access.signing_keys import Signer
    from lb_stream.io.kafka.signing import RecordCheck


class AgentError(RuntimeError):
    """The agent can't start.

    The text says what to do; `code` is the exit code, 2 where a setting is wrong.
    """

    def __init__(self, text: str, code: int = 1) -> None:
        super().__init__(text)
        self.code = code


@dataclass(frozen=True, slots=True)
class AgentConfig:
    """The address of Kafka, and what an agent reads and sends, how often.

    - `ownership_topic`: None: decisions are not compared with their bundles' ownership records.
    - `report_interval_s`: the time between two readings of each broker's report. A report is sent
      if it is needed.
    - `make_throttle`: makes the throttle of one broker's reports; None: all are sent.
    - `min_columns`: bundles of a report from which on it is sent as columns, while the job says
      that it reads them; 0: all reports are JSON.
    - `make_split_watch`: makes the search for bundles that are too large, for each broker whose
      adapter has statistics; None: no search.
    - `start`: where reading of decisions begins: at the topic's end, at its begin, or at offsets
      by partition.
    - `client_options`: as the setting `kafka.options` (security_protocol, sasl_mechanism, …).
    - `hooks`: URLs that are called before and after moves. Calls after moves need the ownership
      topic.
    - `telemetry`: sends a span for each decision that is carried out or refused.
    - `signer`: signs what the agent sends; None: nothing is signed.
    - `check_decisions`: makes the check of signatures of decisions and ownership records, of each
      connection; if it returns None, they do not matter. `job`: the name of the job's signer.
    """

    bootstrap_servers: str
    cluster: str
    reports_topic: str = "lb-load-reports"
    decisions_topic: str = "lb-decisions"
    ownership_topic: str | None = "lb-ownership"
    report_interval_s: float = 5.0
    heartbeat_interval_s: float = 5.0
    make_throttle: Callable[[], ReportThrottle] | None = None
    make_split_watch: Callable[[], SplitWatch] | None = None
    start: Literal["latest", "earliest"] | Mapping[int, int] = "latest"
    client_options: Mapping[str, object] = field(default_factory=dict)
    hooks: HookConfig = field(default_factory=HookConfig)
    telemetry: Telemetry = NO_TELEMETRY
    signer: Signer | None = None
    check_decisions: Callable[[], RecordCheck | None] = lambda: None
    job: str = "job:lb-stream"
    min_columns: int = ReportConfig().report_columns_bundles
