"""A scenario's folder, read and checked."""

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
    brokers_of,
    events_of,
    faults_of,
    judged_times,
    policies_of,
)
from lb_stream.sim.scenario.scenario import (
    Event,
    Fault,
    MoveTimes,
    Scenario,
    ScenarioBrokers,
    ScenarioBundles,
    ScenarioPolicies,
)
from lb_stream.sim.scenario.tables import (
    BROKER_NOISE,
    BUNDLES,
    LOADS_FILE,
    NOISE,
    check_anti_affinity,
    read_bundles,
    read_loads,
    read_noise,
)

NUMBERS = (
    *(
        "tick_s",
        "ticks",
        "load_step_ticks",
        "noise_step_ticks",
        "noise_unit",
        "report_interval_s",
        "report_delay_s",
    ),
    *("judge_from_s", "settled_from_s"),
)
"""What Scenario and scenario.json have under one name."""


@dataclass(frozen=True, slots=True)
class Parts:
    """All that scenario.json says, its references found."""

    document: Document
    brokers: ScenarioBrokers
    events: tuple[Event, ...]
    faults: tuple[Fault, ...]
    policies: ScenarioPolicies

    @property
    def load_steps(self) -> int:
        """How many steps the loads have; the last one may be shorter."""
        return -(-self.document.ticks // self.document.load_step_ticks)

    @property
    def noise_steps(self) -> int:
        """How many steps noise has."""
        return -(-self.document.ticks // self.document.noise_step_ticks)

    def scenario(
        self,
        bundles: ScenarioBundles,
        loads: NDArray[np.float32],
        noise: NDArray[np.int8] | None,
        broker_noise: NDArray[np.int8] | None,
    ) -> Scenario:
        """The whole, with what the tables say."""
        said = self.document
        return Scenario(
            name=said.name,
            why=said.why,
            **{name: getattr(said, name) for name in NUMBERS},
            move=MoveTimes(said.move.release_s, said.move.acquire_s, said.move.reconnect_s),
            brokers=self.brokers,
            bundles=bundles,
            events=self.events,
            faults=self.faults,
            policies=self.policies,
            loads=loads,
            noise=noise,
            broker_noise=broker_noise,
        )


def parts_of(path: Path, document: Document, event_fields: Sequence[str] = ()) -> Parts:
    """Find what a document refers to. `event_fields`: see `events_of`. Raises ScenarioError."""
    brokers = brokers_of(path, document)
    within = References(path, document, {name: row for row, name in enumerate(brokers.names)})
    judged_times(within)
    return Parts(
        document, brokers, events_of(within, event_fields), faults_of(within), policies_of(within)
    )


def read_scenario(folder: str | Path) -> Scenario:
    """Read a scenario's folder. Raises ScenarioError, one line, for whatever breaks the format."""
    folder = Path(folder)
    if not (folder / DOCUMENT).is_file():
        raise ScenarioError(
            folder, DOCUMENT, MISSING, f"a scenario's folder: {DOCUMENT}, {BUNDLES}, {LOADS_FILE}"
        )
    parts = parts_of(folder / DOCUMENT, read_document(folder / DOCUMENT))
    bundles, unit = read_bundles(folder / BUNDLES, parts.brokers), parts.document.noise_unit
    check_anti_affinity(folder / BUNDLES, bundles, parts.brokers, parts.policies.anti_affinity)
    return parts.scenario(
        bundles,
        read_loads(folder / LOADS_FILE, bundles, parts.load_steps),
        read_noise(folder / NOISE, len(bundles), "bundles", parts.noise_steps, unit),
        read_noise(folder / BROKER_NOISE, len(parts.brokers), "brokers", parts.noise_steps, unit),
    )
