"""Machines made of namespaces have the store and the network in common and nothing else, and go
with whoever made them."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.cluster.machines import PROJECT, STORE, Machine, Network
from tests.e2e.pipeline import wait_until
from tests.e2e.under_load import STEP_S
from tests.support.killing import processes

pytestmark = pytest.mark.long

SERVE = "exec conf/deploy/entrypoint.sh python -m http.server 8080 --directory"
MAKE_ONE_AND_WAIT = """
import sys, pathlib, time
from tests.e2e.cluster.machines import Network
with Network() as network, network.machine("a", pathlib.Path(sys.argv[1])) as machine:
    machine.start("setsid sleep 3600 & echo started; wait", pathlib.Path(sys.argv[1], "log"))
    time.sleep(3600)
"""
WITHOUT_RIGHTS = ("setpriv", "--bounding-set=-all", "--inh-caps=-all")


@pytest.fixture
def two(tmp_path: Path) -> Iterator[tuple[Machine, Machine]]:
    with (
        Network() as network,
        network.machine("first", tmp_path) as first,
        network.machine("second", tmp_path) as second,
    ):
        yield first, second


def test_they_share_the_store_and_nothing_else(
    two: tuple[Machine, Machine], tmp_path: Path
) -> None:
    first, second = two
    (tmp_path / "of-all").touch()
    assert (
        first.said(f"touch /tmp/own /root/own {PROJECT}/own {STORE}/of-first; hostname") == "first"
    )
    assert second.said(f"ls -d /tmp/own /root/own {PROJECT}/own; ls {STORE}").split() == [
        "of-all",
        "of-first",
    ]
    assert not (PROJECT / "own").exists()
    assert first.said(f"ls -d {PROJECT}/own") == f"{PROJECT}/own"


def test_they_reach_each_other_by_network_until_one_is_off(
    two: tuple[Machine, Machine], tmp_path: Path
) -> None:
    first, second = two
    (tmp_path / "page").write_text("of the store")
    first.start(f"{SERVE} {STORE}", tmp_path / "log")
    ask = (
        'python3 -c \'import urllib.request as u; print(u.urlopen("http://first:8080/page", '
        "timeout=5).read().decode())' 2>&1"
    )
    wait_until(lambda: second.said(ask) == "of the store", "an answer", STEP_S)
    (pid,) = first.running("http.server", "python")
    assert first.said(f"ip -brief address show eth0 | grep -c {first.address}/24") == "1"
    first.off()
    assert not Path(f"/proc/{pid}").exists()
    assert "Error" in second.said(ask)


def lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_they_go_with_whoever_made_them_and_so_does_what_ran_on_them(tmp_path: Path) -> None:
    maker = subprocess.Popen([sys.executable, "-c", MAKE_ONE_AND_WAIT, str(tmp_path)], cwd=PROJECT)
    try:
        log = tmp_path / "log"
        wait_until(lambda: log.exists() and log.read_text() == "started\n", "the machine", STEP_S)
        left = processes(maker.pid) - {maker.pid}
        assert {"unshare", "nsenter", "sleep"} <= {
            Path(f"/proc/{pid}/comm").read_text().strip() for pid in left
        }
    finally:
        maker.kill()
        maker.wait()
    wait_until(lambda: not any(lives(pid) for pid in left), "the machine's end", STEP_S)


def test_who_may_make_none_is_told_what_to_do() -> None:
    command = [
        *WITHOUT_RIGHTS,
        sys.executable,
        "-c",
        "from tests.e2e.cluster.machines import check_rights; check_rights()",
    ]
    said = subprocess.run(
        command, cwd=PROJECT, capture_output=True, text=True, check=False
    ).stderr.splitlines()[-1]
    assert "NoMachines: no machine can be made of namespaces (unshare: " in said
    assert said.endswith("unshare --user --map-root-user make test-cluster")
