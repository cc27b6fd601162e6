"""A real HTTP server on the loopback that keeps what it is sent, and answers as it is told."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass(frozen=True)
class Call:
    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def fields(self) -> Any:
        return json.loads(self.body)


Reply = Callable[[Call], tuple[int, bytes]]


@dataclass
class Webhook:
    """`reply`: status and body of the answer to a call, `headers`: its headers; `hold`: while it is
    set, answers wait for `release`."""

    port: int = 0
    calls: list[Call] = field(default_factory=list)
    reply: Reply = lambda _: (200, b"")
    headers: dict[str, str] = field(default_factory=dict)
    hold: bool = False
    release: threading.Event = field(default_factory=threading.Event)
    came: threading.Condition = field(default_factory=threading.Condition)

    def url(self, path: str = "/") -> str:
        return f"http://127.0.0.1:{self.port}{path}"

    def apprise(self, path: str = "/") -> str:
        """An address of Apprise's."""
        return f"json://127.0.0.1:{self.port}{path}"

    def wait_for(self, count: int, timeout_s: float = 300.0) -> list[Call]:
        """So many calls, once they have come."""
        with self.came:
            assert self.came.wait_for(lambda: len(self.calls) >= count, timeout_s), (
                f"{len(self.calls)} calls came, {count} were awaited"
            )
            return list(self.calls)


@contextmanager
def webhook() -> Iterator[Webhook]:
    made = Webhook()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            call = Call(
                self.path,
                dict(self.headers.items()),
                self.rfile.read(int(self.headers["Content-Length"])),
            )
            with made.came:
                made.calls.append(call)
                made.came.notify_all()
            if made.hold:
                made.release.wait(60)
            status, body = made.reply(call)
            self.send_response(status)
            for name, value in {**made.headers, "Content-Length": str(len(body))}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def do_GET(self) -> None:  # where a redirect leads
            with made.came:
                made.calls.append(Call(self.path, dict(self.headers.items()), b""))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: Any) -> None: ...

    class Server(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, *_: Any) -> None: ...  # somebody who didn't wait for the answer

    with Server(("127.0.0.1", 0), Handler) as server:
        made.port = server.server_address[1]
        thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        try:
            yield made
        finally:
            made.release.set()
            server.shutdown()
            thread.join()
