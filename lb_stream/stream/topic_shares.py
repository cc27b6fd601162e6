"""Checks the topics' shares that a report gives of some of its bundles.

A bundle's shares that can't be right are rejected. The report's other parts count all the same, and
the bundle keeps the shares that were reported before.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Container, Mapping
from itertools import islice

import msgspec
import numpy as np

from lb_stream.core.model.names import FULL_RANGE_END, parse_bundle
from lb_stream.core.model.topic_shares import Floats, Ints

MAX_BUNDLES = 100
"""Bundles of one report whose topics' shares are read; agents report ten."""

SUM_TOLERANCE = 0.05
"""How far the sum of a bundle's shares may be from 1: rates are measured one after another."""

TopicParts = dict[str, tuple[Ints, Floats]]
"""Bundle → hashes of its topics, and the share of each in its load."""

_FIELD = "topicShares"
_LIST = "a list of [hash, share], not empty: a whole number, and a finite one from 0 on"
_TYPED = msgspec.json.Decoder(dict[str, list[tuple[int, float]]])


class WrongShares(Exception):
    """Shares that can't be right: the field, its value, and what was expected."""

    def __init__(self, field: str, value: str, expected: str) -> None:
        super().__init__(field, value, expected)
        self.field, self.value, self.expected = field, value, expected


def read_topic_shares(
    given: object, named: Callable[[], Container[str]]
) -> tuple[TopicParts, WrongShares | None]:
    """Return the shares that may be right, and the first of those that can't, if there are any.

    `given`: the field as raw JSON, or as Python values; None or empty: it is missing. `named`
    returns the bundles that the report names.
    """
    if isinstance(given, msgspec.Raw):
        raw = bytes(given)
        if not raw:
            return {}, None
        try:
            return _check_all(_TYPED.decode(raw), named(), is_typed=True)
        except msgspec.MsgspecError:
            given = json.loads(raw)
    if given is None:
        return {}, None
    if not isinstance(given, Mapping):
        return {}, WrongShares(_FIELD, _shown(given), f"an object: bundle → {_LIST}")
    return _check_all(given, named(), is_typed=False)


def _check_all(
    given: Mapping[str, object], named: Container[str], *, is_typed: bool
) -> tuple[TopicParts, WrongShares | None]:
    """Check each bundle's shares; `is_typed`: they are known to be lists of pairs of numbers."""
    found: TopicParts = {}
    wrong: list[WrongShares] = []
    for bundle, entries in islice(given.items(), MAX_BUNDLES):
        try:
            if bundle not in named:
                raise WrongShares(_FIELD, bundle, "a bundle that the report names")
            if not is_typed:
                _require_pairs(bundle, entries)
            found[bundle] = _check(bundle, entries)
        except WrongShares as error:
            wrong.append(error)
    if len(given) > MAX_BUNDLES:
        wrong.append(WrongShares(_FIELD, f"{len(given)} bundles", f"{MAX_BUNDLES} at most"))
    if not wrong:
        return found, None
    first, more = wrong[0], len(wrong) - 1
    if more:
        first.expected += f"; {more} more bundles of this report have wrong shares"
    return found, first


def _require_pairs(bundle: str, entries: object) -> None:
    """Raise WrongShares unless one bundle's shares are a list of pairs of numbers."""
    if not isinstance(entries, list):
        raise WrongShares(f"{_FIELD} of {bundle}", _shown(entries), _LIST)
    for entry in entries:
        if not _is_pair(entry):
            raise WrongShares(f"{_FIELD} of {bundle}", _shown(entry), _LIST)


def _check(bundle: str, entries: object) -> tuple[Ints, Floats]:
    """Return hashes and shares of one bundle's topics, a list of pairs. Raises WrongShares."""
    field = f"{_FIELD} of {bundle}"
    if not isinstance(entries, list) or not entries:
        raise WrongShares(field, _shown(entries), _LIST)
    try:
        hashes, share = np.array(entries, np.float64).T
    except OverflowError:  # a whole number beyond 1e308
        raise WrongShares(field, _shown(entries), _LIST) from None
    good = (hashes % 1 == 0) & (share >= 0) & (share < np.inf)
    if not good.all():
        raise WrongShares(field, _shown(entries[int(np.argmin(good))]), _LIST)
    try:
        _, lower, upper = parse_bundle(bundle)
    except ValueError:  # the whole report is rejected for such a name
        raise WrongShares(_FIELD, bundle, "a bundle's name") from None
    last = upper if upper == FULL_RANGE_END else upper - 1
    inside = (hashes >= lower) & (hashes <= last)
    if not inside.all():
        hash_outside = entries[int(np.argmin(inside))][0]
        raise WrongShares(field, f"hash {hash_outside}", f"a hash from {lower} to {last}")
    total = float(share.sum())
    if abs(total - 1) > SUM_TOLERANCE:
        count = f"{len(entries)} shares that add up to {total:.4g}"
        raise WrongShares(field, count, f"1, at most {SUM_TOLERANCE} more or less")
    return hashes.astype(np.int64), share.copy()


def _is_pair(entry: object) -> bool:
    """Return whether a value is a list of two numbers."""
    return (
        isinstance(entry, list | tuple)
        and len(entry) == 2
        and all(isinstance(part, int | float) for part in entry)
        and not any(isinstance(part, bool) for part in entry)
    )


def _shown(value: object) -> str:
    """Return a wrong value as text, cut to a length that can be read."""
    text = repr(list(value) if isinstance(value, tuple) else value)
    return text if len(text) <= 100 else f"{text[:99]}…"
