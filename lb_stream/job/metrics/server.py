"""Serves metrics over HTTP: each path has a registry, rendered on request."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest

from lb_stream.io.local.http_server import TEXT, HttpAnswer, HttpServer

PATHS = ("/metrics", "/metrics/brokers")
"""Paths of the metrics of stream and clusters, and of single brokers."""


def serve_metrics(
    address: str,
    registries: Mapping[str, CollectorRegistry],
    others: Mapping[str, Callable[[], HttpAnswer]] = MappingProxyType({}),
) -> HttpServer:
    """Serve each path's metrics, and other answers, until stopped.

    `address`: host:port. Raises OSError when it can't be had.
    """

    def respond(path: str) -> HttpAnswer:
        path = path.partition("?")[0].rstrip("/")
        if path in others:
            return others[path]()
        registry = registries.get(path)
        if registry is None:
            return HttpAnswer(
                404, TEXT, f"Nothing here. There is: {', '.join((*registries, *others))}\n".encode()
            )
        return HttpAnswer(200, CONTENT_TYPE_LATEST, generate_latest(registry))

    return HttpServer(address, respond)
