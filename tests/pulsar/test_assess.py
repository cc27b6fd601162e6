"""`lbctl assess pulsar`: it only reads, at its pace; answers that can't be used; missing brokers."""

from __future__ import annotations

import json
import shutil
import ssl
import subprocess
import time
from collections.abc import Iterator
from itertools import cycle
from pathlib import Path

import pytest

from lb_stream.agent.adapter import BrokerError
from lb_stream.agent.pulsar import admin
from lb_stream.agent.pulsar.admin import AdminSettings
from lb_stream.agent.pulsar.guard import RUNTIME
from lb_stream.agent.pulsar.recorder import Pace, ReadOnlyClient, record
from lb_stream.assess.recording import read_recording
from tests.pulsar.fake_cluster import PULSAR_CLUSTER, Call, FakeCluster, Reply, fake_cluster
from tests.support.assessed_cluster import UNEVEN, report
from tests.support.html_page import Page
from tests.support.lbctl_runner import Result, lbctl
from tests.support.wordings import check_wording

LOADS = list(UNEVEN.values())


@pytest.fixture
def cluster() -> Iterator[FakeCluster]:
    """Three brokers whose reports have the loads of UNEVEN."""
    with fake_cluster() as started:
        started.before = lambda call: uneven_report(started, call)
        yield started


