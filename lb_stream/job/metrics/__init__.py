"""What a running job tells of itself: metrics for Prometheus, `/health`, the table `batches`."""
