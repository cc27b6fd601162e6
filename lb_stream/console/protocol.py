"""Limits on the console's connections, below its application: how many, how slow, how large."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

from lb_stream.io.local.connections import Connections, refuse
from lb_stream.io.local.http_server import MAX_ANSWER_S
from lb_stream.io.local.tls import ServerTls


class _Accepted(socket.socket):
    """A connection that is counted until it is closed."""

    connections: Connections

    def close(self) -> None:
        """Close it."""
        self.connections.remove(self.fileno())
        super().close()


class LimitedSocket(socket.socket):
    """A listening socket that admits connections up to a limit, with the certificate of now."""

    def __init__(self, listening: socket.socket, connections: Connections, tls: ServerTls | None):
        super().__init__(fileno=listening.detach())
        self._connections, self._tls = connections, tls

    def accept(self) -> tuple[socket.socket, Any]:
        """Accept a connection. Raises ConnectionAbortedError if there are too many."""
        connection, address = super().accept()
        if self._tls is not None:
            self._tls.current_context()  # the event loop has the same object
        if not self._connections.admit(accepted := _Accepted(fileno=connection.detach())):
            socket.socket.setblocking(accepted, False)
            accepted.connections = self._connections
            refuse(accepted, self._tls is not None)
            raise ConnectionAbortedError
        accepted.connections = self._connections
        return accepted, address


class LimitedProtocol(H11Protocol):
    """uvicorn's protocol with limits. `head_s`: the time until a request's headers end."""

    admitted: Connections
    head_s: float
    _file = -1
    _head_timer: asyncio.TimerHandle | None = None
    _answer_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for the first request."""
        super().connection_made(transport)
        self._file = transport.get_extra_info("socket").fileno()
        self._wait_for_head()

    def data_received(self, data: bytes) -> None:
        """Take a part of a request."""
        super().data_received(data)
        if self._has_request():
            self._stop_waiting()
            self.admitted.begin_request(self._file)
        else:
            self._wait_for_head()

    def on_response_complete(self) -> None:
        """Wait for the next request, unless it is there."""
        super().on_response_complete()
        if not self._has_request():
            self.admitted.end_request(self._file)

    def timeout_keep_alive_handler(self) -> None:
        """Close an idle connection, even if its client doesn't take what was sent to it."""
        super().timeout_keep_alive_handler()
        self.loop.call_later(MAX_ANSWER_S, self.transport.abort)

    def pause_writing(self) -> None:
        """Wait for a client that takes its answer slowly, for a while."""
        super().pause_writing()
        self._answer_timer = self.loop.call_later(MAX_ANSWER_S, self.transport.abort)

    def resume_writing(self) -> None:
        """Go on with an answer."""
        super().resume_writing()
        if self._answer_timer is not None:
            self._answer_timer.cancel()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        self._stop_waiting()
        if self._answer_timer is not None:
            self._answer_timer.cancel()
        super().connection_lost(exc)

    def _has_request(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _wait_for_head(self) -> None:
        if self._head_timer is None and not self.transport.is_closing():
            self._head_timer = self.loop.call_later(self.head_s, self.transport.abort)

    def _stop_waiting(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None


def limited_protocol(connections: Connections, head_s: float) -> type[asyncio.Protocol]:
    """Return the protocol of one server."""
    return type("Protocol", (LimitedProtocol,), {"admitted": connections, "head_s": head_s})
