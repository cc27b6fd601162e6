"""Calls to the admin API: what is repeated and what isn't, how long they take, whom they trust,
whom they show a token."""

from __future__ import annotations

import http.server
import shutil
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lb_stream.agent.pulsar.admin import AdminClient, AdminError, AdminSettings
from tests.pulsar.fake_cluster import NAMESPACE, Call, FakeCluster, Reply, fake_cluster
from tests.support.wordings import check_wording

READY = "/admin/v2/brokers/ready"
BUSY_S = 20.0
"""What a busy machine may add to a time-out; the answers that are waited for would take a
minute."""
UNLOAD = f"/admin/v2/namespaces/{NAMESPACE}/0x00000000_0x40000000/unload"


@pytest.fixture
def cluster() -> Iterator[FakeCluster]:
    with fake_cluster() as started:
        yield started


@pytest.fixture
def pauses() -> list[float]:
    return []


def client(
    cluster: FakeCluster, pauses: list[float] | None = None, number: int = 0, **settings: Any
) -> AdminClient:
    kept = [] if pauses is None else pauses
    return AdminClient(
        AdminSettings(f"http://{cluster.names[number]}", **settings), sleep=kept.append
    )


# --- settings ---


@pytest.mark.parametrize(
    "url",
    [
        "broker:8080",
        "ftp://b:1",
        "http://",
        "http://b:x",
        "http://b:99999",
        "http://b:1/admin",
        "http://me@b:1",
    ],
)
def test_an_address_that_is_none_is_refused_with_the_form_it_should_have(url: str) -> None:
    with pytest.raises(ValueError, match=r"expected https?://HOST:PORT or"):
        AdminSettings(url)


@pytest.mark.parametrize(
    ("url", "broker"),
    [
        ("http://b-1:8080", "b-1:8080"),
        ("http://b-1/", "b-1:80"),
        ("https://b-1", "b-1:443"),
        ("http://[::1]:8080", "[::1]:8080"),
    ],
)
def test_a_brokers_name_is_host_and_port_of_its_address(url: str, broker: str) -> None:
    assert AdminSettings(url).broker == broker


def test_contradictions_are_refused_and_a_token_is_not_shown() -> None:
    with pytest.raises(ValueError) as error:
        AdminSettings("http://b:1", token="t", token_file=Path("t"))
    check_wording(error.value)
    with pytest.raises(ValueError) as error:
        AdminSettings("https://b:1", key_file=Path("k.pem"))
    check_wording(error.value)
    with pytest.raises(ValueError, match="expected more than 0"):
        AdminSettings("http://b:1", read_timeout_s=0)
    assert "secret" not in repr(AdminSettings("http://b:1", token="secret"))


# --- repetition ---


@pytest.mark.parametrize("status", [429, 502, 503, 504])
def test_a_read_is_repeated_with_growing_pauses_while_the_trouble_passes(
    cluster: FakeCluster, pauses: list[float], status: int
) -> None:
    cluster.before = lambda call: (status, b"", {}) if len(cluster.calls) < 3 else None
    assert client(cluster, pauses).get(READY).status == 200
    assert (len(cluster.calls), pauses) == (3, [0.2, 0.4])


def test_a_read_is_given_up_after_its_attempts_with_the_last_answer(
    cluster: FakeCluster, pauses: list[float]
) -> None:
    cluster.before = lambda call: (503, {"reason": "starting"}, {})
    answer = client(cluster, pauses, attempts=2).get(READY)
    assert (answer.status, answer.reason, len(cluster.calls)) == (503, "starting", 2)


def test_what_pulsar_will_never_do_is_asked_for_once(
    cluster: FakeCluster, pauses: list[float]
) -> None:
    cluster.before = lambda call: (500, b"", {})
    assert client(cluster, pauses).get(READY).status == 500
    assert (len(cluster.calls), pauses) == (1, [])


def test_nobody_there_is_an_error_that_says_so_after_all_attempts(
    cluster: FakeCluster, pauses: list[float]
) -> None:
    cluster.stop(1)
    with pytest.raises(
        AdminError, match=rf"GET http://{cluster.names[1]}{READY}: Connection refused"
    ) as error:
        client(cluster, pauses, number=1).get(READY)
    assert (error.value.status, pauses) == (0, [0.2, 0.4])


@pytest.mark.parametrize("status", [429, 500, 503])
def test_a_change_is_never_repeated(cluster: FakeCluster, pauses: list[float], status: int) -> None:
    cluster.before = lambda call: (status, b"", {})
    assert client(cluster, pauses).put(UNLOAD).status == status
    assert (len(cluster.calls), pauses) == (1, [])


# --- time ---


