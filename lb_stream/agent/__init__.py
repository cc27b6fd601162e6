"""What runs beside a broker: publishes its load reports, obeys the balancer's decisions, says what it did.

    agent = Agent(AgentConfig(bootstrap_servers="broker:9092", cluster="eu-1"), [MyAdapter()])
    agent.start()
    ...
    agent.stop()

A broker is anything with the five members of `BrokerAdapter`. One agent serves one or many brokers of one cluster.
"""

from lb_stream.agent.adapter import BrokerAdapter, SplittingAdapter
from lb_stream.agent.agent import Agent, AgentConfig, AgentError
from lb_stream.agent.obey import Seen, Verdict, addressee, judge

__all__ = ["Agent", "AgentConfig", "AgentError", "BrokerAdapter", "Seen", "SplittingAdapter", "Verdict", "addressee", "judge"]
