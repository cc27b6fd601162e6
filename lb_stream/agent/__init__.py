"""What runs beside brokers: it sends their load reports and carries out decisions.

    agent = Agent(AgentConfig(bootstrap_servers="broker:9092", cluster="eu-1"), [MyAdapter()])
    agent.start()
    ...
    agent.stop()

An adapter has the five members of `BrokerAdapter`; the protocols beside it add what some brokers
can do. One agent serves one or many brokers of one cluster.
"""

from lb_stream.agent.adapter import (
    BalancedAdapter,
    BrokerAdapter,
    BrokerError,
    LimitedCutsAdapter,
    MeasuringAdapter,
    MergingAdapter,
    ProbingAdapter,
    Refused,
    Report,
    SplittingAdapter,
    TransferringAdapter,
    YieldingAdapter,
)
from lb_stream.agent.agent import Agent
from lb_stream.agent.config import AgentConfig, AgentError
from lb_stream.agent.hooks import HookConfig
from lb_stream.agent.obey import AgentMemory, AgentVerdict, addressee, judge
from lb_stream.agent.report_throttle import ReportThrottle
from lb_stream.agent.splits import SplitWatch

__all__ = [
    "Agent",
    "AgentConfig",
    "AgentError",
    "AgentMemory",
    "AgentVerdict",
    "BalancedAdapter",
    "BrokerAdapter",
    "BrokerError",
    "HookConfig",
    "LimitedCutsAdapter",
    "MeasuringAdapter",
    "MergingAdapter",
    "ProbingAdapter",
    "Refused",
    "Report",
    "ReportThrottle",
    "SplitWatch",
    "SplittingAdapter",
    "TransferringAdapter",
    "YieldingAdapter",
    "addressee",
    "judge",
]
