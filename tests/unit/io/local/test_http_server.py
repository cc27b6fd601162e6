"""The small server: whoever is slow, huge or many takes no other client's answer away."""

from __future__ import annotations

import http.client
import logging
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from lb_stream.contracts.keys import SettingError
from lb_stream.contracts.servers import LookupSettings
from lb_stream.io.local.http_server import MAX_HEAD_BYTES, TEXT, HttpAnswer, HttpServer
from lb_stream.io.local.tls import ServerTls, describe_plain
from tests.support.certificates import KEY_PASSWORD, Authority
from tests.support.raw_clients import PATIENCE_S, connect, port_of
from tests.support.wordings import check_wording

Start = Callable[..., HttpServer]


def echo(path: str) -> HttpAnswer:
    return HttpAnswer(200, TEXT, path.encode())


@pytest.fixture
def start() -> Iterator[Start]:
    """Starts servers: `start(respond, max_connections=…)`; all are stopped at the end."""
    servers: list[HttpServer] = []

    def begin(respond: Callable[[str], HttpAnswer] = echo, **settings: object) -> HttpServer:
        given = LookupSettings.model_validate(settings)
        tls = ServerTls.load("lookup", given)
        servers.append(HttpServer("127.0.0.1:0", respond, given, tls, ("/health",)))
        return servers[-1]

    yield begin
    for server in servers:
        server.stop()


def ask(server: HttpServer, path: str = "/a", context: ssl.SSLContext | None = None) -> int:
    made = (
        http.client.HTTPConnection("127.0.0.1", port_of(server), timeout=PATIENCE_S)
        if context is None
        else http.client.HTTPSConnection(
            "127.0.0.1", port_of(server), timeout=PATIENCE_S, context=context
        )
    )
    try:
        made.request("GET", path)
        answer = made.getresponse()
        answer.read()
        return answer.status
    finally:
        made.close()


def read_all(connection: socket.socket) -> bytes:
    """Return what a server sends until it closes the connection."""
    received = b""
    with suppress(ConnectionResetError):
        while part := connection.recv(65_536):
            received += part
    return received


# --- limits ---


@pytest.mark.parametrize(
    "head",
    [
        b"GET /" + b"x" * MAX_HEAD_BYTES,
        b"GET / HTTP/1.1\r\nX: " + b"x" * MAX_HEAD_BYTES,
        b"GET / HTTP/1.1\r\n" + b"X: y\r\n" * (MAX_HEAD_BYTES // 6 + 1),
    ],
)
def test_a_huge_request_is_refused_and_others_are_served(start: Start, head: bytes) -> None:
    server = start()
    huge = connect(server, head)
    assert read_all(huge).startswith(b"HTTP/1.1 431 ")
    assert ask(server) == 200
    huge.close()


def test_a_request_with_a_body_is_refused_and_the_body_is_no_second_request(start: Start) -> None:
    asked: list[str] = []
    server = start(lambda path: asked.append(path) or echo(path))  # type: ignore[func-returns-value]
    for header in (b"Content-Length: 30", b"Transfer-Encoding: chunked"):
        sent = b"GET / HTTP/1.1\r\n" + header + b"\r\n\r\nGET /hidden HTTP/1.1\r\n\r\n"
        with connect(server, sent) as connection:
            assert read_all(connection).startswith(b"HTTP/1.1 413 ")
    assert asked == []


def test_a_client_that_sends_its_request_byte_by_byte_is_cut(start: Start) -> None:
    server = start(head_timeout_ms=300)
    slow = connect(server)
    with suppress(OSError):
        for _ in range(PATIENCE_S * 20):  # each byte comes long before a timeout of its own
            slow.send(b"X")
            if (ended := _has_ended(slow)) is not None:
                break
    assert ended is True
    assert ask(server) == 200


def _has_ended(connection: socket.socket) -> bool | None:
    """Wait a moment; return whether the server has closed a connection, None while it has not."""
    connection.settimeout(0.05)
    try:
        return connection.recv(1) == b""
    except TimeoutError:
        return None
    except ConnectionResetError:
        return True


def test_an_idle_connection_is_closed_and_may_be_used_until_then(start: Start) -> None:
    server = start(idle_timeout_ms=500)
    made = http.client.HTTPConnection("127.0.0.1", port_of(server), timeout=PATIENCE_S)
    for _ in range(3):
        made.request("GET", "/again")
        assert made.getresponse().read() == b"/again"
    assert made.sock.recv(1) == b"", "closed by the server"
    made.close()


def test_clients_that_send_nothing_make_way_for_those_that_ask(start: Start) -> None:
    server = start(max_connections=8)
    silent = [connect(server) for _ in range(40)]
    assert [ask(server) for _ in range(20)] == [200] * 20
    assert silent[0].recv(1) == b"", "the one that has waited longest was closed"
    for connection in silent:
        connection.close()


def test_when_all_connections_have_requests_a_further_one_is_answered_503(start: Start) -> None:
    release, begun = threading.Event(), threading.Semaphore(0)

    def hold(path: str) -> HttpAnswer:
        begun.release()
        release.wait(PATIENCE_S)
        return echo(path)

    server = start(hold, max_connections=4)
    request = b"GET / HTTP/1.1\r\n\r\n"
    busy = [connect(server, request) for _ in range(4)]
    for _ in busy:
        assert begun.acquire(timeout=PATIENCE_S)
    with connect(server) as refused:
        assert read_all(refused).startswith(b"HTTP/1.1 503 ")
    release.set()
    assert [connection.recv(12) for connection in busy] == [b"HTTP/1.1 200"] * 4
    for connection in busy:
        connection.close()
    _wait_until(lambda: ask(server) == 200)


def _wait_until(holds: Callable[[], bool]) -> None:
    until_s = time.monotonic() + PATIENCE_S
    while True:
        with suppress(OSError, http.client.HTTPException):
            if holds():
                return
        assert time.monotonic() < until_s
        time.sleep(0.02)


def test_an_answer_names_no_version_and_is_no_other_type(start: Start) -> None:
    with connect(start(), b"GET / HTTP/1.1\r\nConnection: close\r\n\r\n") as connection:
        head = read_all(connection).partition(b"\r\n\r\n")[0].decode()
    assert "Server: lb_stream\r\n" in head and "X-Content-Type-Options: nosniff" in head
    assert "Python" not in head


# --- TLS ---


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("tls") / "ca")


