"""Limits of brokers that their traffic contradicts, as LeastMoves has learned them."""

from __future__ import annotations

from collections.abc import Iterator

from lb_stream.core.least_moves.memory import LeastMovesMemory

MBIT, MIB = 125_000.0, 2.0**20
"""Bytes/s of a Mbit/s; bytes of a MiB."""


def describe_doubtful_limits(learned: LeastMovesMemory) -> Iterator[str]:
    """Describe each limit that a broker exceeds or does not reach, by name and figures."""
    for broker, limits in sorted(learned.refuted.items()):
        units = ((MBIT, "Mbit/s in"), (MBIT, "Mbit/s out"), (MIB, "MiB of direct memory"))
        stated = [
            f"{limit / unit:.4g} {text}"
            for limit, (unit, text) in zip(limits, units, strict=True)
            if limit
        ]
        yield f"{broker} uses more than the limit that it reports: {' and '.join(stated)}"
    for broker, ceiling in sorted(learned.ceilings.items()):
        if ceiling.is_sure:
            carried = (ceiling.into + ceiling.out) / 1e6
            yield (
                f"{broker} carried {carried:.4g} MB/s when its bundles had been "
                f"{ceiling.expected / 1e6:.4g} MB/s elsewhere: its limit may be lower than it "
                "reports, and LeastMoves expects no more of it"
            )
