"""A small HTTP server for programs that only read: one function answers each GET."""

from __future__ import annotations

import logging
import socket
import socketserver
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import NamedTuple

logger = logging.getLogger(__name__)

TEXT = "text/plain; charset=utf-8"


class HttpAnswer(NamedTuple):
    """The answer to a request. `kind`: its content type."""

    status: int
    kind: str
    content: bytes


Respond = Callable[[str], HttpAnswer]
"""Returns the answer for a request's path with its query.

It is called from many threads. An exception is answered with status 500.
"""


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def server_bind(self) -> None:
        """Bind the port without looking this machine's name up.

        The look-up takes seconds if no name server answers.
        """
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = self.server_address[:2]  # type: ignore[assignment]

    def handle_error(self, request: object, client_address: object) -> None:
        """Log an error only for debugging: clients may go away before they have their answer."""
        logger.debug("a request of %s failed", client_address, exc_info=True)


class _Server6(_Server):
    address_family = socket.AF_INET6


def _handler(respond: Respond) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        timeout = 10  # seconds of silence, then a connection is closed
        protocol_version = "HTTP/1.1"  # connections stay open: a client asks often
        disable_nagle_algorithm = True  # head and body would wait 40 ms for each other

        def do_GET(self) -> None:
            """Answer a GET."""
            try:
                answer = respond(self.path)
            except Exception as error:
                logger.warning("%s could not be answered", self.path, exc_info=True)
                answer = HttpAnswer(500, TEXT, f"{type(error).__name__}: {error}\n".encode())
            self.send_response(answer.status)
            self.send_header("Content-Type", answer.kind)
            self.send_header("Content-Length", str(len(answer.content)))
            self.end_headers()
            self.wfile.write(answer.content)

        def log_message(self, format: str, *arguments: object) -> None:
            """Log no request."""

    return Handler


class HttpServer:
    """A server that runs until it is stopped.

    `address`: host:port; port 0 means any free one. Raises OSError if it is not available.
    """

    def __init__(self, address: str, respond: Respond) -> None:
        host, _, port = address.rpartition(":")
        server = _Server6 if host.startswith("[") else _Server
        self._server = server((host.strip("[]"), int(port)), _handler(respond))
        self.url = f"http://{host}:{self._server.server_address[1]}"
        self._thread = threading.Thread(
            target=self._server.serve_forever,
            kwargs={"poll_interval": 0.2},
            name="http",
            daemon=True,
        )
        self._thread.start()

    def stop(self) -> None:
        """Close the port, and end the thread."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(timeout=5)
