"""The same generation of reports as columns, and as JSON in a topic beside it for Spark's side."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable

from lb_stream.agent.columnar import ReportEncoder
from lb_stream.contracts.decisions import Decision
from lb_stream.contracts.reads import Reads
from tests.bench.stream.feed import Feed, Offsets, ReportRecord
from tests.bench.stream.fleet import Fleet


def columns_encoder(deltas: bool = False) -> ReportEncoder:
    """Return an agent's encoder that sends every report as columns, or as deltas where it can."""
    encoder = ReportEncoder(min_bundles=1, clock=lambda: 0.0)
    forms = ["json", "columns", *(["deltas"] if deltas else [])]
    encoder.note_reads(Reads(cluster="", forms=forms, checkpoint="bench"), ())
    return encoder


class Columnar:
    """A fleet whose reports are encoded by the agents' own code, as columns.

    `feed`, `begin` and `end`: the topic with the last generation as JSON, and where it is. `kinds`:
    how many records of each kind it has made.
    """

    def __init__(self, fleet: Fleet, feed: Feed, deltas: bool = False) -> None:
        self._fleet, self.feed = fleet, feed
        self.begin: Offsets = feed.ends()
        self.end: Offsets = self.begin
        self.kinds = Counter[str]()
        self._encoder = columns_encoder(deltas)

    def __str__(self) -> str:
        return f"{self._fleet} as columns"

    @property
    def cluster_names(self) -> list[str]:
        """Of all their clusters."""
        return self._fleet.cluster_names

    def generation(self) -> list[ReportRecord]:
        """Records of a new report of every broker, with rosters where bundles have changed."""
        records = self._fleet.generation()
        self.begin = self.end
        self.feed.send(records)
        self.end = self.feed.ends()
        made = [
            ReportRecord(key, encoded, kind)
            for key, value, *_ in records
            for kind, encoded in self._encoder.encode(key.decode(), json.loads(value))
        ]
        self.kinds.update(record.kind for record in made)
        return made

    def obey(self, decisions: Iterable[Decision]) -> int:
        """Do what is decided. Returns how many decisions there were."""
        return self._fleet.obey(decisions)
