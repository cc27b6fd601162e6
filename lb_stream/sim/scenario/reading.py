"""A scenario's folder, read and checked."""

from __future__ import annotations

from pathlib import Path

from lb_stream.sim.scenario.document import DOCUMENT, read_document
from lb_stream.sim.scenario.errors import MISSING, ScenarioError
from lb_stream.sim.scenario.references import References, brokers_of, events_of, faults_of, judged_times, policies_of
from lb_stream.sim.scenario.scenario import MoveTimes, Scenario
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
    *("tick_s", "ticks", "load_step_ticks", "noise_step_ticks", "noise_unit", "report_interval_s", "report_delay_s"),
    *("judge_from_s", "settled_from_s"),
)
"""What Scenario and scenario.json have under one name."""


def read_scenario(folder: str | Path) -> Scenario:
    """Read a scenario's folder. Raises ScenarioError, one line, for whatever breaks the format."""
    folder = Path(folder)
    if not (folder / DOCUMENT).is_file():
        raise ScenarioError(folder, DOCUMENT, MISSING, f"a scenario's folder: {DOCUMENT}, {BUNDLES}, {LOADS_FILE}")
    document = read_document(folder / DOCUMENT)
    path = folder / DOCUMENT
    brokers = brokers_of(path, document)
    within = References(path, document, {name: row for row, name in enumerate(brokers.names)})
    judged_times(within)
    events, faults, policies = events_of(within), faults_of(within), policies_of(within)
    bundles = read_bundles(folder / BUNDLES, brokers)
    check_anti_affinity(folder / BUNDLES, bundles, brokers, policies.anti_affinity)
    noise_steps, unit = steps(document.ticks, document.noise_step_ticks), document.noise_unit
    return Scenario(
        name=document.name,
        why=document.why,
        **{name: getattr(document, name) for name in NUMBERS},
        move=MoveTimes(document.move.release_s, document.move.acquire_s, document.move.reconnect_s),
        brokers=brokers,
        bundles=bundles,
        events=events,
        faults=faults,
        policies=policies,
        loads=read_loads(folder / LOADS_FILE, bundles, steps(document.ticks, document.load_step_ticks)),
        noise=read_noise(folder / NOISE, len(bundles), "bundles", noise_steps, unit),
        broker_noise=read_noise(folder / BROKER_NOISE, len(brokers), "brokers", noise_steps, unit),
    )


def steps(ticks: int, step_ticks: int) -> int:
    """How many steps of so many ticks a scenario has; the last one may be shorter."""
    return -(-ticks // step_ticks)
