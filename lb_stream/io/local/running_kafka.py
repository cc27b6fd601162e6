"""Finds the embedded Kafka broker (lb_stream.kit.embedded_kafka) that runs on a data folder."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from lb_stream.io.local import processes

HOST = "127.0.0.1"
STATE_FILE = "broker.json"


@dataclass(frozen=True)
class RunningKafka:
    """An embedded broker, as broker.json has it. `started`: its `processes.start_mark`."""

    pid: int
    started: str
    port: int
    controller_port: int
    host: str = HOST

    @property
    def bootstrap(self) -> str:
        """Return its address, host:port."""
        return f"{self.host}:{self.port}"


def find_running_kafka(data_dir: Path) -> RunningKafka | None:
    """Return the broker that runs on this data folder; None if none does."""
    known = read_last_kafka(data_dir)
    return known if known and processes.start_mark(known.pid) == known.started else None


def read_last_kafka(data_dir: Path) -> RunningKafka | None:
    """Return the broker that ran last on this data folder; None if none did."""
    try:
        return RunningKafka(**json.loads((data_dir / STATE_FILE).read_text()))
    except (FileNotFoundError, ValueError, TypeError):
        return None


def write_running_kafka(data_dir: Path, broker: RunningKafka) -> None:
    """Write down which broker was started on this data folder."""
    temporary = data_dir / f"{STATE_FILE}.new"
    temporary.write_text(json.dumps(asdict(broker)))
    temporary.replace(data_dir / STATE_FILE)
