"""The running task of a batch, and the preparation of a Python worker for its first task."""

from __future__ import annotations

import gc
import os
import sys
from functools import cache
from typing import NamedTuple

from pyspark import TaskContext


class TaskId(NamedTuple):
    """Numbers of a task: of its batch, of its partition, of its attempt."""

    batch_id: int
    partition: int
    attempt: int


def current_task() -> TaskId:
    """Return the numbers of the running task; zeros outside of a task.

    Every task calls this first. The first call in a worker also excludes the imported modules from
    garbage collection.
    """
    task = TaskContext.get()
    if task is None:
        return TaskId(0, 0, 0)
    _freeze_modules()
    return TaskId(
        int(task.getLocalProperty("streaming.sql.batchId") or 0),
        task.partitionId(),
        task.taskAttemptId(),
    )


@cache
def _freeze_modules() -> None:
    """Exclude all imported modules from garbage collection, once in a worker.

    PySpark collects garbage after each task, and the modules would cost 15 ms of each batch.
    """
    gc.freeze()


def silence_schema_worker() -> None:
    """Discard the output of the worker that Spark starts for the state's schema.

    Spark starts it before a query's first batch, and it prints six lines about itself.
    """
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    if spec is not None and spec.name.endswith("transform_with_state_driver_worker"):
        with open(os.devnull, "wb") as null:
            os.dup2(null.fileno(), 1)
