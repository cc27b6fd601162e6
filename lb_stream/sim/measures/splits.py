"""Measures of splits."""

from __future__ import annotations

import numpy as np

from lb_stream.sim.measures.trace import OwnershipHistory

IDLE = 0.95
"""A split after which a child has this part of its parent's load has changed nothing."""


def measure_splits(history: OwnershipHistory) -> dict[str, float | int]:
    """Count splits, those that changed nothing, and bundles at the end ÷ at the start."""
    tree = history.tree
    idle = sum(
        bool(tree.part[list(children)].max() >= IDLE * tree.part[parent])
        for parent, children in history.splits
    )
    return {
        "splits": len(history.splits),
        "splits_idle": idle,
        "bundles_end_over_start": round(np.count_nonzero(history.exists) / tree.roots, 6),
    }
