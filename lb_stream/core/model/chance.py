"""Chance as a function: the same seed and subject always draw the same.

See docs/placement.md "Filters".
"""

from __future__ import annotations

import hashlib

import numpy as np
from numpy.typing import NDArray


def seed_of(cluster: str, seq: int) -> int:
    """The round's seed: the same cluster and number always give the same chance."""
    return _number(f"{cluster}:{seq}")


def draw(seed: int, subject: str, candidates: NDArray[np.intp]) -> int:
    """One of the candidates (in order) by the round's seed and the subject's name."""
    return int(candidates[draw_number(seed, subject, len(candidates))])


def draw_number(seed: int, subject: str, below: int) -> int:
    """A number 0..below-1 by the round's seed and the subject's name."""
    return _number(f"{seed}:{subject}") % below


def _number(text: str) -> int:
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big")
