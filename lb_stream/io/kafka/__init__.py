"""Kafka: clients' options, topics and rights, the outbox, and what a batch reads."""
