"""A stand-in for Kafka: records what commands send, and answers as a test has written."""

import json
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

Answers = list[tuple[str, str]]


@dataclass
class Broker:
    """Stands in for Kafka: what was sent, and what is answered to it, one poll after another."""

    answers: list[Answers] = field(default_factory=list)  # of each poll: cluster, outcome
    sent: list[tuple[str, dict[str, Any]]] = field(default_factory=list)  # key, command

    def send(self, _topic: str, key: bytes, value: bytes) -> Any:
        self.sent.append((key.decode(), json.loads(value)))
        return SimpleNamespace(get=lambda timeout: None)

    def poll(self, timeout_ms: int) -> dict[str, list[Any]]:
        some = self.answers.pop(0) if self.answers and self.sent else []
        other = SimpleNamespace(key=b"another", value=b"{}")
        return {"results": [other, *(self._result(cluster, outcome) for cluster, outcome in some)]}

    def _result(self, cluster: str, outcome: str) -> Any:
        command = self.sent[-1][1]
        value = {
            "id": command["id"],
            "cluster": cluster,
            "kind": command["kind"],
            "outcome": outcome,
            "text": f"it is {outcome}",
        }
        value |= {"rule": "drained" if outcome == "refused" else None, "at_ms": 1}
        return SimpleNamespace(key=command["id"].encode(), value=json.dumps(value).encode())

    def partitions_for_topic(self, _topic: str) -> set[int]:
        return {0}

    def assign(self, _partitions: Any) -> None: ...

    def end_offsets(self, partitions: list[Any]) -> dict[Any, int]:
        return dict.fromkeys(partitions, 7)

    def seek(self, _partition: Any, offset: int) -> None:
        assert offset == 7

    def close(self) -> None: ...
