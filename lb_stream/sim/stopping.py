"""Stops simulated brokers and starts them again: a broker is stopped while a file has its name."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from lb_stream.agent import Agent
from lb_stream.contracts.reports import Goodbye
from lb_stream.core.model.policies import host_of
from lb_stream.sim.brokers import SimBroker, wall_clock_ms


class StopFolder:
    """A folder of files that are named after brokers: these brokers are stopped.

    A file's name is a broker's host or its host:port. `touch` stops a broker, with a goodbye as on
    purpose; `rm` starts it again, with a new start of its process and without bundles.
    """

    def __init__(self, folder: Path, agent: Agent, brokers: Iterable[SimBroker]) -> None:
        """Create the folder if it is missing. The agent's brokers all run."""
        folder.mkdir(parents=True, exist_ok=True)
        self._folder, self._agent = folder, agent
        self._brokers = {broker.name: broker for broker in brokers}
        self._names = {host_of(name): name for name in self._brokers}
        self._stopping: set[str] = set()
        self._stopped: set[str] = set()
        self._unknown: set[str] = set()

    def follow(self) -> list[str]:
        """Stop and start brokers as the files say. Returns what is new, as lines for people.

        Call it several times a second.
        """
        found = {path.name for path in self._folder.iterdir()}
        wanted = {self._names.get(name, name) for name in found}
        unknown = wanted - self._brokers.keys()
        known = ", ".join(self._names)
        lines = [
            f"{self._folder / name}: no broker has this name; they are {known}"
            for name in sorted(unknown - self._unknown)
        ]
        self._unknown = unknown
        for name, broker in self._brokers.items():
            is_away = name in self._stopping | self._stopped
            if name in wanted and not is_away:
                broker.stop()
                self._stopping.add(name)
            elif name in self._stopping and not broker.is_up:
                # After its last report and heartbeat: these would cancel it.
                goodbye = Goodbye(sent_ms=wall_clock_ms())
                self._agent.reporter.send(name, goodbye.to_json(), "goodbye")
                self._stopping.remove(name)
                self._stopped.add(name)
                lines.append(f"{name} is stopped")
            elif name in self._stopped and name not in wanted:
                broker.start()
                self._stopped.remove(name)
                lines.append(f"{name} starts")
        return lines
