"""The console's server: whoever is slow, huge or many takes no other visitor's page away."""

from __future__ import annotations

import http.client
import socket
import ssl
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from lb_stream.console.auth.users import user_lines
from lb_stream.console.auth.visitor import COOKIE, MAX_BODY_BYTES, Access
from lb_stream.console.serve import ConsoleServer
from lb_stream.console.sources.reader import Reader
from lb_stream.contracts.servers import ConsoleSettings
from lb_stream.io.local.http_server import MAX_HEAD_BYTES
from lb_stream.io.local.tls import ServerTls
from lb_stream.store import Store
from tests.support.certificates import KEY_PASSWORD, Authority, Certificate
from tests.support.raw_clients import PATIENCE_S, connect, port_of
from tests.unit.console.site import PASSWORD, fleet, settings_of

PAGE = "/static/console.css"
HEAD = b"GET /static/console.css HTTP/1.1\r\nHost: 127.0.0.1\r\n"
FORM = b"POST /login HTTP/1.1\r\nHost: 127.0.0.1\r\n" + (
    b"Content-Type: application/x-www-form-urlencoded\r\n"
)
Start = Callable[..., ConsoleServer]


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("serve") / "tables"
    fleet(folder)
    return folder


@pytest.fixture(scope="module")
def users(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("users") / "users.toml"
    path.write_text(user_lines("alice", PASSWORD, "operator", {}))
    return path


@pytest.fixture
def start(tables: Path, users: Path) -> Iterator[Start]:
    """Starts consoles: `start(max_connections=…)`; all are stopped at the end."""
    servers: list[ConsoleServer] = []

    def begin(**settings: object) -> ConsoleServer:
        given = ConsoleSettings.model_validate(settings)
        reader = Reader(Store.at(tables), settings_of(tables), None, clock=lambda: 0.0)
        servers.append(
            ConsoleServer(
                "127.0.0.1:0",
                reader,
                (),
                None,
                Access.load(users),
                lambda cluster, command: None,
                given,
                ServerTls.load("console", given),
            )
        )
        return servers[-1]

    yield begin
    for server in servers:
        server.stop()


def ask(
    server: ConsoleServer, path: str = PAGE, context: ssl.SSLContext | None = None
) -> http.client.HTTPResponse:
    made = (
        http.client.HTTPConnection("127.0.0.1", port_of(server), timeout=PATIENCE_S)
        if context is None
        else http.client.HTTPSConnection(
            "127.0.0.1", port_of(server), timeout=PATIENCE_S, context=context
        )
    )
    made.request("GET", path, headers={"Connection": "close"})
    answer = made.getresponse()
    answer.read()
    made.close()
    return answer


def read_all(connection: socket.socket) -> bytes:
    """Return what a server sends until it closes the connection."""
    received = b""
    with suppress(ConnectionResetError):
        while part := connection.recv(65_536):
            received += part
    return received


@pytest.mark.parametrize("head", [b"GET /" + b"x" * MAX_HEAD_BYTES * 2, HEAD + b"X: y\r\n" * 9_000])
def test_a_huge_request_is_refused_and_others_are_served(start: Start, head: bytes) -> None:
    server = start()
    with connect(server) as huge:
        with suppress(OSError):
            huge.sendall(head)
        assert read_all(huge)[:12] in (b"HTTP/1.1 400", b"")
    assert ask(server).status == 200


def test_a_client_that_sends_its_request_byte_by_byte_is_cut(start: Start) -> None:
    server = start(head_timeout_ms=300)
    slow = connect(server, HEAD)
    assert _is_cut_while_sending(slow, b"X")
    again = connect(server, HEAD + b"\r\n")
    assert again.recv(12) == b"HTTP/1.1 200"
    assert _is_cut_while_sending(again, b"G"), "its second request, too"
    assert ask(server).status == 200


def _is_cut_while_sending(connection: socket.socket, sent: bytes) -> bool:
    """Send a byte now and then; return whether the server closes the connection meanwhile."""
    until_s = time.monotonic() + PATIENCE_S
    connection.settimeout(0.05)
    while time.monotonic() < until_s:
        try:
            connection.send(sent)
            if connection.recv(65_536) == b"":
                return True
        except TimeoutError:
            continue
        except OSError:
            return True
    return False


def test_a_form_that_comes_slowly_or_is_too_large_is_refused(start: Start) -> None:
    server = start(head_timeout_ms=300)
    with connect(server, FORM + b"Content-Length: 9\r\n\r\nname=") as slow:
        assert read_all(slow).startswith(b"HTTP/1.1 408 ")
    large = FORM + b"Content-Length: %d\r\n\r\n" % (MAX_BODY_BYTES * 9) + b"x" * MAX_BODY_BYTES * 2
    with connect(server, large) as huge:
        assert huge.recv(13) == b"HTTP/1.1 413 "


def test_clients_that_send_nothing_make_way_for_those_that_ask(start: Start) -> None:
    server = start(max_connections=8)
    silent = [connect(server) for _ in range(40)]
    assert [ask(server).status for _ in range(20)] == [200] * 20
    assert silent[0].recv(1) == b"", "the one that has waited longest was closed"
    for connection in silent:
        connection.close()


def test_when_all_connections_have_requests_a_further_one_is_answered_503(start: Start) -> None:
    server = start(max_connections=4)
    stream = b"GET /events?cluster=eu-1 HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
    busy = [connect(server, stream) for _ in range(4)]
    assert [connection.recv(12) for connection in busy] == [b"HTTP/1.1 200"] * 4
    with connect(server) as refused:
        assert read_all(refused).startswith(b"HTTP/1.1 503 ")
    for connection in busy:
        connection.close()
    until_s, status = time.monotonic() + PATIENCE_S, 0
    while status != 200 and time.monotonic() < until_s:
        with suppress(OSError, http.client.HTTPException):
            status = ask(server).status
    assert status == 200


# --- TLS ---


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("tls") / "ca")


