"""Which task of which batch this is, and what its worker does before its first task."""

from __future__ import annotations

import gc
import os
import sys
from functools import cache

from pyspark import TaskContext


def current_task() -> tuple[int, int, int]:
    """Number of the batch, of the partition and of the attempt; zeros outside of a task.

    A worker's first task also puts its modules aside: every task begins here.
    """
    task = TaskContext.get()
    if task is None:
        return 0, 0, 0
    _keep_modules()
    return (
        int(task.getLocalProperty("streaming.sql.batchId") or 0),
        task.partitionId(),
        task.taskAttemptId(),
    )


@cache
def _keep_modules() -> None:
    """Once in a worker: what has been imported is no garbage.

    PySpark looks through everything after each task, 15 ms of a batch's way.
    """
    gc.freeze()


def silence_schema_worker() -> None:
    """Spark asks a worker of its own about the operator's state before a query's first batch.

    It prints six lines about itself: not so.
    """
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    if spec is not None and spec.name.endswith("transform_with_state_driver_worker"):
        with open(os.devnull, "wb") as nowhere:
            os.dup2(nowhere.fileno(), 1)
