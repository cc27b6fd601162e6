"""What a Python worker does with the memory of a task that was large."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

import pyarrow as pa

LARGE_BYTES = 768 << 20
"""A worker that holds more returns what it has freed. Batches of a million bundles need less."""

_STATM = Path("/proc/self/statm")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


def return_memory(large_bytes: int = LARGE_BYTES) -> bool:
    """Return freed memory to the system if this process holds more than `large_bytes`.

    Workers keep freed memory for the next batch, which is faster. But a cluster's first batch is
    folded as one shard, and no later task of its worker needs as much again. Returns whether
    memory was returned; never where the system has no /proc, or its C library can't.
    """
    try:
        resident_bytes = int(_STATM.read_text().split()[1]) * _PAGE_BYTES
        trim = ctypes.CDLL(None).malloc_trim
    except (OSError, AttributeError):
        return False
    if resident_bytes <= large_bytes:
        return False
    pa.default_memory_pool().release_unused()
    trim(0)
    return True
