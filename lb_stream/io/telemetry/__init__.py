"""Traces and metrics for OpenTelemetry. Only `otlp` and `otlp_metrics` import its packages."""
