"""Reports of cpu of brokers of two kinds, and what LeastMoves learns from them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from lb_stream.core.least_moves.cpu import CpuReports, learn_cpu
from lb_stream.core.least_moves.memory import LeastMovesMemory
from lb_stream.core.model.view import Floats

NAMES, KINDS = [f"b{at}" for at in range(6)], ["small"] * 3 + ["large"] * 3


def learned() -> LeastMovesMemory:
    """Reports of six brokers of two kinds."""
    return learn_cpu(
        LeastMovesMemory(), reports(NAMES, KINDS, np.full(6, 100.0), np.full(6, 0.3)), 0
    )


def reports(names: Sequence[str], kinds: Sequence[str], rate: Floats, usage: Floats) -> CpuReports:
    """Reports of cpu, of brokers that have not just started."""
    no, yes = np.zeros(len(names), np.bool_), np.ones(len(names), np.bool_)
    return CpuReports(names, kinds, rate, 1_000 * rate, usage, warming=no, loaded=yes)
