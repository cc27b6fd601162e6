"""A Spark session that does nothing, which `python -m tests.bench.start` compares a start with."""

from pyspark.sql import SparkSession

UP = "the session is up"

if __name__ == "__main__":
    session = SparkSession.builder.getOrCreate()
    print(UP, flush=True)
    session.stop()
