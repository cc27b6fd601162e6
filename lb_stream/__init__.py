"""Load-balancing control plane for message-broker clusters, as a PySpark Structured Streaming pipeline."""

__version__ = "0.1.0"
