"""The job: the stream put together, started, watched, begun anew, and submitted to Spark."""