def trusting(authority: Authority, client: str | None = None) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(authority.certificate))
    if client is not None:
        signed = authority.sign(client)
        context.load_cert_chain(signed.chain, signed.key, KEY_PASSWORD)
    return context


@pytest.fixture(scope="module")
def signed(authority: Authority) -> dict[str, object]:
    """The settings of a certificate."""
    made = authority.sign("server")
    return {
        "tls_cert": str(made.chain),
        "tls_key": str(made.key),
        "tls_passphrase": KEY_PASSWORD,
    }


def test_a_server_with_a_certificate_speaks_tls_and_nothing_older_than_1_2(
    start: Start, authority: Authority, signed: dict[str, object]
) -> None:
    server = start(**signed)
    assert server.url.startswith("https://")
    assert ask(server, context=trusting(authority)) == 200
    with connect(server, b"GET / HTTP/1.1\r\n\r\n") as plain:
        assert not read_all(plain).startswith(b"HTTP/")
    old = trusting(authority)
    old.set_ciphers("ALL:@SECLEVEL=0")
    with pytest.warns(DeprecationWarning):
        old.minimum_version, old.maximum_version = ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1
    with pytest.raises(OSError):
        ask(server, context=old)


def test_a_client_without_a_handshake_is_cut_and_others_are_served(
    start: Start, authority: Authority, signed: dict[str, object]
) -> None:
    server = start(**signed, head_timeout_ms=300, max_connections=4)
    silent = [connect(server) for _ in range(12)]
    assert ask(server, context=trusting(authority)) == 200
    assert [read_all(connection) for connection in silent] == [b""] * 12


def test_a_new_certificate_counts_without_a_restart_and_a_broken_one_does_not(
    start: Start, authority: Authority, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    files = tmp_path / "server.pem", tmp_path / "server.key"

    def put(name: str) -> None:
        made = authority.sign(name)
        for file, part in zip(files, (made.chain, made.key), strict=True):
            file.write_bytes(part.read_bytes() + b"\n" * len(name))  # another size each time

    def served_name() -> str:
        with trusting(authority).wrap_socket(connect(server), server_hostname="127.0.0.1") as made:
            subject = dict(part[0] for part in made.getpeercert()["subject"])
        return str(subject["commonName"])

    put("old")
    server = start(tls_cert=str(files[0]), tls_key=str(files[1]), tls_passphrase=KEY_PASSWORD)
    assert served_name() == "old"
    files[0].write_bytes(authority.sign("half").chain.read_bytes())  # its key has not come yet
    assert served_name() == "old"
    with caplog.at_level(logging.ERROR):
        files[0].write_text("damaged")
        assert served_name() == "old"
    assert "still counts" in caplog.text and KEY_PASSWORD not in caplog.text
    put("renewed")
    assert served_name() == "renewed"


def test_with_client_authorities_only_their_certificates_read_more_than_health(
    start: Start, authority: Authority, signed: dict[str, object], tmp_path: Path
) -> None:
    server = start(**signed, client_ca=str(authority.certificate))
    without = trusting(authority)
    paths = ("/health", "/a", "/health/../a", "/health?x")
    assert [ask(server, path, without) for path in paths] == [200, 403, 403, 200]
    assert ask(server, "/a", trusting(authority, "reader")) == 200
    foreign = Authority(tmp_path / "foreign").sign("reader")
    without.load_cert_chain(foreign.chain, foreign.key, KEY_PASSWORD)
    with pytest.raises(OSError):
        ask(server, "/health", without)


@pytest.mark.parametrize(
    "change",
    [
        {"tls_cert": "missing.pem"},
        {"tls_cert": ""},
        {"tls_key": "missing.key"},
        {"tls_passphrase": "wrong-passphrase"},
        {"tls_passphrase": ""},
        {"client_ca": "missing.pem"},
    ],
    ids=lambda change: "-".join(map(str, *change.items())),
)
def test_files_that_make_no_certificate_are_a_wrong_setting(
    signed: dict[str, object], change: dict[str, str]
) -> None:
    given = LookupSettings.model_validate(signed | change)
    with pytest.raises(SettingError) as raised:
        ServerTls.load("lookup", given)
    check_wording(raised.value)
    assert "wrong-passphrase" not in str(raised.value)


@pytest.mark.parametrize(
    ("address", "warned"),
    [("127.0.0.1:1", False), ("[::1]:1", False), ("0.0.0.0:1", True), ("10.0.0.5:1", True)],
)
def test_plain_http_is_warned_of_where_other_machines_reach_it(
    signed: dict[str, object], address: str, warned: bool
) -> None:
    assert bool(describe_plain("lookup", address, None)) is warned
    tls = ServerTls.load("lookup", LookupSettings.model_validate(signed))
    assert describe_plain("lookup", address, tls) == ""
