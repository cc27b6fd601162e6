"""Spark's daemon of Python workers, which imports the stream, and hides cancelled tasks' traces.

The setting `spark.python.daemon.module` names this module. Workers are forks of the daemon, so they
have what it has imported. When Spark cancels a task, or the JVM ends, the worker finds its socket
closed, and Spark's own daemon prints a page of trace, for instance at a Ctrl-C during a batch. That
trace is of no use, as Spark reports failed tasks itself.
"""

from __future__ import annotations

import importlib
import os
import sys
import traceback
from contextlib import suppress
from types import SimpleNamespace

from pyspark import daemon

from lb_stream.io.without_pandas import without_pandas
from lb_stream.stream.task.imports import STREAM


def print_exc() -> None:
    """Print the exception's trace, except for a socket that the other side has closed."""
    if not isinstance(sys.exception(), BrokenPipeError | ConnectionResetError):
        traceback.print_exc()


vars(daemon)["traceback"] = SimpleNamespace(**vars(traceback) | {"print_exc": print_exc})


NO_THREADS = {
    "JE_ARROW_MALLOC_CONF": "background_thread:false",
    "OPENBLAS_NUM_THREADS": "1",
}
"""Variables without which Arrow's memory pool and NumPy's BLAS start threads at their import."""


LATE = (
    "pyspark.worker",
    "pyspark.sql.streaming.proto.StateMessage_pb2",
    # The client of the state asks it whether there is NumPy, and it asks for pandas, too.
    "pyspark.testing.utils",
    "numpy.ma",
)
"""What PySpark imports in a worker's first tasks."""


def preload() -> None:
    """Import what tasks need, without pandas, and without a thread: a fork has only one thread."""
    for name, value in NO_THREADS.items():
        os.environ.setdefault(name, value)
    with without_pandas():
        for module in (STREAM, *LATE):
            importlib.import_module(module)


if __name__ == "__main__":
    # An executor may have only the daemon's own module, and get the others with its first task.
    with suppress(ImportError):
        preload()
    daemon.manager()
