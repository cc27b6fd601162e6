"""Everything that touches the world outside: Java, jars, the embedded Kafka broker, topics, tables, the outbox."""
