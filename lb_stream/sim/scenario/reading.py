"""Reads and checks a scenario's folder."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from lb_stream.sim.scenario.document import DOCUMENT, Document, read_document
from lb_stream.sim.scenario.errors import MISSING, ScenarioError
from lb_stream.sim.scenario.references import (
    References,
    build_brokers,
    build_events,
    build_faults,
    build_policies,
    build_rollout,
    require_judged_times,
)
from lb_stream.sim.scenario.scenario import (
    Event,
    Fault,
    MoveTimes,
    Scenario,
    ScenarioBrokers,
    ScenarioBundles,
    ScenarioPolicies,
    ScenarioRollout,
    ScenarioSplits,
    ScenarioTopics,
)
from lb_stream.sim.scenario.tables import (
    BACKGROUND,
    BROKER_NOISE,
    BUNDLES,
    LOADS_FILE,
    NOISE,
    TOPICS,
    check_anti_affinity,
    read_background,
    read_bundles,
    read_loads,
    read_noise,
    read_topics,
)

NUMBERS = (
    "tick_s",
    "ticks",
    "load_step_ticks",
    "noise_step_ticks",
    "noise_unit",
    "report_interval_s",
    "report_delay_s",
    "judge_from_s",
    "settled_from_s",
)
"""Numbers that Scenario and scenario.json have under the same names."""


@dataclass(frozen=True, slots=True)
class ScenarioParts:
    """The content of scenario.json, with references as rows of brokers."""

    document: Document
    brokers: ScenarioBrokers
    events: tuple[Event, ...]
    faults: tuple[Fault, ...]
    policies: ScenarioPolicies
    rollout: ScenarioRollout | None = None

    @property
    def load_steps(self) -> int:
        """Return the number of load steps; the last one may be shorter."""
        return -(-self.document.ticks // self.document.load_step_ticks)

    @property
    def noise_steps(self) -> int:
        """Return the number of noise steps; the last one may be shorter."""
        return -(-self.document.ticks // self.document.noise_step_ticks)

    def scenario(
        self,
        bundles: ScenarioBundles,
        loads: NDArray[np.float32],
        noise: NDArray[np.int8] | None,
        broker_noise: NDArray[np.int8] | None,
        background: NDArray[np.float32] | None = None,
        topics: ScenarioTopics | None = None,
    ) -> Scenario:
        """Return the scenario: these parts, and the content of its tables."""
        document, move, split = self.document, self.document.move, self.document.split
        return Scenario(
            name=document.name,
            why=document.why,
            **{name: getattr(document, name) for name in NUMBERS},
            move=MoveTimes(move.release_s, move.acquire_s, move.reconnect_s),
            brokers=self.brokers,
            bundles=bundles,
            events=self.events,
            faults=self.faults,
            policies=self.policies,
            loads=loads,
            noise=noise,
            broker_noise=broker_noise,
            format=document.format,
            background=background,
            topics=topics,
            splits=None if split is None else ScenarioSplits(**split.model_dump()),
            rollout=self.rollout,
        )


def build_parts(path: Path, document: Document, event_fields: Sequence[str] = ()) -> ScenarioParts:
    """Resolve a document's references. `event_fields`: see `build_events`. Raises ScenarioError."""
    brokers = build_brokers(path, document)
    references = References(path, document, {name: row for row, name in enumerate(brokers.names)})
    require_judged_times(references)
    events = build_events(references, event_fields)
    return ScenarioParts(
        document,
        brokers,
        events,
        build_faults(references),
        build_policies(references),
        build_rollout(references, events, event_fields),
    )


def read_scenario(folder: str | Path) -> Scenario:
    """Read a scenario's folder. Raises ScenarioError for whatever breaks the format."""
    folder = Path(folder)
    if not (folder / DOCUMENT).is_file():
        raise ScenarioError(
            folder, DOCUMENT, MISSING, f"a scenario's folder: {DOCUMENT}, {BUNDLES}, {LOADS_FILE}"
        )
    parts = build_parts(folder / DOCUMENT, read_document(folder / DOCUMENT))
    bundles, unit = read_bundles(folder / BUNDLES, parts.brokers), parts.document.noise_unit
    check_anti_affinity(folder / BUNDLES, bundles, parts.brokers, parts.policies.anti_affinity)
    for name in (TOPICS, BACKGROUND):
        if parts.document.format == 1 and (folder / name).exists():
            raise ScenarioError(folder, name, "a file", "none in format 1: it is of format 2")
    return parts.scenario(
        bundles,
        read_loads(folder / LOADS_FILE, bundles, parts.load_steps),
        read_noise(folder / NOISE, len(bundles), "bundles", parts.noise_steps, unit),
        read_noise(folder / BROKER_NOISE, len(parts.brokers), "brokers", parts.noise_steps, unit),
        read_background(folder / BACKGROUND, parts.brokers, parts.load_steps),
        _read_topics(folder, parts, bundles),
    )


def _read_topics(
    folder: Path, parts: ScenarioParts, bundles: ScenarioBundles
) -> ScenarioTopics | None:
    topics = read_topics(folder / TOPICS, bundles)
    if topics is not None and parts.document.split is None:
        raise ScenarioError(folder / DOCUMENT, "split", MISSING, f"it, as there is {TOPICS}")
    return topics
