"""What every secured loop must have left behind: the same decisions everywhere, each once."""

import json
from collections import Counter

from tests.e2e.kafka_reads import committed
from tests.e2e.pipeline import Pipeline
from tests.e2e.secure.roles_at_work import Users
from tests.support.secure_kafka import ADMIN, SecureKafka


def assert_made_once(kafka: SecureKafka, users: Users) -> list[str]:
    """Topic, log and table have the same decisions, each once, and epochs rise.

    Returns the decisions' ids.
    """
    run = Pipeline(users.bootstrap, users.topics, users.folder)
    rounds = sorted(run.table("rounds").to_pylist(), key=lambda row: row["log_seq"])
    logged = Counter(
        entry["decision_id"] for row in rounds for entry in json.loads(row["decisions"])
    )
    assert logged and max(logged.values()) == 1
    records = committed(kafka.mtls, users.topics.decisions, **kafka.certified(ADMIN))
    assert Counter(json.loads(record.value)["decision_id"] for record in records) == logged
    assert Counter(run.table("decisions")["decision_id"].to_pylist()) == logged
    epochs = [row["epoch"] for row in rounds]
    assert epochs == sorted(epochs) and epochs[0] < epochs[-1]
    return list(logged)
