"""A closed-loop model of a broker cluster: brokers that own bundles, carry their load, report it, and give bundles up or take them.

`cluster` and `workload` are the model (no Kafka, no clock: time is an argument, chance is seeded); `brokers` lets agents run it.
`python -m lb_stream.sim --help` runs a cluster against a real Kafka.
"""

from lb_stream.sim.brokers import SimBroker
from lb_stream.sim.cluster import BrokerProfile, BundleProfile, Load, SimCluster, build_cluster
from lb_stream.sim.workload import WORKLOADS, Workload, hot_spot, skewed, steady

__all__ = [
    "WORKLOADS",
    "BrokerProfile",
    "BundleProfile",
    "Load",
    "SimBroker",
    "SimCluster",
    "Workload",
    "build_cluster",
    "hot_spot",
    "skewed",
    "steady",
]