def uneven_report(cluster: FakeCluster, call: Call) -> Reply | None:
    if not call.path.endswith("/load-report"):
        return None
    name = cluster.names[call.broker]
    line = report(name, LOADS[call.broker], lastUpdate=time.time_ns() // 1_000_000)
    return 200, json.dumps(json.loads(line)["report"]).encode(), {}


class CountingPace(Pace):
    """Counts the requests that it lets through, without waiting."""

    def __init__(self) -> None:
        super().__init__(1e6)
        self.count = 0

    def wait(self) -> None:
        self.count += 1


def client(cluster: FakeCluster, pace: Pace | None = None) -> ReadOnlyClient:
    return ReadOnlyClient(AdminSettings(f"http://{cluster.names[0]}"), pace or Pace(1e6))


def assess(cluster: FakeCluster, path: Path, *more: str) -> Result:
    url = f"http://{cluster.names[0]}"
    few = ("--minutes", "0", "--max-requests", "1000")
    return lbctl("assess", "pulsar", url, *few, *more, cwd=path)


# --- only reading, at a pace ---


def test_a_recording_makes_get_requests_only_each_at_the_pace(
    cluster: FakeCluster, tmp_path: Path
) -> None:
    lines: list[str] = []
    pace = CountingPace()
    found = record(client(cluster, pace), 0.01, 0.1, lines.append)
    assert {call.method for call in cluster.calls} == {"GET"}
    assert pace.count == len(cluster.calls)
    assert (found.cluster, found.brokers) == (PULSAR_CLUSTER, tuple(sorted(cluster.names)))
    path = tmp_path / "reports.jsonl"
    path.write_text("".join(lines))
    recording = read_recording(path)
    assert recording.cluster == PULSAR_CLUSTER
    assert set(recording.runtimes) == set(cluster.names)
    assert recording.silent == {}
    # 0.6 s, every tenth of a second: seven rounds of three brokers
    assert len(recording.reports) == 7 * 3


def test_a_pace_spaces_requests_evenly() -> None:
    now, sent = [100.0], []

    def sleep(seconds: float) -> None:
        now[0] += seconds

    pace = Pace(4.0, lambda: now[0], sleep)
    for _ in range(9):
        pace.wait()
        sent.append(now[0])
    assert sent == [100.0 + at / 4 for at in range(9)]
    now[0] += 10.0  # what was not used is not made up for
    pace.wait()
    pace.wait()
    assert now[0] == pytest.approx(112.25)


def test_a_client_that_only_reads_refuses_to_change_anything(cluster: FakeCluster) -> None:
    with pytest.raises(BrokerError, match="this client only reads"):
        client(cluster).put("/admin/v2/namespaces/shop/orders")
    assert cluster.calls == []


# --- the whole command ---


def test_the_page_of_a_cluster_shows_its_settings_and_can_be_made_again(
    cluster: FakeCluster, tmp_path: Path
) -> None:
    cluster.dynamic = {"loadBalancerSheddingExcludedNamespaces": "shop/oders"}
    done = assess(cluster, tmp_path, "--cluster", "eu-1")
    assert done.code == 0
    assert done.out.startswith("Uneven: the fullest broker is at 60%")
    shown = Page((tmp_path / "assessment.html").read_text())
    found = {row[0]: row[2] for row in shown.tables["settings"][1:]}
    assert found["excluded"].startswith("shop/oders is excluded, and no broker serves")
    assert "off" in found  # Pulsar's own shedding
    assert not cluster.acts()
    again = lbctl("assess", "--reports", "assessment.jsonl", "--json", cwd=tmp_path)
    assert again.code == 0
    assert again.objects[0]["observed"]["cluster"] == PULSAR_CLUSTER


def test_brokers_that_do_not_answer_are_missing_on_the_page_and_exit_code_3(
    cluster: FakeCluster, tmp_path: Path
) -> None:
    cluster.stop(2)
    done = assess(cluster, tmp_path)
    assert done.code == 3
    assert done.out.startswith("Of the 2 of 3 brokers that reported: uneven")
    assert f"{cluster.names[2]} gave no load report: GET http://{cluster.names[2]}" in done.out
    assert done.err.splitlines()[-1].startswith("brokers without a report: 1, such as")


def test_an_extensible_cluster_is_assessed_by_its_topics_and_its_cpu_is_unknown(
    tmp_path: Path,
) -> None:
    with fake_cluster(manager="extensible") as cluster:
        lines: list[str] = []
        record(client(cluster), 0.0, 1.0, lines.append)
        assert {call.method for call in cluster.calls} == {"GET"}
    path = tmp_path / "reports.jsonl"
    path.write_text("".join(lines))
    reports = [json.loads(report.value) for report in read_recording(path).reports]
    assert sorted(len(own["bundles"]) for own in reports) == [1, 1, 2]
    assert sorted(own["msgRateIn"] for own in reports) == [20.0, 20.0, 40.0]
    assert all("cpu" not in own for own in reports)
    assert reports[0]["brokerVersionString"] == "5.0.1"


# --- clusters that can't be read ---


@pytest.mark.parametrize(
    "answer",
    [
        (401, {"reason": "Authentication required"}),
        (403, {"reason": "This operation requires super-user access"}),
        (404, b"<html>Not Found</html>"),
        (200, b"<html><title>Welcome to nginx!</title></html>"),
        (200, []),
        (302, b"", {"Location": "https://login.example.org/"}),
        (307, b"", {"Location": "/admin/v2/brokers/configuration/runtime"}),
        (407, b"<html>Proxy Authentication Required</html>"),
        (503, b"upstream connect error"),
        (200, b"[" + b" " * (2 << 20)),
    ],
    ids=[
        "401",
        "403",
        "404",
        "HTML",
        "a list",
        "a login page",
        "a loop",
        "a proxy",
        "busy",
        "huge",
    ],
)
def test_an_answer_that_cannot_be_used_is_one_line_and_exit_code_1(
    cluster: FakeCluster,
    tmp_path: Path,
    answer: tuple[int, object] | tuple[int, object, dict[str, str]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(admin, "LARGEST_ANSWER_BYTES", 1 << 20)
    cluster.before = lambda _call: answer if len(answer) == 3 else (*answer, {})
    done = assess(cluster, tmp_path)
    assert (done.code, done.out) == (1, "")
    line = done.err.splitlines()[-1]
    assert f"GET http://{cluster.names[0]}{RUNTIME}" in line
    assert list(tmp_path.iterdir()) == []
    check_wording(line)


def test_a_slow_cluster_is_one_line_that_says_what_to_raise(
    cluster: FakeCluster, tmp_path: Path
) -> None:
    def late(_call: Call) -> None:
        time.sleep(1.0)

    cluster.before = late
    done = assess(cluster, tmp_path, "--read-timeout", "0.2")
    assert done.code == 1
    check_wording(done.err.splitlines()[-1])


def test_a_cluster_that_is_down_leaves_an_earlier_recording_and_the_line_says_what_to_give(
    cluster: FakeCluster, tmp_path: Path
) -> None:
    recording = tmp_path / "assessment.jsonl"
    recording.write_text("an earlier one")
    cluster.stop(0)
    done = assess(cluster, tmp_path)
    cluster.start(0)  # for the fixture's end
    assert done.code == 1
    assert (recording.read_text(), list(tmp_path.iterdir())) == ("an earlier one", [recording])
    check_wording(done.err.splitlines()[-1])


def test_brokers_that_answer_only_to_a_balancer_are_one_line(
    cluster: FakeCluster, tmp_path: Path
) -> None:
    names = cycle([["broker-0.inside:8080", "broker-1.inside:8080"]])
    cluster.before = lambda call: (
        (200, next(names), {}) if call.path == f"/admin/v2/brokers/{PULSAR_CLUSTER}" else None
    )
    done = assess(cluster, tmp_path)
    assert done.code == 1
    line = done.err.splitlines()[-1]
    assert "none of the 2 brokers gives a load report at its own address" in line
    assert line.endswith("run this where brokers' own names lead to them")


def test_brokers_that_hang_delay_no_other_and_not_the_end(
    cluster: FakeCluster, tmp_path: Path
) -> None:
    asked: list[str] = []

    def hang(call: Call) -> Reply | None:
        asked.append(call.path)
        if call.broker == 2:
            time.sleep(0.5)
        return uneven_report(cluster, call)

    cluster.before = hang
    done = assess(cluster, tmp_path, "--minutes", "0.01", "--every", "1", "--read-timeout", "0.2")
    assert done.code == 3, done.err
    assert f"{cluster.names[2]} gave no load report" in done.out
    # the settings of those that answer alone are asked for, and the cluster's of the first
    assert asked.count(RUNTIME) == 1 + 2


def test_a_recording_that_is_stopped_ends_with_what_there_is(cluster: FakeCluster) -> None:
    lines: list[str] = []
    found = record(client(cluster), 60.0, 1.0, lines.append, is_stopped=lambda: True)
    assert sum('"report":' in line for line in lines) == 1
    assert found.silent == {}


# --- connections ---


def test_a_name_that_is_not_known_is_one_line(tmp_path: Path) -> None:
    done = lbctl("assess", "pulsar", "http://broker.invalid:8080", cwd=tmp_path)
    assert done.code == 1
    assert done.err.endswith(": give a name that this machine knows\n")


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if shutil.which("openssl") is None:
        pytest.skip("openssl is needed to make a certificate")
    path = tmp_path_factory.mktemp("certificate") / "broker.pem"
    request = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"]
    out = ["-subj", "/CN=broker", "-keyout", str(path), "-out", f"{path}.crt"]
    subprocess.run([*request, *out], check=True, capture_output=True)
    path.write_text(path.read_text() + Path(f"{path}.crt").read_text())
    return path


@pytest.mark.parametrize(
    ("scheme", "has_tls", "advice"),
    [
        ("http", True, "with TLS, https://"),
        ("https", True, "--ca-file"),
        ("https", False, "http://"),
    ],
)
def test_a_connection_of_another_kind_is_one_line(
    cluster: FakeCluster,
    tmp_path: Path,
    certificate: Path,
    scheme: str,
    has_tls: bool,
    advice: str,
) -> None:
    server = cluster.servers[0]
    if has_tls:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate)
        server.socket = context.wrap_socket(server.socket, server_side=True)
    done = lbctl("assess", "pulsar", f"{scheme}://{cluster.names[0]}", cwd=tmp_path)
    assert (done.code, done.out) == (1, "")
    assert advice in done.err.splitlines()[-1].rpartition(": ")[2]


def test_an_address_that_is_none_is_wrong_usage(tmp_path: Path) -> None:
    done = lbctl("assess", "pulsar", "broker:8080", cwd=tmp_path)
    assert (done.code, done.out) == (2, "")
    check_wording(done.err)
