"""Simulated clusters.

`scenario` describes what happens, `model` is the physics, `simulation` runs the balancer in a
scenario, and `measures` evaluates the trace. `cluster`, `brokers` and `workload` put the same model
beside a real Kafka, for the demo, the tests and `lbctl sim`.
"""

from lb_stream.sim.brokers import SimBroker
from lb_stream.sim.cluster import Load, SimCluster, build_cluster
from lb_stream.sim.workload import WORKLOADS

__all__ = ["WORKLOADS", "Load", "SimBroker", "SimCluster", "build_cluster"]
