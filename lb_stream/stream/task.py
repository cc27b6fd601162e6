"""Which task of which batch this is."""

from __future__ import annotations

from pyspark import TaskContext


def task_of_batch() -> tuple[int, int, int]:
    """Number of the batch, of the partition and of the attempt; zeros outside of a task."""
    task = TaskContext.get()
    if task is None:
        return 0, 0, 0
    return int(task.getLocalProperty("streaming.sql.batchId") or 0), task.partitionId(), task.taskAttemptId()
