"""Metrics over HTTP: each path one registry, rendered when it is asked for."""

from __future__ import annotations

import logging
import socket
import socketserver
import threading
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest

logger = logging.getLogger(__name__)

PATHS = ("/metrics", "/metrics/brokers")
"""The stream and its clusters; every single broker."""


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def server_bind(self) -> None:
        """As it is but for the look-up of this machine's name, which takes seconds where no name server answers."""
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = self.server_address[:2]  # type: ignore[assignment]

    def handle_error(self, request: Any, client_address: Any) -> None:
        """One that went away before it had its answer is no news."""
        logger.debug("a request of %s failed", client_address, exc_info=True)


class _Server6(_Server):
    address_family = socket.AF_INET6


def _handler(registries: Mapping[str, CollectorRegistry]) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        timeout = 10  # seconds of silence, then a connection is closed

        def do_GET(self) -> None:
            """One path's metrics."""
            registry = registries.get(self.path.partition("?")[0].rstrip("/"))
            if registry is None:
                self._answer(404, "text/plain; charset=utf-8", f"Nothing here. There is: {', '.join(registries)}\n".encode())
                return
            try:
                content = generate_latest(registry)
            except Exception as error:
                logger.warning("metrics could not be rendered", exc_info=True)
                self._answer(500, "text/plain; charset=utf-8", f"{type(error).__name__}: {error}\n".encode())
                return
            self._answer(200, CONTENT_TYPE_LATEST, content)

        def _answer(self, status: int, kind: str, content: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *arguments: Any) -> None:
            """A scrape is no news."""

    return Handler


class MetricsServer:
    """Serves until it is stopped. `address`: host:port; port 0 means any that is free. Raises OSError when it can't be had."""

    def __init__(self, address: str, registries: Mapping[str, CollectorRegistry]) -> None:
        host, _, port = address.rpartition(":")
        server = _Server6 if host.startswith("[") else _Server
        self._server = server((host.strip("[]"), int(port)), _handler(registries))
        self.url = f"http://{host}:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.2}, name="metrics", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Answer nobody any more."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(timeout=5)
