"""This machine: Java, jars, the embedded Kafka broker, processes, signals, settings out of files, a small HTTP server."""
