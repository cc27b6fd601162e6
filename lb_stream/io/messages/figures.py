"""A figure as people read it. Imports nothing: `lbctl --help` comes at once."""

from __future__ import annotations


def figure(value: float | None, unit: str | None) -> str:
    """A figure with its unit; ratios as per cent."""
    if value is None:
        return "-"
    if unit in ("ratio", "%"):
        return f"{100 * value if unit == 'ratio' else value:.1f}%"
    if unit == "bytes/s":
        return f"{value / 1e6:.2f} MB/s"
    if unit == "times":
        return f"{value:.2f} times"
    return (
        f"{value:.0f} {unit}".rstrip()
        if value == int(value) and abs(value) < 1e6
        else f"{value:.5g} {unit or ''}".rstrip()
    )
