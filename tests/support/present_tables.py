"""Tables of a cluster as it is now, for what-if runs."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from lb_stream.contracts.tables import (
    BROKER_HISTORY,
    BROKER_LOADS,
    BUNDLE_HISTORY,
    COMMANDS,
    DECISIONS,
    OUTCOMES,
    OWNERSHIP,
    PROPOSALS,
    ROLLOUTS,
    ROUNDS,
)
from lb_stream.core.model.memory import Memory, Proposal, Suspension
from lb_stream.core.model.operator_state import OperatorState
from lb_stream.core.model.rollout import RolloutProgress
from tests.support.table_rows import fill

START_MS, MINUTE_MS = 1_767_225_600_000, 60_000
BROKERS = ("a:8080", "b:8080", "c:8080")
RATE = 20_000.0


def load(bundles: int) -> dict[str, float]:
    return {
        "rate_in_msgs_per_s": RATE * bundles,
        "rate_out_msgs_per_s": RATE * bundles,
        "throughput_in_bytes_per_s": 1e6 * bundles,
        "throughput_out_bytes_per_s": 1e6 * bundles,
    }


def write_present(
    folder: Path,
    slot_ms: int = MINUTE_MS,
    settings: Mapping[str, Any] = MappingProxyType({"dry_run": False, "shedding_enabled": False}),
    operator_state: OperatorState = OperatorState(),  # noqa: B008
    proposals: tuple[Proposal, ...] = (),
    vanished: tuple[str, ...] = (),
    rollout: RolloutProgress | None = None,
) -> Path:
    """Ten slots of time of eu: a serves eight bundles, b and c two each; a broker is full with
    twelve. `vanished`: suspend the cluster."""
    owners = [*[BROKERS[0]] * 8, *[BROKERS[1]] * 2, *[BROKERS[2]] * 2]
    times = [{"cluster": "eu", "slot_ms": START_MS + slot * slot_ms} for slot in range(10)]
    clients = {"topics": 2, "producers": 3, "consumers": 4}
    bundles = [
        {"bundle": f"shop/n{row}/0x00000000_0xffffffff", "owner": owner} | load(1) | clients
        for row, owner in enumerate(owners)
    ]
    fill(folder, BUNDLE_HISTORY, [time | bundle for time in times for bundle in bundles])
    limits = {"cpu_limit": 100.0, "memory_limit": 8192.0, "direct_memory_limit": 8192.0} | {
        f"bandwidth_{way}_limit": 10_000_000.0 for way in ("in", "out")
    }
    brokers = [
        {"broker": name, "cpu_usage": 100 / 12 * owners.count(name)}
        | limits
        | load(owners.count(name))
        for name in BROKERS
    ]
    fill(
        folder,
        BROKER_HISTORY,
        [time | broker | {"reported_ms": time["slot_ms"]} for time in times for broker in brokers],
    )
    lives = [
        {"cluster": "eu", "seq": seq, "now_ms": time["slot_ms"], "broker": broker, "alive": True}
        | {"seen_ms": time["slot_ms"], "reported_ms": time["slot_ms"]}
        for seq, time in enumerate(times)
        for broker in BROKERS
    ]
    fill(folder, BROKER_LOADS, lives)
    suspension = (
        Suspension("mass_disappearance", START_MS, START_MS, vanished) if vanished else None
    )
    memory = Memory(
        operator_state=operator_state,
        proposals=proposals,
        suspension=suspension,
        rollout=rollout,
    ).to_json()
    log = {
        "seq": 1,
        "now_ms": START_MS,
        "memory": memory,
        "inputs": json.dumps({"settings": dict(settings)}),
        "refusals": "[]",
    }
    fill(folder, ROUNDS, [{"cluster": "eu", "log_seq": 0} | log])
    for table in (COMMANDS, DECISIONS, OUTCOMES, OWNERSHIP, PROPOSALS, ROLLOUTS):
        fill(folder, table, [])
    return folder
