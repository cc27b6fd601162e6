"""`make bench-stream`: the whole stream beside what Spark alone does, on a real Kafka.

What each figure is: `--help`.
"""
