"""Serves metrics over HTTP: each path has a registry, rendered on request."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from types import MappingProxyType

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest

from lb_stream.contracts.servers import MetricsSettings
from lb_stream.io.local.http_server import TEXT, HttpAnswer, HttpServer
from lb_stream.io.local.tls import ServerTls, describe_plain

logger = logging.getLogger(__name__)

PATHS = ("/metrics", "/metrics/brokers")
"""Paths of the metrics of stream and clusters, and of single brokers."""


def serve_metrics(
    address: str,
    registries: Mapping[str, CollectorRegistry],
    others: Mapping[str, Callable[[], HttpAnswer]] = MappingProxyType({}),
    settings: MetricsSettings | None = None,
) -> HttpServer:
    """Serve each path's metrics, and other answers, until stopped.

    `address`: host:port. Others' answers need no client certificate. Raises OSError when the
    address can't be had, SettingError for a wrong certificate.
    """
    settings = settings or MetricsSettings()
    tls = ServerTls.load("metrics", settings)
    if plain := describe_plain("metrics", address, tls):
        logger.warning("metrics: %s", plain)

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

    return HttpServer(address, respond, settings, tls, others.keys())
