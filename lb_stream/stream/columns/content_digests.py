"""Digests of what a report says; of a columnar one, whether it was sent whole or as a delta.

Reports whose digest is that of their broker's last one are no samples. The digest of a delta's
whole report follows from the hashes of its base's rows and from the rows that it replaces: a report
costs what it sends. The hashes guard against accidents alone: who may send reports may leave them
away as well.
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256

import numpy as np
from numpy.typing import NDArray

from lb_stream.contracts.columnar import FIGURES, ColumnarReport, Figures

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_ODD = np.uint64(0xFF51AFD7ED558CCD)
_HALF = np.uint64(32)
_FACTORS = _GOLDEN * np.arange(1, 2 * len(FIGURES), 2, dtype=np.uint64)[:, np.newaxis]
"""An odd number for each figure, so that swapped figures are seen."""


@dataclass(frozen=True, slots=True)
class RowHashes:
    """A hash of each row's number and figures, and the sum of all of them modulo 2^64."""

    rows: NDArray[np.uint64]
    total: int

    @staticmethod
    def of(report: ColumnarReport) -> RowHashes:
        """Return the hashes of a report's rows."""
        numbers = np.arange(report.rows, dtype=np.int32)
        rows = _hash_rows(numbers, report.columns, report.measured)
        return RowHashes(rows, int(rows.sum()))

    def replace_rows(
        self, numbers: NDArray[np.int32], columns: Figures, measured: NDArray[np.bool_] | None
    ) -> int:
        """Return the sum of all rows after some of them are replaced."""
        new = _hash_rows(numbers, columns, measured)
        return (self.total - int(self.rows[numbers].sum()) + int(new.sum())) % 2**64


DIGEST_BYTES = 8
"""Bytes of a SHA-256 by which a report is compared with its broker's last one.

SHA-256 takes half of the time of BLAKE2b where the processor has instructions for it.
"""


def digest_content(report: ColumnarReport, total: int) -> bytes:
    """Return the digest of a columnar report. `total`: the sum of its rows' hashes."""
    parts = (total.to_bytes(8, "little"), report.roster.encode(), report.fields)
    return sha256(b"".join(parts)).digest()[:DIGEST_BYTES]


def _hash_rows(
    numbers: NDArray[np.int32], columns: Figures, measured: NDArray[np.bool_] | None
) -> NDArray[np.uint64]:
    """Return a hash of each row. `numbers`: the rows'."""
    words = columns.bits * _FACTORS
    words ^= words >> _HALF
    words *= _ODD
    hashes: NDArray[np.uint64] = numbers.astype(np.uint64) << np.uint64(1)
    hashes |= np.uint64(1) if measured is None else measured.astype(np.uint64)
    hashes *= _GOLDEN
    hashes ^= np.bitwise_xor.reduce(words, axis=0)
    for factor in (_ODD, _GOLDEN):
        hashes ^= hashes >> _HALF
        hashes *= factor
    hashes ^= hashes >> _HALF
    return hashes
