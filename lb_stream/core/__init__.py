"""The pure core: views, averages, strategies and `decide`. No Spark, Kafka, Delta, clock, randomness, logging or environment."""
