"""Whether anything listens where Kafka should be.

Kafka's client would only wait, and its import takes longer than the answer.
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


def unanswered(bootstrap: str) -> str | None:
    """Why nobody answers, server by server; None where one of them does."""
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
    """Why nobody listens there; empty: somebody does. A name may take long to be looked up."""
    host, _, port = server.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=CONNECTING_S).close()
    except (OSError, OverflowError) as error:
        return getattr(error, "strerror", None) or str(error)
    return ""
