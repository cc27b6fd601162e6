"""Tables of a cluster whose next moves are planned, and the plan of `lbctl plan`."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

from lb_stream.contracts.base import RESOURCES
from lb_stream.contracts.tables import (
    BROKER_LOADS,
    BUNDLE_AVERAGES,
    ROUNDS,
)
from lb_stream.core.model.memory import Memory
from tests.support.lbctl_runner import Result, lbctl
from tests.support.table_rows import fill

NOW_MS = 1_767_225_600_000
UNEVEN = {"a:8080": (4.0, 3.0, 2.0), "b:8080": (1.0, 1.0), "c:8080": (1.5,)}


def rates(size: float, *prefixes: str) -> dict[str, float]:
    return {
        f"{prefix}_{name}": factor * size
        for prefix in prefixes
        for name, factor in (
            *(("rate_in_msgs_per_s", 1e4), ("rate_out_msgs_per_s", 1e4)),
            *(("throughput_in_bytes_per_s", 1e6), ("throughput_out_bytes_per_s", 1e6)),
        )
    }


def name_of(number: int) -> str:
    return f"shop/n/0x{number:08x}_0x{number + 1:08x}"


def write(
    folder: Path,
    owned: Mapping[str, tuple[float, ...]] = UNEVEN,
    memory: Memory | None = None,
    topics: int = 1,
    name: Callable[[int], str] = name_of,
    dead: Collection[str] = (),
    **settings: Any,
) -> Path:
    """Tables of eu, whose brokers have all just reported. `topics`: of each bundle.

    `dead`: brokers that the last round took for dead.
    """
    at = {"cluster": "eu", "now_ms": NOW_MS, "log_seq": 7}
    spans = ("latest", "short", "long")
    loads = [
        {
            "broker": broker,
            "seq": 8,
            "alive": broker not in dead,
            "seen_ms": NOW_MS,
            "reported_ms": NOW_MS,
            "bundles": len(sizes),
            "topics": 1,
        }
        | {f"{name}_ratio": sum(sizes) / 12 if name == "cpu" else 0.1 for name in RESOURCES}
        | {"usage_ratio": sum(sizes) / 12}
        | rates(sum(sizes), *spans)
        for broker, sizes in owned.items()
    ]
    fill(folder, BROKER_LOADS, [at | load for load in loads])
    each = enumerate((broker, size) for broker, sizes in owned.items() for size in sizes)
    bundles = [
        {
            "bundle": name(number),
            "owner": broker,
            "owner_since_ms": 0,
            "topics": topics,
            "short_samples": 10,
            "long_samples": 100,
            "part": "0",
        }
        | rates(size, *spans)
        for number, (broker, size) in each
    ]
    fill(folder, BUNDLE_AVERAGES, [at | bundle for bundle in bundles])
    told = memory or Memory(seq=8)
    inputs = json.dumps({"settings": {"dry_run": False} | settings})
    fill(
        folder,
        ROUNDS,
        [at | {"seq": 8, "memory": told.to_json(), "inputs": inputs, "refusals": "[]"}],
    )
    return folder


def asked(tables: Path, *arguments: str, stdin: bytes = b"") -> Result:
    return lbctl("plan", *arguments, "--set", f"stream.tables={tables}", cwd=tables, stdin=stdin)


def told(tables: Path, *arguments: str) -> dict[str, Any]:
    result = asked(tables, *arguments, "--json")
    assert result.code == 0, result.err
    (found,) = result.objects
    return dict(found)


SMALL = {"a:8080": (1.0,) * 8, "b:8080": (1.0, 1.0), "c:8080": (1.0,) * 2}
