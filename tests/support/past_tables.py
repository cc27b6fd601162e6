"""Tables of two clusters with a past that a scenario can be made of: loads, limits, deaths, a
drain, rules, times of moves."""

from __future__ import annotations

from pathlib import Path

from lb_stream.contracts.tables import (
    BROKER_HISTORY,
    BROKER_LOADS,
    BUNDLE_HISTORY,
    COMMANDS,
    DECISIONS,
    OUTCOMES,
    ROUNDS,
)
from lb_stream.core.model.memory import Memory
from lb_stream.core.model.operator_state import OperatorState
from tests.support.table_rows import fill

START_MS, MINUTE_MS = 1_767_225_600_000, 60_000  # 2026-01-01
BROKERS = ("a:8080", "b:8080")
BUNDLES = {
    f"shop/{name}/0x00000000_0xffffffff": owner
    for name, owner in (("carts", "a:8080"), ("orders", "b:8080"))
}


def load(rate: float) -> dict[str, float]:
    names = (
        "rate_in_msgs_per_s",
        "rate_out_msgs_per_s",
        "throughput_in_bytes_per_s",
        "throughput_out_bytes_per_s",
    )
    return dict(zip(names, (rate, 2 * rate, 100 * rate, 200 * rate), strict=True))


def at(minute: float) -> int:
    return START_MS + round(minute * MINUTE_MS)


def write_past(folder: Path) -> None:
    """Six minutes of the cluster eu, of which b is dead for two, and a minute of us."""
    limits = {
        f"{name}_limit": 800.0
        for name in ("cpu", "memory", "direct_memory", "bandwidth_in", "bandwidth_out")
    }
    times = [("eu", minute) for minute in range(6)] + [("us", 0)]
    of = [{"cluster": cluster, "slot_ms": at(minute)} for cluster, minute in times]
    rows = [
        one | {"bundle": bundle, "owner": owner} | load(10.0 + n)
        for n, one in enumerate(of)
        for bundle, owner in BUNDLES.items()
    ]
    fill(folder, BUNDLE_HISTORY, rows)
    told = [
        one
        | {"broker": broker, "reported_ms": one["slot_ms"], "cpu_usage": 3.0 + n, **limits}
        | load(10.0 + n)
        for n, one in enumerate(of)
        for broker in BROKERS
    ]
    fill(folder, BROKER_HISTORY, told)
    lives = [
        {
            "cluster": "eu",
            "seq": n,
            "now_ms": at(n / 2),
            "broker": broker,
            "seen_ms": at(n / 2),
            "reported_ms": at(n / 2),
        }
        | {"alive": broker == BROKERS[0] or n not in (4, 5, 6, 7)}
        for n in range(12)
        for broker in BROKERS
    ]
    fill(folder, BROKER_LOADS, lives)
    memory = Memory(
        operator_state=OperatorState(anti_affinity={"shop/carts": "apart", "shop/orders": "apart"})
    ).to_json()
    fill(
        folder,
        ROUNDS,
        [
            {
                "cluster": "eu",
                "log_seq": 0,
                "seq": 1,
                "now_ms": at(0),
                "memory": memory,
                "inputs": '{"settings": {}}',
            }
        ],
    )
    order = {
        "cluster": "eu",
        "kind": "drain-broker",
        "arguments": '{"broker": "a:8080"}',
        "id": "x",
        "at_ms": at(1),
    }
    fill(
        folder,
        COMMANDS,
        [order | {"outcome": outcome, "now_ms": at(2)} for outcome in ("accepted", "done")],
    )
    made = [("assign", 4_000), ("transfer", 7_000)]
    common = {"cluster": "eu", "issued_ms": at(1), "dry_run": False}
    fill(folder, DECISIONS, [common | {"decision_id": kind, "kind": kind} for kind, _ in made])
    left = {"assign": None, "transfer": at(1) + 3_000}
    ended = {"cluster": "eu", "outcome": "confirmed"}
    rows = [
        {"decision_id": kind, "took_ms": took, "released_ms": left[kind]} for kind, took in made
    ]
    fill(folder, OUTCOMES, [ended | row for row in rows])
