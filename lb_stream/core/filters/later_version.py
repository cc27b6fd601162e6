"""Versions: during an upgrade, bundles go to the brokers of the latest version."""

from __future__ import annotations

import re

import numpy as np

from lb_stream.core.filters.base import FilterContext, FilterError
from lb_stream.core.model.rules import FilteredBy, Refuses
from lb_stream.core.model.view import ClusterView, Rows

_NUMBER = r"(?:0|[1-9][0-9]{0,9})"
_PRE = r"(?:0|[1-9][0-9]{0,9}|[0-9]*[A-Za-z-][0-9A-Za-z-]*)"
_VERSION = re.compile(
    rf"({_NUMBER})\.({_NUMBER})\.({_NUMBER})(?:-({_PRE}(?:\.{_PRE})*))?"
    r"(?:\+([0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*))?"
)
_MAX_NUMBER = 2**31 - 1

Identifier = tuple[int, int, str]
"""Numbers sort before words, numbers by value, words by their characters."""
VersionKey = tuple[tuple[int, ...], tuple[int | Identifier, ...], tuple[int | Identifier, ...]]


def version_key(text: str) -> VersionKey | None:
    """Return the key that versions sort by, build metadata included; None: no semantic version."""
    match = _VERSION.fullmatch(text)
    if match is None:
        return None
    numbers = tuple(map(int, match.group(1, 2, 3)))
    if max(numbers) > _MAX_NUMBER:
        return None
    pre, build = match.group(4, 5)
    return (
        numbers,
        (1,) if pre is None else (0, *_identifiers(pre)),
        (0,) if build is None else (1, *_identifiers(build)),
    )


def _identifiers(text: str) -> list[Identifier]:
    """Return the sort keys of the parts of a pre-release or build."""
    return [
        (0, int(part), "") if part.isdigit() and len(part) < 11 else (1, 0, part)
        for part in text.split(".")
    ]


class LaterVersion:
    """Keeps the brokers with the latest version among those given."""

    rule = FilteredBy.VERSION

    def __init__(self, view: ClusterView) -> None:
        keys = {text: version_key(text) for text in dict.fromkeys(view.brokers.versions)}
        order = {
            key: rank
            for rank, key in enumerate(sorted({key for key in keys.values() if key is not None}))
        }
        ranks = {text: -1 if key is None else order[key] for text, key in keys.items()}
        self._rank = np.array([ranks[text] for text in view.brokers.versions], np.int64)

    def keep(self, context: FilterContext) -> Rows:
        """Return the brokers with the latest version.

        Raises FilterError when a broker's version is missing or can't be read.
        """
        rows = context.rows
        rank = self._rank[rows]
        if (rank < 0).any() or not len(rows):
            raise FilterError(Refuses.VERSION_UNKNOWN, rows[rank < 0])
        kept: Rows = rows[rank == rank.max()]
        return kept
