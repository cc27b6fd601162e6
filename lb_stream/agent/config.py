"""What an agent must know, and why it may not start."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from lb_stream.agent.hooks import HookConfig
from lb_stream.agent.report_throttle import ReportThrottle
from lb_stream.agent.splits import SplitWatch


class AgentError(RuntimeError):
    """The agent can't start.

    The text says what to do; `code` is the exit code, 2 where a setting is wrong.
    """

    def __init__(self, text: str, code: int = 1) -> None:
        super().__init__(text)
        self.code = code


@dataclass(frozen=True, slots=True)
class AgentConfig:
    """Where Kafka is and how often to speak.

    Every `report_interval_s` each broker's report is sent, or, with `make_throttle` (it makes one
    `ReportThrottle` for each broker), looked at whether it is needed. `make_split_watch` makes what
    looks for too large bundles, of each broker that can tell. `ownership_topic` None: decisions are
    not compared with their bundles' records. `start` is where to read decisions from: those that
    come from now on, all that are there, or offsets by partition. `hooks`: whom to ask before moves
    and to tell after them; what is told follows from the ownership topic. `client_options`: as
    `kafka.options` among the job's settings (security_protocol, sasl_mechanism, ssl_cafile, ...).
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
    client_options: Mapping[str, Any] = field(default_factory=dict)
    hooks: HookConfig = field(default_factory=HookConfig)
