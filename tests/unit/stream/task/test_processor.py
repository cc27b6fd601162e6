"""What Spark's first Python process of a query has to import, which asks a processor for its
state's schema and nothing else."""

import json
import pickle
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from lb_stream.core.averages import FoldConfig
from lb_stream.store import Store
from lb_stream.stream.averages import Folding
from lb_stream.stream.task.processor import STATE_DDL, ShardProcessor

ASKING = """
import json, pickle, sys
from types import SimpleNamespace

calls = []
client = SimpleNamespace(set_handle_state=calls.append, _client_socket=None)
handle = SimpleNamespace(_statefulProcessorApiClient=client, getValueState=lambda *asked: calls.append(asked))
processor = pickle.load(sys.stdin.buffer)
processor.init(handle)
processor.close()
modules = [name for name in sys.modules if name.startswith("lb_stream.")]
print(json.dumps({"calls": calls, "modules": modules, "pandas": "pandas" in sys.modules}))
"""


def test_a_processor_that_is_asked_for_its_state_imports_nothing_that_folds(tmp_path: Path) -> None:
    processor = ShardProcessor(Folding({}, FoldConfig(), Store.at(tmp_path), "cafe0123", 1))
    asked = subprocess.run(
        [sys.executable, "-c", ASKING],
        input=pickle.dumps(processor),
        stdout=subprocess.PIPE,
        check=True,
    )
    result = json.loads(asked.stdout)
    assert result["calls"] == [["shard", STATE_DDL]]
    own = {
        "stream",
        "stream.task",
        "stream.task.current_task",
        "stream.task.processor",
    }
    assert set(result["modules"]) == {f"lb_stream.{name}" for name in own}
    assert not result["pandas"]


class Noting:
    """Work that tells what it was asked for."""

    def __init__(self) -> None:
        self.asked: list[object] = []

    def begin(self, state: object) -> None:
        self.asked.append(("begin", state))

    def fold(self, key: Any, rows: Iterator[Any]) -> Iterator[Any]:
        self.asked.append((key, list(rows)))
        yield from self.asked

    def close(self) -> None:
        self.asked.append("closed")


def test_each_task_begins_its_own_work_with_its_first_key_and_ends_it() -> None:
    processor: Any = pickle.loads(pickle.dumps(ShardProcessor(Noting())))
    for state in ("one", "another"):
        client = SimpleNamespace(
            set_handle_state=None,
            _client_socket=SimpleNamespace(recv=lambda *_: b"", close=lambda: None),
        )
        processor.init(
            SimpleNamespace(
                _statefulProcessorApiClient=client, getValueState=lambda *_, state=state: state
            )
        )
        for key in (1, 2):
            result = list(processor.handleInputRows(key, iter("ab"), None))
        assert result == [("begin", state), (1, ["a", "b"]), (2, ["a", "b"])]
        processor.close()
        assert processor._work.asked[-1] == "closed"
