"""A cluster with one hot broker: its bundles, loads and settings."""

from lb_stream.contracts.reports import BundleStats

BUNDLES = [f"t/n/0x{number}0000000_0x{number + 1}0000000" for number in range(8)]
STATS = BundleStats(topics=1, msg_throughput_in=10e6, msg_rate_in=1e3)
HOT = {"a": BUNDLES[:6], "b": BUNDLES[6:7], "c": BUNDLES[7:]}

SETTINGS = {"history_ratio": 0.0, "min_throughput_mb": 0.0, "shedding_grace_period_ms": 0}
