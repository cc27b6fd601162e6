"""What a batch publishes. No JVM, no Kafka needed."""

import json

import pyarrow as pa

from lb_stream.contracts.settings import TopicSettings
from lb_stream.contracts.tables import ROUNDS
from lb_stream.io.outbox import LONGEST_TEXT, _records
from lb_stream.stream.ports import Logged


def test_an_answer_that_quotes_an_endless_command_fits_into_kafka() -> None:
    answer = {"id": "1", "kind": "unload", "outcome": "refused", "text": "no " + "x" * 20_000_000, "rule": None, "decision_ids": []}
    row = {name: None for name in ROUNDS.schema.names} | {"cluster": "eu", "now_ms": 5, "results": json.dumps([answer])}
    logged = Logged(3, pa.Table.from_pylist([row | {"decisions": "[]", "ownership": "[]"}], ROUNDS.schema))
    ((topic, key, value, headers),) = _records(logged, TopicSettings())
    assert (topic, key, headers) == ("lb-command-results", "1", [])
    assert len(json.loads(value or "")["text"]) == LONGEST_TEXT
