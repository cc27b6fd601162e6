"""A small HTTP server for programs that only read: one function answers each GET."""

from __future__ import annotations

import io
import logging
import socket
import socketserver
import ssl
import threading
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from http import HTTPStatus
from http.client import HTTPException
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from lb_stream.contracts.servers import ServerSettings
from lb_stream.io.local.connections import Connections, refuse
from lb_stream.io.local.tls import ServerTls

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer, WriteableBuffer

logger = logging.getLogger(__name__)

TEXT = "text/plain; charset=utf-8"
MAX_HEAD_BYTES = 16 << 10
"""The longest request: its first line and its headers."""
MAX_ANSWER_S = 30.0
"""How long a client may take to receive an answer."""


class HttpAnswer(NamedTuple):
    """The answer to a request. `kind`: its content type."""

    status: int
    kind: str
    content: bytes


Respond = Callable[[str], HttpAnswer]
"""Returns the answer for a request's path with its query.

It is called from many threads. An exception is answered with status 500.
"""


@dataclass(frozen=True, slots=True)
class _Rules:
    """How a server answers. `open_paths`: paths that need no client certificate."""

    respond: Respond
    head_s: float
    idle_s: float
    tls: ServerTls | None
    open_paths: Collection[str]


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def __init__(self, address: tuple[str, int], rules: _Rules, limit: int) -> None:
        self.rules, self.connections = rules, Connections(limit)
        super().__init__(address, _Handler)

    def server_bind(self) -> None:
        """Bind the port without looking this machine's name up.

        The look-up takes seconds if no name server answers.
        """
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = self.server_address[:2]  # type: ignore[assignment]

    def get_request(self) -> tuple[socket.socket, Any]:
        """Accept a connection; its own thread does the handshake."""
        connection, address = self.socket.accept()
        if self.rules.tls is None:
            return connection, address
        try:
            context = self.rules.tls.current_context()
            wrapped = context.wrap_socket(
                connection, server_side=True, do_handshake_on_connect=False
            )
        except OSError:
            connection.close()  # the client has gone
            raise
        return wrapped, address

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answer a connection in a thread of its own, unless there are too many."""
        if self.connections.admit(request):
            super().process_request(request, client_address)
        else:
            refuse(request, self.rules.tls is not None)

    def shutdown_request(self, request: Any) -> None:
        """Close a connection."""
        self.connections.remove(request.fileno())
        super().shutdown_request(request)

    def handle_error(self, request: object, client_address: object) -> None:
        """Log an error only for debugging: clients may go away before they have their answer."""
        logger.debug("a request of %s failed", client_address, exc_info=True)


class _Server6(_Server):
    address_family = socket.AF_INET6


class _HeadTooLarge(HTTPException):
    """A request is longer than MAX_HEAD_BYTES. http.server answers with status 431."""

    def __init__(self) -> None:
        super().__init__(f"expected at most {MAX_HEAD_BYTES} bytes")


class _RequestReader(io.RawIOBase):
    """What a client sends: each request has a limit of bytes, and of time however slowly it comes.

    Raises TimeoutError, _HeadTooLarge.
    """

    def __init__(self, connection: socket.socket, rules: _Rules) -> None:
        self._connection, self._rules = connection, rules
        self._bytes_left, self._until_s, self._has_begun = 0, 0.0, False

    def expect_request(self, is_first: bool) -> None:
        """Wait for a request; the first one of a connection must begin at once."""
        self._bytes_left, self._has_begun = MAX_HEAD_BYTES, is_first
        wait_s = self._rules.head_s if is_first else self._rules.idle_s
        self._until_s = time.monotonic() + wait_s

    def readable(self) -> bool:
        """Return True."""
        return True

    def readinto(self, buffer: WriteableBuffer) -> int:
        """Receive some bytes."""
        if self._bytes_left <= 0:
            raise _HeadTooLarge
        _limit_time(self._connection, self._until_s)
        with memoryview(buffer) as view, view[: self._bytes_left] as part:
            count = self._connection.recv_into(part)
        self._bytes_left -= count
        if count and not self._has_begun:
            self._has_begun, self._until_s = True, time.monotonic() + self._rules.head_s
        return count


class _AnswerWriter(io.BufferedIOBase):
    """Sends an answer within MAX_ANSWER_S, however slowly the client takes it."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection

    def writable(self) -> bool:
        """Return True."""
        return True

    def write(self, content: ReadableBuffer) -> int:
        """Send all bytes. Raises TimeoutError."""
        until_s = time.monotonic() + MAX_ANSWER_S
        with memoryview(content) as view:
            sent = 0
            while sent < len(view):
                _limit_time(self._connection, until_s)
                sent += self._connection.send(view[sent:])
            return sent


