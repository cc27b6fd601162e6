"""A prefilled reports topic that keeps a balancer deciding: in every second round half of the
bundles change hands, and every fifth round another broker becomes the hot one."""

import json
import re
from typing import Any

from lb_stream.agent.columnar import ReportEncoder
from lb_stream.contracts.reads import FORMS, Reads

CLUSTERS, BROKERS, BUNDLES = ("east", "west"), 3, 12
PARTITIONS = 2
RECORDS_A_ROUND = len(CLUSTERS) * BROKERS
HOT_ROUNDS = 5
"""For so many rounds one broker is the hot one."""
LOST_ROUNDS = 4
"""Once in so many rounds no broker names a bundle, which so needs an owner."""

SETTINGS = {
    "dry_run": "false",
    "shedding_interval_ms": 0,
    "shedding_grace_period_ms": 0,
    "history_ratio": 0.25,
    "min_throughput_mb": 0,
    "stream.tick_interval_ms": 0,
    "stream.max_offsets_per_trigger": RECORDS_A_ROUND,
}
"""The clock stands still and a batch is a round, so that runs can be compared byte for byte."""


def bundle(number: int) -> str:
    """One of BUNDLES ranges of a namespace."""
    width = 0x1_0000_0000 // BUNDLES
    return f"acme/orders/0x{number * width:08x}_0x{min((number + 1) * width, 0xFFFFFFFF):08x}"


def report(broker: int, number: int) -> dict[str, Any]:
    """A broker's report of one round."""
    hot = number // HOT_ROUNDS % BROKERS == broker
    rate = 400.0 if hot else 40.0
    lost = number // LOST_ROUNDS % BUNDLES if number % LOST_ROUNDS == 0 else None
    moving = range(BUNDLES // 2)
    mine = [
        at
        for at in range(BUNDLES)
        if (at + (number // 2 if at in moving else 0)) % BROKERS == broker and at != lost
    ]
    # A third of the bundles have other figures in each round.
    rates = {at: rate + at + (number % 7 if at % 3 == 2 else 0) for at in mine}
    stats = {
        bundle(at): {"msgRateIn": rate, "msgThroughputIn": 1000 * rate, "topics": 5}
        for at, rate in rates.items()
    }
    return {
        "cpu": {"usage": 90.0 if hot else 15.0 + number % 3, "limit": 100.0},
        "msgThroughputIn": sum(stat["msgThroughputIn"] for stat in stats.values()),
        "lastUpdate": 1_000 * number,
        "lastStats": stats,
        "loadReportType": "LocalBrokerData",
    }


def records(
    rounds: int, columnar: tuple[int, ...] = ()
) -> list[tuple[bytes | None, bytes | None, str | None]]:
    """All reports, for Pipeline.send. `columnar`: brokers that send columns, and deltas of them."""
    encoder = ReportEncoder(min_bundles=1, clock=lambda: 0.0)
    encoder.note_reads(Reads(cluster="", forms=list(FORMS), checkpoint=""), ())
    found: list[tuple[bytes | None, bytes | None, str | None]] = []
    for number in range(rounds):
        for cluster in CLUSTERS:
            for broker in range(BROKERS):
                key, given = f"{cluster}/b{broker}", report(broker, number)
                if broker not in columnar:
                    found.append((key.encode(), json.dumps(given).encode(), None))
                    continue
                for kind, value in encoder.encode(key, given):
                    found.append((key.encode(), value, kind))
    return found


def without_epoch(text: str) -> str:
    """JSON without its epochs, otherwise byte for byte: they tell how often the job was started,
    all that a kill may change."""
    return re.sub(r'"epoch":\d+,?', "", text)
