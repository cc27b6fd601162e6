"""What runs that are killed and begun anew are compared by."""

import json

SETTINGS = {
    "dry_run": "false",
    "shedding_interval_ms": 0,
    "shedding_grace_period_ms": 0,
    "history_ratio": 0.5,
    "min_throughput_mb": 0,
    "stream.tick_interval_ms": 0,
    "stream.max_offsets_per_trigger": 6,
}
ROUNDS, BROKERS, BUNDLES = 12, 3, 8


def reports() -> list[tuple[bytes, bytes, None]]:
    """Three brokers whose load changes from report to report; the first one is hot.

    Nobody obeys.
    """
    records = []
    for number in range(ROUNDS):
        for broker in range(BROKERS):
            names = [
                f"acme/n{broker}/0x{at * 0x20000000:08x}_0x{min((at + 1) * 0x20000000, 0xFFFFFFFF):08x}"
                for at in range(BUNDLES)
            ]
            rate = (400.0 if broker == 0 else 40.0) + number
            stats = {
                name: {"msgRateIn": rate + at, "msgThroughputIn": 1000 * (rate + at), "topics": 5}
                for at, name in enumerate(names)
            }
            value = {
                "cpu": {"usage": 80.0 if broker == 0 else 10.0 + number, "limit": 100.0},
                "msgThroughputIn": sum(stat["msgThroughputIn"] for stat in stats.values()),
                "lastUpdate": 1_000 * number,
                "lastStats": stats,
                "loadReportType": "LocalBrokerData",
            }
            records.append((f"c1/b{broker}".encode(), json.dumps(value).encode(), None))
    return records


# What a round decided, without the names of this run's folders and ids.
COMPARED = (
    "batch_id",
    "log_seq",
    "cluster",
    "seq",
    "now_ms",
    "decisions",
    "outcomes",
    "ownership",
    "refusals",
    "error",
)


def without_epoch(text: str) -> str:
    """The epoch tells how often the job was started: the one thing that a kill may change."""
    rows = json.loads(text)
    return json.dumps(
        [{name: value for name, value in row.items() if name != "epoch"} for row in rows]
    )
