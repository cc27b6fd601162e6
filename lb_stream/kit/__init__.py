"""The demo, an embedded Kafka broker, and the fetching of jars. The job imports nothing of it."""
