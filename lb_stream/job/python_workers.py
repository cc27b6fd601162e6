"""Spark's daemon of Python workers (`spark.python.daemon.module`), quiet about workers whose task is over.

A worker whose task Spark has cancelled, or whose JVM has ended, finds its socket closed, and Spark's own daemon then prints a page of
trace: at a Ctrl-C that meets a batch, for instance. There is nothing in it to mend; that the task has failed Spark says itself.

It imports what tasks need before it forks: workers that import it each by itself take seconds of every core at a job's start.
"""

from __future__ import annotations

import sys
import traceback
from importlib import import_module
from types import SimpleNamespace

from pyspark import daemon

TASKS = ("lb_stream.stream.transforms", "pyspark.sql.pandas.serializers", "pyspark.sql.streaming.stateful_processor")
"""What the functions of the stream are unpickled from."""


def print_exc() -> None:
    """In place of `traceback.print_exc` in the daemon: nothing for a socket that the other side has closed."""
    if not isinstance(sys.exception(), BrokenPipeError | ConnectionResetError):
        traceback.print_exc()


vars(daemon)["traceback"] = SimpleNamespace(**vars(traceback) | {"print_exc": print_exc})


def import_tasks() -> None:
    """Import what every worker will use."""
    for name in TASKS:
        import_module(name)


if __name__ == "__main__":
    import_tasks()
    daemon.manager()
