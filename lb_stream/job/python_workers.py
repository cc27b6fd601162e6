"""Spark's daemon of Python workers, without traces of workers whose task is over.

It is the module `spark.python.daemon.module`. When Spark cancels a task, or the JVM ends, the
worker finds its socket closed. Spark's own daemon prints a page of trace then, for instance at a
Ctrl-C during a batch. The trace says nothing new: Spark reports failed tasks itself.
"""

from __future__ import annotations

import sys
import traceback
from types import SimpleNamespace

from pyspark import daemon


def print_exc() -> None:
    """Print the exception's trace, except for a socket that the other side has closed."""
    if not isinstance(sys.exception(), BrokenPipeError | ConnectionResetError):
        traceback.print_exc()


vars(daemon)["traceback"] = SimpleNamespace(**vars(traceback) | {"print_exc": print_exc})

if __name__ == "__main__":
    daemon.manager()
