"""Metrics over HTTP: each path one registry, rendered when it is asked for."""

from __future__ import annotations

from collections.abc import Mapping

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest

from lb_stream.io.http_server import TEXT, Answer, HttpServer

PATHS = ("/metrics", "/metrics/brokers")
"""The stream and its clusters; every single broker."""


def serve_metrics(address: str, registries: Mapping[str, CollectorRegistry]) -> HttpServer:
    """Serve each path's metrics until stopped. `address`: host:port. Raises OSError when it can't be had."""

    def respond(path: str) -> Answer:
        registry = registries.get(path.partition("?")[0].rstrip("/"))
        if registry is None:
            return Answer(404, TEXT, f"Nothing here. There is: {', '.join(registries)}\n".encode())
        return Answer(200, CONTENT_TYPE_LATEST, generate_latest(registry))

    return HttpServer(address, respond)
