"""Spark's daemon of Python workers, without the traces of cancelled tasks.

The setting `spark.python.daemon.module` names this module. When Spark cancels a task, or the JVM
ends, the worker finds its socket closed, and Spark's own daemon prints a page of trace, for
instance at a Ctrl-C during a batch. That trace is of no use, as Spark reports failed tasks itself.
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
