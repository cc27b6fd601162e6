"""Simulated brokers that are stopped and started again by files."""

import json
from pathlib import Path
from typing import Any

import pytest

from lb_stream.agent.adapter import BrokerError, Refused
from lb_stream.sim import SimBroker, SimCluster, build_cluster
from lb_stream.sim.stopping import StopFolder

START = 1_700_000_000_000
A, B = "broker-1:8080", "broker-2:8080"


class RecordingAgent:
    """An agent that only records what it is to send."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, str]] = []
        self.reporter = self

    def send(self, broker: str, value: str, kind: str) -> None:
        json.loads(value)
        self.sent.append((broker, kind))


class Stage:
    """Two brokers, of which the files of a folder say which are stopped."""

    def __init__(self, folder: Path) -> None:
        self.now_ms, self.files, self.agent = START, folder / "stopped", RecordingAgent()
        self.cluster: SimCluster = build_cluster(2, 8, start_ms=START)
        self.brokers = {
            name: SimBroker(self.cluster, name, clock=lambda: self.now_ms) for name in (A, B)
        }
        given: Any = self.agent
        self.folder = StopFolder(self.files, given, self.brokers.values())

    def report(self, broker: str) -> dict[str, Any] | None:
        """Have the agent ask for a report; None: the broker gives none."""
        try:
            report: Any = self.brokers[broker].report()
        except BrokerError:
            return None
        return dict(report)


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage(tmp_path)


@pytest.mark.parametrize("name", ["broker-1", A])
def test_a_broker_is_stopped_while_a_file_has_its_name_and_comes_back_empty(
    stage: Stage, name: str
) -> None:
    assert stage.folder.follow() == []
    (stage.files / name).touch()
    assert stage.folder.follow() == [], "it stops with its next report"
    assert not stage.brokers[A].alive() and stage.report(A) is None
    assert set(stage.cluster.owners().values()) == {None, B}, "its bundles have no owner"
    assert stage.agent.sent == [], "a goodbye follows the last report"
    assert stage.folder.follow() == [f"{A} is stopped"]
    assert stage.agent.sent == [(A, "goodbye")]
    assert stage.folder.follow() == [] and stage.brokers[B].alive()

    stage.now_ms += 60_000
    (stage.files / name).unlink()
    assert stage.folder.follow() == [f"{A} starts"]
    back = stage.report(A)
    assert back is not None and stage.brokers[A].alive()
    assert (back["startTimestamp"], back["numBundles"]) == (stage.now_ms, 0)
    other = stage.report(B)
    assert other is not None and other["startTimestamp"] == START
    assert stage.agent.sent == [(A, "goodbye")]


def test_a_stopped_broker_takes_no_bundle(stage: Stage) -> None:
    bundle = stage.cluster.owned(B)[0]
    (stage.files / "broker-1").touch()
    stage.folder.follow()
    stage.report(A)
    stage.brokers[B].release(bundle)
    with pytest.raises(Refused):
        stage.brokers[A].acquire(bundle)
    assert stage.cluster.owners()[bundle] is None


def test_a_file_that_names_no_broker_is_told_once(stage: Stage) -> None:
    (stage.files / "broker-9").touch()
    (line,) = stage.folder.follow()
    assert "broker-9" in line and "broker-1, broker-2" in line
    assert stage.folder.follow() == []