def test_an_answer_that_does_not_come_is_waited_for_no_longer_than_allowed(
    cluster: FakeCluster,
) -> None:
    over = threading.Event()

    def hang(call: Call) -> Reply | None:
        over.wait(60)
        return None

    cluster.before = hang
    begun = time.monotonic()
    with pytest.raises(AdminError) as error:
        client(cluster, read_timeout_s=0.3, act_timeout_s=60).get(READY)
    check_wording(error.value)
    with pytest.raises(AdminError) as error:
        client(cluster, act_timeout_s=0.3, read_timeout_s=60).put(UNLOAD)
    check_wording(error.value)
    assert time.monotonic() - begun < BUSY_S
    over.set()


def test_an_answer_that_trickles_is_cut_off_too(cluster: FakeCluster) -> None:
    def drops() -> Iterator[bytes]:
        for _ in range(1200):
            yield b" "
            time.sleep(0.05)

    cluster.before = lambda call: (200, drops(), {})
    begun = time.monotonic()
    with pytest.raises(AdminError) as error:
        client(cluster, read_timeout_s=0.3).get(READY)
    check_wording(error.value)
    assert time.monotonic() - begun < BUSY_S


def test_redirects_do_not_prolong_the_time(cluster: FakeCluster) -> None:
    def slow_hops(call: Call) -> Reply | None:
        time.sleep(0.2)
        return 307, b"", {"Location": f"http://{cluster.names[(call.broker + 1) % 3]}{call.path}"}

    cluster.before = slow_hops
    with pytest.raises(AdminError) as error:
        client(cluster, act_timeout_s=0.5).put(UNLOAD)
    check_wording(error.value)
    assert len(cluster.calls) <= 3


# --- redirects ---


def test_method_body_and_token_go_along_with_a_redirect(cluster: FakeCluster) -> None:
    cluster.before = lambda call: (
        (307, b"", {"Location": f"http://{cluster.names[1]}{call.path}?authoritative=true"})
        if call.broker == 0
        else (204, b"", {})
    )
    answer = client(cluster, token="t0").put(
        UNLOAD, {"destinationBroker": cluster.names[2]}, [1, 2]
    )
    assert answer.hops == (f"http://{cluster.names[0]}", f"http://{cluster.names[1]}")
    first, second = cluster.calls
    assert first.query == {"destinationBroker": cluster.names[2]} and second.query == {
        "authoritative": "true"
    }
    assert all(
        (call.method, call.body, call.authorization) == ("PUT", [1, 2], "Bearer t0")
        for call in (first, second)
    )


def test_a_redirect_without_a_host_stays_with_the_same_broker(cluster: FakeCluster) -> None:
    cluster.before = lambda call: (307, b"", {"Location": READY}) if call.path != READY else None
    assert client(cluster).get("/admin/v2/elsewhere").body == b"ok"


@pytest.mark.parametrize("location", ["http://[", "http://broker-1:99999/x", "http://[::1"])
def test_a_redirect_to_what_is_no_address_is_told(cluster: FakeCluster, location: str) -> None:
    cluster.before = lambda call: (307, b"", {"Location": location})
    with pytest.raises(AdminError) as error:
        client(cluster).put(UNLOAD)
    check_wording(error.value)


def test_a_circle_of_redirects_ends(cluster: FakeCluster) -> None:
    cluster.before = lambda call: (
        307,
        b"",
        {"Location": f"http://{cluster.names[1 - call.broker]}{call.path}"},
    )
    with pytest.raises(AdminError) as error:
        client(cluster).put(UNLOAD)
    check_wording(error.value)
    assert len(cluster.calls) == 6


# --- tokens and their refusal ---


def test_a_token_file_is_read_again_for_every_call(cluster: FakeCluster, tmp_path: Path) -> None:
    file = tmp_path / "token"
    admin = client(cluster, token_file=file)
    with pytest.raises(AdminError) as error:
        admin.get(READY)
    check_wording(error.value)
    for text in ("first\n", "second\n"):
        file.write_text(text)
        admin.get(READY)
    file.write_text("\n")
    with pytest.raises(AdminError) as error:
        admin.get(READY)
    check_wording(error.value)
    assert [call.authorization for call in cluster.calls] == ["Bearer first", "Bearer second"]


@pytest.mark.parametrize(
    ("status", "advice"), [(401, "give a token"), (403, "must be a superuser")]
)
def test_who_may_not_ask_is_told_what_to_do(cluster: FakeCluster, status: int, advice: str) -> None:
    cluster.before = lambda call: (
        status,
        {"reason": "This operation requires super-user access"},
        {},
    )
    with pytest.raises(AdminError) as error:
        client(cluster).get_json("/admin/v2/tenants")
    check_wording(error.value)


