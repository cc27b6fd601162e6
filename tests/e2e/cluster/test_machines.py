"""Machines made of namespaces have the store and the network in common and nothing else, and go with whoever made them."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.cluster.machines import PROJECT, STORE, Machine, Network, NoRight
from tests.e2e.pipeline import wait_until

pytestmark = pytest.mark.long

SERVE = "exec conf/deploy/entrypoint.sh python -m http.server 8080 --directory"
TWO_AND_WAIT = """
import sys, pathlib, time
from tests.e2e.cluster.machines import Network
with Network() as network, network.machine("a", pathlib.Path(sys.argv[1])) as machine:
    machine.start("exec sleep 3600", pathlib.Path(sys.argv[1], "log"))
    print(machine.pid, flush=True)
    time.sleep(3600)
"""


@pytest.fixture
def two(tmp_path: Path) -> Iterator[tuple[Machine, Machine]]:
    try:
        with Network() as network, network.machine("first", tmp_path) as first, network.machine("second", tmp_path) as second:
            yield first, second
    except NoRight as error:
        pytest.fail(str(error), pytrace=False)


def test_they_share_the_store_and_nothing_else(two: tuple[Machine, Machine], tmp_path: Path) -> None:
    first, second = two
    (tmp_path / "of-all").touch()
    assert first.said(f"touch /tmp/own /root/own {PROJECT}/own {STORE}/of-first; hostname") == "first"
    assert second.said(f"ls -d /tmp/own /root/own {PROJECT}/own; ls {STORE}").split() == ["of-all", "of-first"]
    assert not (PROJECT / "own").exists()
    assert first.said(f"ls -d {PROJECT}/own") == f"{PROJECT}/own"


def test_they_reach_each_other_by_network_until_one_is_off(two: tuple[Machine, Machine], tmp_path: Path) -> None:
    first, second = two
    (tmp_path / "page").write_text("of the store")
    first.start(f"{SERVE} {STORE}", tmp_path / "log")
    ask = "python3 -c 'import urllib.request as u; print(u.urlopen(\"http://first:8080/page\", timeout=5).read().decode())' 2>&1"
    wait_until(lambda: second.said(ask) == "of the store", "an answer")
    (pid,) = first.running("http.server", "python")
    assert first.said(f"ip -brief address show eth0 | grep -c {first.address}/24") == "1"
    first.off()
    assert not Path(f"/proc/{pid}").exists()
    assert "Error" in second.said(ask)


def test_they_go_with_whoever_made_them(tmp_path: Path) -> None:
    command = [sys.executable, "-c", TWO_AND_WAIT, str(tmp_path)]
    maker = subprocess.Popen(command, cwd=PROJECT, stdout=subprocess.PIPE, text=True)
    assert maker.stdout
    first = maker.stdout.readline().strip()
    assert first and os.path.exists(f"/proc/{first}")
    maker.kill()
    maker.wait()
    wait_until(lambda: not os.path.exists(f"/proc/{first}"), "the machine's end")
