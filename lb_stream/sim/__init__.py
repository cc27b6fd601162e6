"""A cluster that is only played.

`scenario`: what happens; `measures`: what a trace is worth; `model`: the physics; `play`: a
balancer in a scenario. `cluster`, `brokers` and `workload` put the same model beside a real Kafka,
for the demo, the tests and `lbctl sim`.
"""

from lb_stream.sim.brokers import SimBroker
from lb_stream.sim.cluster import Load, SimCluster, build_cluster
from lb_stream.sim.workload import WORKLOADS

__all__ = ["WORKLOADS", "Load", "SimBroker", "SimCluster", "build_cluster"]
