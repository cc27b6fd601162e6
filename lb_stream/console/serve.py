"""The console as a server: listens on an address until it is stopped."""

from __future__ import annotations

import logging
import os
import socket
import threading
from contextlib import suppress

import uvicorn

from lb_stream.console.address import LOCAL_NAMES
from lb_stream.console.app import build_console
from lb_stream.console.auth.visitor import READ_ONLY, Access
from lb_stream.console.protocol import LimitedSocket, limited_protocol
from lb_stream.console.sending import SendCommand
from lb_stream.console.sources.live import ClientOptions, PublishRow, TopicFollower
from lb_stream.console.sources.reader import Reader
from lb_stream.contracts.servers import ConsoleSettings
from lb_stream.io.local.connections import Connections
from lb_stream.io.local.http_server import MAX_HEAD_BYTES
from lb_stream.io.local.tls import ServerTls

NICENESS = 10
STOP_S = 2
"""Time for requests to end when the server stops; streams of open pages are cut."""


def lower_priority() -> None:
    """Lower this process's priority, so that a job on the same machine comes first."""
    with suppress(OSError):  # containers may forbid it
        os.nice(NICENESS)


class ConsoleServer:
    """A server that runs from its creation on.

    `names`: host names that it answers to beside this machine's own. `follow`: a Kafka client's
    options, the topics of decisions and of results; None: no topic is followed. `access` and `send`
    say who may send commands, and how. `publish` sends an entry to open pages. `tls` None: plain
    HTTP.

    Raises OSError, ValueError or OverflowError when it can't listen on the address.
    """

    def __init__(
        self,
        address: str,
        reader: Reader,
        names: tuple[str, ...],
        follow: tuple[ClientOptions, str, str] | None,
        access: Access = READ_ONLY,
        send: SendCommand | None = None,
        settings: ConsoleSettings | None = None,
        tls: ServerTls | None = None,
    ) -> None:
        settings = settings or ConsoleSettings()
        host, _, port = address.rpartition(":")
        family = socket.AF_INET6 if host.startswith("[") else socket.AF_INET
        listening = socket.create_server((host.strip("[]"), int(port)), family=family, backlog=256)
        scheme = "http" if tls is None else "https"
        self.url = f"{scheme}://{host}:{listening.getsockname()[1]}"
        all_names = (*LOCAL_NAMES, host.lower(), *(name.lower() for name in names))
        head_s = settings.head_timeout_ms / 1000
        app = build_console(reader, all_names, access, send)
        app.state.body_timeout_s = head_s
        connections = Connections(settings.max_connections)
        logging.getLogger("uvicorn.error").setLevel(logging.ERROR)  # it warns of each bad request
        # A proxy's headers are ignored: any client that reaches this address could send them.
        config = uvicorn.Config(
            app,
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            timeout_keep_alive=settings.idle_timeout_ms / 1000,  # type: ignore[arg-type]
            timeout_graceful_shutdown=STOP_S,
            lifespan="off",
            loop="asyncio",
            http=limited_protocol(connections, head_s),
            h11_max_incomplete_event_size=MAX_HEAD_BYTES,
            ssl_context_factory=None if tls is None else lambda *_: tls.current_context(),
        )
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(
            target=self._server.run,
            kwargs={"sockets": [LimitedSocket(listening, connections, tls)]},
            name="console",
            daemon=True,
        )
        self._thread.start()
        self.publish: PublishRow = app.state.hub.publish
        self._follower = None if follow is None else TopicFollower(*follow, self.publish)
        if self._follower is not None:
            self._follower.start()

    def stop(self) -> None:
        """Stop following topics and answering requests."""
        if self._follower is not None:
            self._follower.stop()
        self._server.should_exit = True
        self._thread.join(timeout=STOP_S + 5)
