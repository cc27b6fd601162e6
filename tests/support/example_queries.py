"""The queries of docs/queries, the order of their rows, their parameters."""

from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"
FOLDER, PAGE = DOCS / "queries", DOCS / "tables.md"
BUNDLE = "shop/app-11/0x80000000_0xc0000000"
PARAMETERS = {
    "who_owns": {"bundle": BUNDLE},
    "why_unloaded": {"bundle": BUNDLE},
    "round": {"cluster": "demo", "seq": 6},
    "round_decided": {"cluster": "demo", "seq": 6},
}
ORDER = [
    "who_owns",
    "why_unloaded",
    "load_now",
    "moves_per_hour",
    "imbalance",
    "refusals_by_rule",
    "round",
    "round_decided",
    "outcomes",
    "returned",
    "heaviest_bundles",
    "rejected",
    "commands",
    "failed_rounds",
    "timings",
]
