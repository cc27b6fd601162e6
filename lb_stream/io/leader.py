"""Who leads: a row of the table `leaders` for each start of the job."""

from __future__ import annotations

import os
import socket
import time

import pyarrow as pa

from lb_stream.contracts.tables import LEADERS
from lb_stream.io.delta import append_rows, committed, open_table, transaction


def announce(root: str, pipeline: str, last_epoch: int) -> int:
    """Write down that this process leads from now on. Returns its epoch: greater than that of every start before it, whether that start
    has logged a round or not. `last_epoch`: the greatest in the log.

    Whoever led before has been shut out of publishing already. Raises CommitFailedError when another start is announced right now.
    """
    table = open_table(root, LEADERS)
    epoch = max(last_epoch, committed(table, pipeline) or 0) + 1
    since_ms = time.time_ns() // 1_000_000
    row = {"pipeline": pipeline, "epoch": epoch, "host": socket.getfqdn(), "pid": os.getpid(), "since_ms": since_ms}
    append_rows(table, LEADERS, pa.Table.from_pylist([row], LEADERS.schema), f"{epoch:012d}", transaction((pipeline, epoch)))
    return epoch
