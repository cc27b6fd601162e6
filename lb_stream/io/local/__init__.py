"""This machine: Java, jars, processes, signals, settings out of files, a small HTTP server."""
