"""Bundle names: `<tenant>/<namespace>/0xLLLLLLLL_0xHHHHHHHH`."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from lb_stream.contracts.base import NAME_PART
from lb_stream.core.model.releases import NAME_RULES, Release

if TYPE_CHECKING:
    import pyarrow as pa

BUNDLE_PATTERN = rf"^{NAME_PART}/{NAME_PART}(/{NAME_PART})?/0x[0-9a-f]{{8}}_0x[0-9a-f]{{8}}$"
"""A namespace has two parts, or three: heartbeat namespaces are `pulsar/<cluster>/<host:port>`.

No part is `.` or `..`.
"""

SYSTEM_NAMESPACE = "pulsar/system"
"""The namespace of the brokers' own topics. Its bundles are spread evenly, and never shed by the
extensible manager."""

FULL_RANGE_END = 0xFFFFFFFF
RANGE_LENGTH = len("/0x00000000_0xffffffff")
BOUND_LENGTH = len("0xffffffff")
_DIGITS = 8
"""Digits of a range's bound, after `0x`."""
_ENDS_IN = np.dtype([("lower", ">u8"), ("between", "S3"), ("upper", ">u8")])
"""The last characters of a bundle's name: LLLLLLLL_0xHHHHHHHH."""


class BundleRange(NamedTuple):
    """The hash range of a bundle: [lower, upper). The last of a namespace includes 0xffffffff."""

    namespace: str
    lower: int
    upper: int


def parse_bundle(name: str) -> BundleRange:
    """Split a bundle's name into namespace and range. Raises ValueError for an invalid name."""
    if not re.fullmatch(BUNDLE_PATTERN, name):
        raise ValueError(
            f"not a bundle name: {name!r}; expected <tenant>/<namespace>/0xLLLLLLLL_0xHHHHHHHH"
        )
    namespace, _, bounds = name.rpartition("/")
    lower, upper = (int(bound, 16) for bound in bounds.split("_"))
    if lower >= upper:
        raise ValueError(
            f"empty bundle range: {name!r}; expected a lower bound below the upper one"
        )
    return BundleRange(namespace, lower, upper)


def are_bundle_names(names: pa.Array | pa.ChunkedArray, longest: int) -> NDArray[np.bool_]:
    """Return which names are those of bundles, of at most `longest` bytes."""
    import pyarrow.compute as pc

    lower, upper = pc.utf8_slice_codeunits(names, -21, -11), pc.utf8_slice_codeunits(names, -10)
    matches = pc.and_(pc.match_substring_regex(names, BUNDLE_PATTERN), pc.less(lower, upper))
    is_short = pc.less_equal(pc.binary_length(names), longest)
    good: NDArray[np.bool_] = pc.and_(matches, is_short).to_numpy(zero_copy_only=False)
    return good.astype(np.bool_)


class Overlaps:
    """Hash ranges of one namespace, each with a time; finds the newest that overlaps a range."""

    def __init__(self, ranges: NDArray[np.int64]) -> None:
        """`ranges`: rows of (lower, upper, time), sorted by lower."""
        self._lowers, self._uppers, self._times = ranges.reshape(-1, 3).T
        # The highest upper so far: it is sorted, also where ranges lie inside others.
        self._reach = np.maximum.accumulate(self._uppers)

    def newest(self, lower: int, upper: int) -> int:
        """Return the latest time of the ranges that overlap this one; -1: none does.

        O(log n) where the ranges are disjoint.
        """
        some = slice(
            int(np.searchsorted(self._reach, lower, "right")),
            int(np.searchsorted(self._lowers, upper, "left")),
        )
        return int(self._times[some].max(initial=-1, where=self._uppers[some] > lower))

    def is_replaced(self, lower: int, upper: int, at_ms: int) -> bool:
        """Return whether a range of that time was split or merged since.

        That is so if a later range overlaps it, or if ranges of the same time or later divide it:
        one report may name a split bundle beside its children.
        """
        if self.newest(lower, upper) > at_ms:
            return True
        first, last = np.searchsorted(self._lowers, [lower, upper], "left").tolist()
        lowers, uppers = self._lowers[first:last], self._uppers[first:last]
        parts = (uppers <= upper) & (uppers - lowers < upper - lower)
        parts &= self._times[first:last] >= at_ms
        if not parts.any():
            return False
        reach = np.maximum.accumulate(uppers[parts])
        gaps = lowers[parts] > np.append(lower, reach[:-1])
        return bool(reach[-1] == upper and not gaps.any())


