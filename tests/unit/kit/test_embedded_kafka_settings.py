"""The embedded broker's settings and bookkeeping, without starting it."""

import json
import os
import socket
from pathlib import Path

import pytest

from lb_stream.io.local import processes
from lb_stream.kit.embedded_kafka import (
    EmbeddedKafka,
    KafkaError,
    free_port,
    server_properties,
)


def test_it_listens_on_loopback_only(tmp_path: Path) -> None:
    settings = server_properties(tmp_path, 1001, 1002)
    addresses = [
        part.split("://")[1].split(":")[0] for part in str(settings["listeners"]).split(",")
    ]
    assert (
        addresses == ["127.0.0.1", "127.0.0.1"]
        and settings["advertised.listeners"] == "PLAINTEXT://127.0.0.1:1001"
    )


def test_a_port_in_use_is_refused_by_number(tmp_path: Path) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        with pytest.raises(KafkaError, match=f"port {port} .* is in use"):
            EmbeddedKafka(tmp_path, port=port).start()


def test_missing_jars_say_how_to_fetch_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LB_JARS_DIR", str(tmp_path / "none"))
    with pytest.raises(KafkaError, match="lbctl jars fetch"):
        EmbeddedKafka(tmp_path / "data").start()


def test_missing_java_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(KafkaError, match="install"):
        EmbeddedKafka(tmp_path).start()


def test_nothing_known_is_not_running(tmp_path: Path) -> None:
    kafka = EmbeddedKafka(tmp_path)
    assert (
        EmbeddedKafka.find_running(tmp_path) is None and kafka.pid is None and kafka.stop() is False
    )
    with pytest.raises(KafkaError, match="no broker runs"):
        _ = kafka.bootstrap


def test_a_recycled_pid_is_neither_running_nor_stopped(tmp_path: Path) -> None:
    # Our own process, under another start time: stopping it would end this test.
    (tmp_path / "broker.json").write_text(
        json.dumps({"pid": os.getpid(), "started": "long ago", "port": 1, "controller_port": 2})
    )
    assert EmbeddedKafka.find_running(tmp_path) is None and EmbeddedKafka(tmp_path).stop() is False


def test_the_state_file_names_the_address(tmp_path: Path) -> None:
    mine = {
        "pid": os.getpid(),
        "started": processes.start_mark(os.getpid()),
        "port": 4321,
        "controller_port": 2,
    }
    (tmp_path / "broker.json").write_text(json.dumps(mine))
    assert EmbeddedKafka(tmp_path).bootstrap == "127.0.0.1:4321"


def test_a_torn_state_file_counts_as_none(tmp_path: Path) -> None:
    (tmp_path / "broker.json").write_text('{"pid": 1')
    assert EmbeddedKafka.find_running(tmp_path) is None


def test_the_usual_port_is_taken_unless_another_program_has_it(tmp_path: Path) -> None:
    usual = free_port(())
    broker = EmbeddedKafka(tmp_path, usual_port=usual)
    broker._choose_ports()
    assert broker._ports[0] == usual != broker._ports[1]
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", usual))
        taken.listen()
        broker._choose_ports()
        assert broker._ports[0] not in (0, usual)
