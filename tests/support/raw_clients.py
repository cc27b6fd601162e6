"""Clients of servers that send bytes as they are, to try what no library would send."""

from __future__ import annotations

import socket
from typing import Protocol

PATIENCE_S = 60
"""How long such a client waits for an answer."""


class Listening(Protocol):
    """A server that has an address."""

    @property
    def url(self) -> str: ...


def port_of(server: Listening) -> int:
    """Return the port of a server on this machine."""
    return int(server.url.rpartition(":")[2])


def connect(server: Listening, sent: bytes = b"") -> socket.socket:
    """Connect to a server, and send it some bytes."""
    connection = socket.create_connection(("127.0.0.1", port_of(server)), timeout=PATIENCE_S)
    connection.sendall(sent)
    return connection
