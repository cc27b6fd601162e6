"""The open connections of a server: how many there are, and which of them wait for a request."""

from __future__ import annotations

import resource
import socket
import threading
from contextlib import suppress

RESERVED_FILES = 100
"""Open files that connections leave for everything else."""
BUSY_ANSWER = (
    b"HTTP/1.1 503 Service Unavailable\r\nContent-Type: text/plain; charset=utf-8\r\n"
    b"Content-Length: 21\r\nRetry-After: 1\r\nConnection: close\r\n\r\ntoo many connections\n"
)


class Connections:
    """Admits connections up to a limit; a client that sends no request makes way for others.

    A connection is known by its file's number until it is removed. Any thread may call.
    """

    def __init__(self, limit: int) -> None:
        files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        self.limit = limit
        if files != resource.RLIM_INFINITY:
            self.limit = max(4, min(limit, files - RESERVED_FILES))
        self._lock = threading.Lock()
        self._waiting: dict[int, socket.socket] = {}  # the one that waits longest comes first
        self._busy: dict[int, socket.socket] = {}

    def admit(self, connection: socket.socket) -> bool:
        """Count a connection that waits for a request.

        If there are too many, the one that has waited longest is cut. Returns False if all of them
        have requests.
        """
        with self._lock:
            if len(self._waiting) + len(self._busy) >= self.limit:
                if not self._waiting:
                    return False
                oldest = self._waiting.pop(next(iter(self._waiting)))
                with suppress(OSError):
                    # That of SSLSocket would change an object that another thread reads from.
                    socket.socket.shutdown(oldest, socket.SHUT_RDWR)
            self._waiting[connection.fileno()] = connection
            return True

    def begin_request(self, file: int) -> None:
        """Note that a connection has sent a request."""
        with self._lock:
            if (connection := self._waiting.pop(file, None)) is not None:
                self._busy[file] = connection

    def end_request(self, file: int) -> None:
        """Note that a connection waits for its next request."""
        with self._lock:
            if (connection := self._busy.pop(file, None)) is not None:
                self._waiting[file] = connection

    def remove(self, file: int) -> None:
        """Forget a connection that is about to be closed."""
        with self._lock:
            self._waiting.pop(file, None)
            self._busy.pop(file, None)


def refuse(connection: socket.socket, is_tls: bool) -> None:
    """Close a connection that was not admitted, without waiting for its client.

    A client that speaks TLS gets no answer: a handshake would cost more than a request.
    """
    with suppress(OSError):
        connection.setblocking(False)
        if not is_tls:
            connection.send(BUSY_ANSWER)
            connection.shutdown(socket.SHUT_WR)
            with suppress(BlockingIOError):
                connection.recv(65_536)  # what is unread would take the answer away
    connection.close()