def _limit_time(connection: socket.socket, until_s: float) -> None:
    """Set how long the next call on a connection may take. Raises TimeoutError."""
    left_s = until_s - time.monotonic()
    if left_s <= 0:
        raise TimeoutError
    connection.settimeout(left_s)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"  # connections stay open: a client asks often
    error_content_type = TEXT
    error_message_format = "%(code)d %(message)s\n"

    @property
    def _rules(self) -> _Rules:
        return cast("_Server", self.server).rules

    def setup(self) -> None:
        """Do the TLS handshake."""
        self.connection, self._is_first = self.request, True
        # Otherwise head and content would wait 40 ms for each other.
        self.connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, True)
        if isinstance(self.connection, ssl.SSLSocket):
            self.connection.settimeout(self._rules.head_s)
            self.connection.do_handshake()
        self._reader = _RequestReader(self.connection, self._rules)
        self.rfile = io.BufferedReader(self._reader)
        self.wfile = _AnswerWriter(self.connection)

    def handle_one_request(self) -> None:
        """Read and answer a request."""
        connections = cast("_Server", self.server).connections
        self._reader.expect_request(self._is_first)
        self._is_first = False
        try:
            super().handle_one_request()
        except _HeadTooLarge as error:  # in the first line
            self.command, self.requestline, self.request_version = "", "", self.protocol_version
            self.send_error(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, str(error))
            self.close_connection = True
        connections.end_request(self.connection.fileno())

    def do_GET(self) -> None:
        """Answer a GET."""
        cast("_Server", self.server).connections.begin_request(self.connection.fileno())
        if "Transfer-Encoding" in self.headers or self.headers.get("Content-Length", "0") != "0":
            self.close_connection = True  # what follows is not read
            answer = HttpAnswer(413, TEXT, b"expected a request without a body\n")
        elif self._lacks_certificate():
            answer = HttpAnswer(403, TEXT, b"expected a client certificate\n")
        else:
            answer = self._respond()
        self.send_response(answer.status)
        self.send_header("Content-Type", answer.kind)
        self.send_header("Content-Length", str(len(answer.content)))
        self.send_header("X-Content-Type-Options", "nosniff")
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(answer.content)

    def _respond(self) -> HttpAnswer:
        try:
            return self._rules.respond(self.path)
        except Exception as error:
            logger.warning("%s could not be answered", self.path, exc_info=True)
            return HttpAnswer(500, TEXT, f"{type(error).__name__}: {error}\n".encode())

    def _lacks_certificate(self) -> bool:
        tls = self._rules.tls
        if tls is None or not tls.client_ca:
            return False
        path = self.path.partition("?")[0].rstrip("/")
        assert isinstance(self.connection, ssl.SSLSocket)
        return path not in self._rules.open_paths and not self.connection.getpeercert()

    def version_string(self) -> str:
        """Return the header Server, which names no version."""
        return "lb_stream"

    def log_message(self, format: str, *arguments: object) -> None:
        """Log no request."""


class HttpServer:
    """A server that runs until it is stopped.

    `address`: host:port; port 0 means any free one. `open_paths`: paths that need no certificate
    where clients must have one. Raises OSError if the address is not available.
    """

    def __init__(
        self,
        address: str,
        respond: Respond,
        settings: ServerSettings | None = None,
        tls: ServerTls | None = None,
        open_paths: Collection[str] = (),
    ) -> None:
        settings = settings or ServerSettings()
        rules = _Rules(
            respond,
            settings.head_timeout_ms / 1000,
            settings.idle_timeout_ms / 1000,
            tls,
            open_paths,
        )
        host, _, port = address.rpartition(":")
        server = _Server6 if host.startswith("[") else _Server
        self._server = server((host.strip("[]"), int(port)), rules, settings.max_connections)
        scheme = "http" if tls is None else "https"
        self.url = f"{scheme}://{host}:{self._server.server_address[1]}"
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
