"""Tables with a decision that is obeyed, for screens."""

import json
import unicodedata
from pathlib import Path

from lb_stream.contracts.decisions import example_decision
from lb_stream.contracts.tables import (
    AUDIT,
    BROKER_LOADS,
    COMMANDS,
    DECISIONS,
    LEADERS,
    OUTCOMES,
    REFUSALS,
    ROUNDS,
)
from lb_stream.core.model.memory import Memory
from tests.support.table_rows import NOW, decided, fill, load

UNSEEN = ("Cc", "Cf", "Cs", "Zl", "Zp")


def obeyed(text: str, keep: str = "\n") -> list[str]:
    """What a terminal would act on instead of showing it."""
    return [
        letter for letter in text if unicodedata.category(letter) in UNSEEN and letter not in keep
    ]


def write(folder: Path, broker: str, bundle: str) -> None:
    """Tables in which a broker and a bundle have these names, and errors and refusals name them."""
    fill(
        folder,
        ROUNDS,
        [
            {
                "cluster": "eu-1",
                "seq": 1,
                "log_seq": 1,
                "now_ms": NOW,
                "epoch": 1,
                "batch_id": 1,
                "outcomes": "[]",
                "inputs": '{"settings": {}}',
                "memory": Memory().to_json(),
                "error": f"{broker} fails",
            }
        ],
    )
    fill(
        folder,
        BROKER_LOADS,
        [load("eu-1", 1, broker, 5.0), load("eu-1", 1, "b-2:80", 1.0, alive=False)],
    )
    one = example_decision(
        decision_id="eu-1:1:0",
        seq=1,
        bundle=bundle,
        issued_ms=NOW,
        source=broker,
        destination="b-2:80",
    )
    fill(folder, DECISIONS, [decided(one)])
    fill(
        folder,
        OUTCOMES,
        [
            {
                "decision_id": "eu-1:1:0",
                "cluster": "eu-1",
                "seq": 1,
                "outcome": "refused",
                "detail": broker,
                "took_ms": 5,
            }
        ],
    )
    fill(
        folder,
        REFUSALS,
        [
            {
                "cluster": "eu-1",
                "seq": 1,
                "now_ms": NOW,
                "rule": "most_topics",
                "broker": broker,
                "subjects": [bundle],
                "count": 1,
                "unit": broker,
            }
        ],
    )
    fill(
        folder,
        LEADERS,
        [{"pipeline": broker, "epoch": 1, "host": bundle, "pid": 1, "since_ms": NOW}],
    )
    fill(
        folder,
        AUDIT,
        [
            {
                "cluster": "eu-1",
                "number": 1,
                "log_seq": 1,
                "seq": 1,
                "at_ms": NOW,
                "now_ms": NOW,
                "by": broker,
                "key_id": bundle,
                "right": bundle,
                "kind": "x",
                "objects": [f"bundle {bundle}"],
                "arguments": json.dumps({"bundle": bundle}),
                "old_value": json.dumps({"drained": []}),
                "new_value": json.dumps({"drained": [broker]}),
                "command_id": "c",
                "outcome": "refused",
                "rule": broker,
                "text": bundle,
                "decision_ids": ["eu-1:1:0"],
                "repeated": False,
                "previous_hash": "",
                "hash": broker,
            }
        ],
    )
    fill(
        folder,
        COMMANDS,
        [
            {
                "cluster": "eu-1",
                "id": "c",
                "by": broker,
                "kind": "x",
                "arguments": json.dumps({"bundle": bundle}),
                "outcome": "refused",
                "text": bundle,
                "at_ms": NOW,
                "log_seq": 1,
            }
        ],
    )
