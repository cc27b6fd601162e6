"""The console on an address, until it is stopped."""

from __future__ import annotations

import os
import socket
import threading
from contextlib import suppress
from typing import Any

import uvicorn

from lb_stream.console.acting import SendOrder
from lb_stream.console.address import LOCAL_NAMES
from lb_stream.console.app import console
from lb_stream.console.auth.visitor import NO_ACCESS, Access
from lb_stream.console.sources.live import PublishRow, TopicFollower
from lb_stream.console.sources.reader import Reader

KEEP_S = 20
"""A page asks every five seconds: its connection stays for that."""
NICE = 10
STOP_S = 2
"""Seconds in which requests may end; streams of open pages never end by themselves."""


def lower_priority() -> None:
    """Let this process have a core only while nobody else wants it much: what decides beside it
    comes before what is looked at."""
    with suppress(OSError):  # a container may forbid even that
        os.nice(NICE)


class ConsoleServer:
    """Serves from the moment on at which this is made.

    `names`: hosts that it answers to beside this machine's own.

    `tell` gives an entry to the open pages that want it. `follow`: the clients' options, the topics
    of decisions and of answers; None: nothing is live. `access`, `send`: who may act, and how.
    Raises OSError, ValueError or OverflowError when the address can't be had.
    """

    def __init__(
        self,
        address: str,
        reader: Reader,
        names: tuple[str, ...],
        follow: tuple[dict[str, Any], str, str] | None,
        access: Access = NO_ACCESS,
        send: SendOrder | None = None,
    ) -> None:
        host, _, port = address.rpartition(":")
        family = socket.AF_INET6 if host.startswith("[") else socket.AF_INET
        listening = socket.create_server((host.strip("[]"), int(port)), family=family, backlog=256)
        self.url = f"http://{host}:{listening.getsockname()[1]}"
        app = console(
            reader, (*LOCAL_NAMES, host.lower(), *(name.lower() for name in names)), access, send
        )
        # Headers of a proxy are not believed: whoever can reach this address could send them.
        config = uvicorn.Config(
            app,
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            timeout_keep_alive=KEEP_S,
            timeout_graceful_shutdown=STOP_S,
            lifespan="off",
        )
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(
            target=self._server.run, kwargs={"sockets": [listening]}, name="console", daemon=True
        )
        self._thread.start()
        self.publish: PublishRow = app.state.hub.publish
        self._follower = None if follow is None else TopicFollower(*follow, self.publish)
        if self._follower is not None:
            self._follower.start()

    def stop(self) -> None:
        """Answer nobody any more."""
        if self._follower is not None:
            self._follower.stop()
        self._server.should_exit = True
        self._thread.join(timeout=STOP_S + 5)