def test_what_is_no_json_is_an_error_that_shows_it(cluster: FakeCluster) -> None:
    cluster.before = lambda call: (200, b"<html>\n<body>hello", {})
    with pytest.raises(AdminError, match="expected JSON, got '<html> <body>hello'"):
        client(cluster).get_json("/admin/v2/tenants")


# --- TLS ---


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a server's certificate for `localhost` (its own authority) and a client's, made
    for this run."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl is needed to make certificates")
    folder = tmp_path_factory.mktemp("certificates")
    for name, subject in (("server", "localhost"), ("client", "agent")):
        command = [
            "openssl",
            "req",
            "-x509",
            "-newkey",
            "rsa:2048",
            "-nodes",
            "-days",
            "2",
            "-subj",
            f"/CN={subject}",
        ]
        files = [
            "-addext",
            f"subjectAltName=DNS:{subject}",
            "-keyout",
            f"{name}.key",
            "-out",
            f"{name}.pem",
        ]
        subprocess.run([*command, *files], cwd=folder, check=True, capture_output=True, timeout=60)
    return folder


@pytest.fixture
def tls_port(certificates: Path) -> Iterator[int]:
    """A server that wants to see a client's certificate, and sends plain HTTP callers of /away
    somewhere less safe."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            away = self.path == "/away"
            self.send_response(307 if away else 200)
            if away:
                self.send_header("Location", "http://localhost:9/")
            self.end_headers()
            self.wfile.write(b"ok")

        def log_message(self, *_: Any) -> None:
            pass

    class Server(http.server.ThreadingHTTPServer):
        def handle_error(self, request: Any, client_address: Any) -> None:
            pass  # refused handshakes

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificates / "server.pem", certificates / "server.key")
    context.load_verify_locations(certificates / "client.pem")
    context.verify_mode = ssl.CERT_REQUIRED
    server = Server(("127.0.0.1", 0), Handler)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    threading.Thread(
        target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True
    ).start()
    yield server.server_port
    server.shutdown()
    server.server_close()


def tls(host: str, port: int, **settings: Any) -> AdminClient:
    return AdminClient(AdminSettings(f"https://{host}:{port}", attempts=1, **settings))


def test_both_sides_show_certificates(certificates: Path, tls_port: int) -> None:
    own = {"cert_file": certificates / "client.pem", "key_file": certificates / "client.key"}
    assert (
        tls("localhost", tls_port, ca_file=certificates / "server.pem", **own).get("/").body
        == b"ok"
    )
    with pytest.raises(AdminError, match="certificate verify failed"):
        tls("localhost", tls_port, **own).get("/")
    with pytest.raises(AdminError, match=r"(?i)certificate required|reset|closed|eof"):
        tls("localhost", tls_port, ca_file=certificates / "server.pem").get("/")


def test_a_certificate_must_be_of_the_host_unless_that_is_switched_off(
    certificates: Path, tls_port: int
) -> None:
    own = {
        "cert_file": certificates / "client.pem",
        "key_file": certificates / "client.key",
        "ca_file": certificates / "server.pem",
    }
    with pytest.raises(AdminError, match=r"not valid for '127\.0\.0\.1'"):
        tls("127.0.0.1", tls_port, **own).get("/")
    assert tls("127.0.0.1", tls_port, verify_hostname=False, **own).get("/").status == 200


def test_a_token_is_not_taken_from_https_to_http(certificates: Path, tls_port: int) -> None:
    own = {
        "cert_file": certificates / "client.pem",
        "key_file": certificates / "client.key",
        "ca_file": certificates / "server.pem",
    }
    with pytest.raises(AdminError, match="redirected to http://localhost:9, which is less safe"):
        tls("localhost", tls_port, **own).get("/away")


def test_files_that_are_no_certificates_are_named(tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_text("nonsense")
    for settings in ({"ca_file": tmp_path / "ca.pem"}, {"cert_file": tmp_path / "missing.pem"}):
        with pytest.raises(ValueError) as error:
            AdminClient(AdminSettings("https://b:1", **settings))
        check_wording(error.value)


def test_a_host_that_never_takes_the_connection_is_given_up_after_the_time_to_connect() -> None:
    with socket.socket() as full:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        port = full.getsockname()[1]
        waiting = [socket.socket() for _ in range(4)]
        for one in waiting:  # fill the queue, so that the next one isn't taken
            one.setblocking(False)
            one.connect_ex(("127.0.0.1", port))
        begun = time.monotonic()
        with pytest.raises(AdminError) as error:
            AdminClient(
                AdminSettings(
                    f"http://127.0.0.1:{port}", connect_timeout_s=0.3, read_timeout_s=60, attempts=1
                )
            ).get(READY)
        check_wording(error.value)
        assert time.monotonic() - begun < BUSY_S
        for one in waiting:
            one.close()
