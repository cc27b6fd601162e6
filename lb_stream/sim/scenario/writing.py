"""Writes a scenario as a folder; the same scenario gives the same bytes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from lb_stream.sim.scenario.document import DOCUMENT
from lb_stream.sim.scenario.reading import NUMBERS
from lb_stream.sim.scenario.references import AMOUNTS
from lb_stream.sim.scenario.scenario import (
    JUDGED,
    LIMITS,
    LOADS,
    Event,
    Fault,
    Scenario,
    ScenarioBrokers,
    ScenarioPolicies,
    ScenarioRollout,
)
from lb_stream.sim.scenario.tables import (
    BACKGROUND,
    BROKER_NOISE,
    BUNDLES,
    COUNTS,
    LOADS_FILE,
    NOISE,
    TOPICS,
)


def write_scenario(scenario: Scenario, folder: str | Path) -> None:
    """Write the scenario's files, and delete those of an earlier scenario.

    scenario.json is deleted first and written last: a half-written folder is no scenario.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / DOCUMENT).unlink(missing_ok=True)
    bundles = scenario.bundles
    owners = {
        "name": pa.array(bundles.names, pa.string()),
        "start_owner": pa.array(bundles.start_owner.astype(np.int32)),
    }
    _write(folder / BUNDLES, owners | {name: pa.array(getattr(bundles, name)) for name in COUNTS})
    _write(
        folder / LOADS_FILE,
        {name: pa.array(scenario.loads[row].reshape(-1)) for row, name in enumerate(LOADS)},
    )
    _write_or_delete(folder / NOISE, {"q": scenario.noise})
    _write_or_delete(folder / BROKER_NOISE, {"q": scenario.broker_noise})
    _write_or_delete(folder / BACKGROUND, {"cpu": scenario.background})
    topics = scenario.topics
    _write_or_delete(
        folder / TOPICS,
        {"bundle": None}
        if topics is None
        else {
            "bundle": topics.bundle.astype(np.int32),
            "hash": topics.hash.astype(np.uint32),
            "share": topics.share,
        },
    )
    text = json.dumps(_document(scenario), indent=1, ensure_ascii=False, allow_nan=False)
    (folder / DOCUMENT).write_text(text + "\n", encoding="utf-8")


def _write_or_delete(path: Path, columns: Mapping[str, NDArray[np.generic] | None]) -> None:
    """Write a file that a scenario needn't have; without values delete it."""
    arrays = {
        name: pa.array(values.reshape(-1)) for name, values in columns.items() if values is not None
    }
    if arrays:
        _write(path, arrays)
    else:
        path.unlink(missing_ok=True)


def _write(path: Path, columns: dict[str, pa.Array]) -> None:
    # From step to step, loads differ in their last digits only: split into bytes, they take a third
    # less space.
    singles = [name for name, values in columns.items() if pa.types.is_float32(values.type)]
    pq.write_table(
        pa.table(columns),
        path,
        compression="zstd",
        compression_level=6,
        write_page_checksum=True,
        store_schema=False,
        use_dictionary=not singles,
        use_byte_stream_split=singles or False,
    )


def _document(scenario: Scenario) -> dict[str, object]:
    brokers, move = scenario.brokers, scenario.move
    splits = {} if scenario.splits is None else {"split": asdict(scenario.splits)}
    return {
        "format": scenario.format,
        "name": scenario.name,
        "why": scenario.why,
        **{name: getattr(scenario, name) for name in NUMBERS},
        "move": {
            "release_s": move.release_s,
            "acquire_s": move.acquire_s,
            "reconnect_s": move.reconnect_s,
        },
        "judged": list(JUDGED),
        "brokers": [
            {
                "name": name,
                "up": bool(brokers.up[row]),
                **{amount: float(getattr(brokers, amount)[row]) for amount in AMOUNTS},
                **_format_2(brokers, row),
            }
            for row, name in enumerate(brokers.names)
        ],
        "events": _events(scenario),
        "faults": [_fault(brokers.names, fault) for fault in scenario.faults],
        "policies": _policies(brokers.names, scenario.policies),
        **splits,
    }


def _format_2(brokers: ScenarioBrokers, row: int) -> dict[str, object]:
    """Return the keys of a broker that only format 2 has, and only where they say something."""
    stated = {limit: float(values[row]) for limit, values in brokers.stated.items()}
    unreported = [limit for limit, value in stated.items() if value == 0]
    misreported = {
        limit: value
        for limit, value in stated.items()
        if value not in (0, float(getattr(brokers, LIMITS[limit])[row]))
    }
    base = 0.0 if brokers.cpu_base is None else float(brokers.cpu_base[row])
    keys = {"unreported": unreported, "misreported": misreported, "cpu_base": base}
    return {key: value for key, value in keys.items() if value}


def _events(scenario: Scenario) -> list[dict[str, object]]:
    """Return the entries of all events, and of the rollout, in order of time."""
    names, rollout = scenario.brokers.names, scenario.rollout
    entries = [(event.t_s, _event(names, event)) for event in scenario.events]
    if rollout is not None:
        entries.append((rollout.t_s, _rollout(names, rollout)))
    return [entry for _, entry in sorted(entries, key=lambda pair: pair[0])]


def _rollout(brokers: tuple[str, ...], rollout: ScenarioRollout) -> dict[str, object]:
    return {
        "t_s": rollout.t_s,
        "kind": "rollout",
        "restart_s": rollout.restart_s,
        "at_most": rollout.at_most,
        "brokers": [brokers[row] for row in rollout.brokers],
        "order": "given" if rollout.in_order else "any",
    }


def _event(brokers: tuple[str, ...], event: Event) -> dict[str, object]:
    factor = {"factor": event.factor} if event.kind == "slow" else {}
    return {"t_s": event.t_s, "broker": brokers[event.broker], "kind": event.kind, **factor}


def _fault(brokers: tuple[str, ...], fault: Fault) -> dict[str, object]:
    delay = {"delay_s": fault.delay_s} if fault.kind == "stale_reports" else {}
    return {
        "kind": fault.kind,
        "brokers": [brokers[row] for row in fault.brokers],
        "from_s": fault.from_s,
        "to_s": fault.to_s,
        **delay,
    }


def _policies(brokers: tuple[str, ...], given: ScenarioPolicies) -> dict[str, object]:
    parts = {
        "isolation": [
            {
                "name": policy.name,
                "namespaces": list(policy.namespaces),
                "primary": [brokers[row] for row in policy.primary],
                "secondary": [brokers[row] for row in policy.secondary],
                "min_available": policy.min_available,
            }
            for policy in given.isolation
        ],
        "anti_affinity": [
            {"name": group.name, "namespaces": list(group.namespaces)}
            for group in given.anti_affinity
        ],
        "pinned_namespaces": list(given.pinned_namespaces),
        "budgets": [
            {"namespace": namespace, "moves_per_hour": most}
            for namespace, most in given.budgets.items()
        ],
    }
    return {name: part for name, part in parts.items() if part}
