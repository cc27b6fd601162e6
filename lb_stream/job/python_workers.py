"""Spark's daemon of Python workers (`spark.python.daemon.module`), quiet about workers whose task
is over.

A worker whose task Spark has cancelled, or whose JVM has ended, finds its socket closed, and
Spark's own daemon then prints a page of trace: at a Ctrl-C that meets a batch, for instance. There
is nothing in it to mend; that the task has failed Spark says itself.
"""

from __future__ import annotations

import sys
import traceback
from types import SimpleNamespace

from pyspark import daemon


def print_exc() -> None:
    """In place of `traceback.print_exc` in the daemon: nothing for a socket that the other side has
    closed."""
    if not isinstance(sys.exception(), BrokenPipeError | ConnectionResetError):
        traceback.print_exc()


vars(daemon)["traceback"] = SimpleNamespace(**vars(traceback) | {"print_exc": print_exc})

if __name__ == "__main__":
    daemon.manager()
