"""Everything that touches the world outside: Java, jars, topics, tables, the outbox."""
