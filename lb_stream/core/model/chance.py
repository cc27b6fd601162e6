"""Chance as a function: the same seed and subject always give the same draw.

See docs/placement.md "Filters".
"""

from __future__ import annotations

import hashlib

import numpy as np
from numpy.typing import NDArray


def seed_of(cluster: str, seq: int) -> int:
    """Return the seed of a round, which follows from its cluster and number."""
    return _number(f"{cluster}:{seq}")


def draw(seed: int, subject: str, candidates: NDArray[np.intp]) -> int:
    """Draw one of the candidates by the round's seed and the subject's name."""
    return int(candidates[draw_number(seed, subject, len(candidates))])


def draw_number(seed: int, subject: str, below: int) -> int:
    """Draw a number 0..below-1 by the round's seed and the subject's name."""
    return _number(f"{seed}:{subject}") % below


def _number(text: str) -> int:
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big")
