"""Tests whether anything listens at Kafka's address.

Kafka's client would only wait, and its import takes longer than this test.
"""

from __future__ import annotations

import socket
import time
from contextlib import suppress
from queue import Empty, Queue
from threading import Thread

CONNECTING_S = 5.0
ASKING_S = 6.0
"""How long all servers together have to answer."""


def describe_unreachable(bootstrap: str) -> str | None:
    """Describe why no server answers, server by server; None if one of them does."""
    servers = bootstrap.split(",")
    found: Queue[tuple[int, str]] = Queue()
    for number, server in enumerate(servers):  # together: each may take its whole time to fail
        ask = Thread(
            target=lambda *given: found.put((given[0], _trouble_at(given[1]))),
            args=(number, server),
            daemon=True,
        )
        ask.start()
    reasons = dict.fromkeys(range(len(servers)), f"no answer within {ASKING_S:g} s")
    end = time.monotonic() + ASKING_S
    with suppress(Empty):
        for _ in servers:
            number, trouble = found.get(timeout=max(0.0, end - time.monotonic()))
            if not trouble:
                return None
            reasons[number] = trouble
    return "; ".join(f"{server}: {reasons[number]}" for number, server in enumerate(servers))


def _trouble_at(server: str) -> str:
    """Describe why nothing listens at a server; empty if something does. May take long."""
    host, _, port = server.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=CONNECTING_S).close()
    except (OSError, OverflowError) as error:
        return getattr(error, "strerror", None) or str(error)
    return ""