def namespace_of(name: str) -> str:
    """Return the namespace of a valid bundle name."""
    return name.rpartition("/")[0]


def bundle_name(namespace: str, lower: int, upper: int) -> str:
    """Return the name of the bundle of that range."""
    return f"{namespace}/0x{lower:08x}_0x{upper:08x}"


def read_bounds(
    names: pa.StringArray, rows: NDArray[np.intp]
) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
    """Return the digits of the bounds of some names as numbers, for `parse_hex`.

    They have the order of the bounds, but not their values.
    """
    if not len(rows):
        return np.empty(0, np.uint64), np.empty(0, np.uint64)
    _, offsets, content = names.buffers()
    ends = np.frombuffer(offsets, np.int32, len(names) + 1, 4 * names.offset)[1:][rows]
    # A window at each character, without a copy.
    width = _ENDS_IN.itemsize
    shape = (content.size - width + 1, width)
    windows = np.ndarray(shape, np.uint8, content, strides=(1, 1))
    found = windows[ends - width].view(_ENDS_IN)[:, 0]
    return found["lower"].astype(np.uint64), found["upper"].astype(np.uint64)


def parse_hex(bounds: NDArray[np.uint64]) -> NDArray[np.int64]:
    """Return the values of bounds from the digits that `read_bounds` returns."""
    digits = bounds.astype(">u8").view(np.uint8).reshape(-1, _DIGITS).astype(np.int64)
    values = np.where(digits >= ord("a"), digits - ord("a") + 10, digits - ord("0"))
    found: NDArray[np.int64] = values @ (16 ** np.arange(_DIGITS - 1, -1, -1, dtype=np.int64))
    return found


def namespace_codes(names: pa.StringArray) -> tuple[NDArray[np.int32], list[str]]:
    """Return each valid name's namespace as a number, and the namespaces by number.

    It takes 25 ms for a million names.
    """
    import pyarrow.compute as pc

    encoded = pc.dictionary_encode(pc.utf8_slice_codeunits(names, 0, -RANGE_LENGTH))
    return encoded.indices.to_numpy(), encoded.dictionary.to_pylist()


def begins_with_another(names: pa.StringArray) -> NDArray[np.bool_]:
    """Return which bundles share their lower bound with a smaller one, as after a split.

    `names`: sorted bundle names.
    """
    import pyarrow.compute as pc

    lower = pc.utf8_slice_codeunits(names, 0, -1 - BOUND_LENGTH)
    found: NDArray[np.bool_] = np.zeros(len(names), np.bool_)
    found[1:] = pc.equal(lower[1:], lower[:-1]).to_numpy(zero_copy_only=False)
    return found


def is_system_bundle(name: str, release: Release = "any") -> bool:
    """Return whether a bundle is a system bundle: of a heartbeat or SLA-monitor namespace."""
    return re.match(NAME_RULES[release].system_bundle, name) is not None


def are_system_bundles(
    names: pa.Array | pa.ChunkedArray, release: Release = "any"
) -> NDArray[np.bool_]:
    """Return which of many bundles are system bundles."""
    import pyarrow.compute as pc

    found = pc.match_substring_regex(names, NAME_RULES[release].system_bundle)
    return np.asarray(found.to_numpy(zero_copy_only=False), np.bool_)
