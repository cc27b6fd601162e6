"""Reads a recording of a cluster: load reports, and lines with what else its brokers answered.

A line that is no load report has `path`, which of the admin API's answers it is, and `data`.
"""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import ValidationError

from lb_stream.agent.pulsar.guard import RUNTIME
from lb_stream.agent.pulsar.namespaces import NAMESPACES
from lb_stream.agent.pulsar.recorder import BROKERS
from lb_stream.contracts.base import describe_expected
from lb_stream.contracts.namespaces import ClusterNamespaces
from lb_stream.io.local.report_lines import Report
from lb_stream.query import QueryError
from lb_stream.query.past.reports import read_reports

RECORDED = "recorded"
"""Name of a cluster of which none is known."""
_ASIDE = b'{"path":'
"""How a line begins that is no load report."""


@dataclass(frozen=True, slots=True)
class Recording:
    """What is known of a cluster. `path`: the file, for messages."""

    path: Path
    reports: list[Report]
    runtimes: Mapping[str, Mapping[str, object]] = field(default_factory=dict)
    """Broker → its settings in force, Pulsar's key → value."""
    namespaces: ClusterNamespaces | None = None
    silent: Mapping[str, str] = field(default_factory=dict)
    """Broker that gave no report → why."""

    @property
    def cluster(self) -> str:
        """Return the cluster's own name, if its brokers have told it; else `recorded`."""
        for runtime in self.runtimes.values():
            if re.fullmatch(r"[A-Za-z0-9._-]+", name := str(runtime.get("clusterName", ""))):
                return name
        return RECORDED


def read_recording(path: Path, broker: str | None = None) -> Recording:
    """Read a file of load reports. `broker`: the sender of reports that name none.

    Raises QueryError (exit code 2), which names file, line, and what was expected.
    """
    reports = read_reports(path, broker)
    runtimes: dict[str, Mapping[str, object]] = {}
    namespaces, silent = None, {}
    for number, line in _lines_aside(path):
        try:
            fields = json.loads(line)
            match fields.get("path"), fields.get("data"):
                case (str(place), dict(data)) if place == RUNTIME:
                    runtimes[str(fields.get("broker"))] = data
                case (str(place), dict(data)) if place == BROKERS:
                    silent = {name: str(why) for name, why in data.items()}
                case (str(place), dict(data)) if place == NAMESPACES:
                    namespaces = ClusterNamespaces.model_validate(data)
        except ValidationError as error:
            expected = describe_expected(error.errors()[0])
            raise QueryError(f"{path}, line {number}: expected {expected}", 2) from None
        except (ValueError, RecursionError) as error:
            raise QueryError(f"{path}, line {number}: expected JSON ({error})", 2) from None
    return Recording(path, reports, runtimes, namespaces, silent)


def _lines_aside(path: Path) -> Iterator[tuple[int, bytes]]:
    """Yield the numbers and texts of the lines that are no load reports."""
    with path.open("rb") as plain:
        is_zipped = plain.read(2) == b"\x1f\x8b"
    with gzip.open(path, "rb") if is_zipped else path.open("rb") as file:
        for number, line in enumerate(file, 1):
            if line.startswith(_ASIDE):
                yield number, line