def given(certificate: Certificate) -> dict[str, object]:
    return {
        "tls_cert": str(certificate.chain),
        "tls_key": str(certificate.key),
        "tls_passphrase": KEY_PASSWORD,
    }


def test_over_tls_browsers_keep_to_it_and_the_cookie_is_secure(
    start: Start, authority: Authority
) -> None:
    server = start(**given(authority.sign("console")), head_timeout_ms=2_000, max_connections=8)
    context = ssl.create_default_context(cafile=str(authority.certificate))
    assert server.url.startswith("https://")
    silent = [connect(server) for _ in range(20)]  # without a handshake
    assert ask(server, context=context).headers["Strict-Transport-Security"]
    made = http.client.HTTPSConnection(
        "127.0.0.1", port_of(server), timeout=PATIENCE_S, context=context
    )
    made.request(
        "POST",
        "/login",
        f"name=alice&password={PASSWORD}".replace(" ", "+"),
        {"Content-Type": "application/x-www-form-urlencoded"},
    )
    answer = made.getresponse()
    made.close()
    assert answer.status == 303
    cookie = answer.headers["Set-Cookie"]
    assert cookie.startswith(f"{COOKIE}=") and "Secure" in cookie and "HttpOnly" in cookie
    assert not ask(start()).headers["Strict-Transport-Security"], "not over plain HTTP"
    for connection in silent:
        connection.close()


def test_a_new_certificate_counts_without_a_restart(
    start: Start, authority: Authority, tmp_path: Path
) -> None:
    file = tmp_path / "console.pem"

    def put(name: str) -> None:
        made = authority.sign(name)
        file.write_bytes(made.chain.read_bytes() + made.key.read_bytes() + b"\n" * len(name))

    def served_name() -> str:
        context = ssl.create_default_context(cafile=str(authority.certificate))
        with context.wrap_socket(connect(server), server_hostname="127.0.0.1") as made:
            subject = dict(part[0] for part in made.getpeercert()["subject"])
        return str(subject["commonName"])

    put("old")
    server = start(tls_cert=str(file), tls_passphrase=KEY_PASSWORD)
    assert served_name() == "old"
    put("renewed")
    assert served_name() == "renewed"
