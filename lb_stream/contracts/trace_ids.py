"""Ids of traces and spans, and the header `traceparent` (W3C Trace Context, level 1).

Ids are derived from names by SHA-256: a batch that runs again, and every program that knows a
decision, give the same ids, without chance and without a word between them.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass

TRACEPARENT = "traceparent"
"""Name of the header in records."""

MOVE_ROOT = "root"
"""Part of the name of the span that lasts from a decision to its outcome."""

MAX_HEADER_BYTES = 200
"""A longer header is not looked at. Version 00 has 55 bytes, later versions may append to it."""

_FORM = re.compile(
    rb"(?P<version>[0-9a-f]{2})-(?P<trace>[0-9a-f]{32})-(?P<span>[0-9a-f]{16})"
    rb"-(?P<flags>[0-9a-f]{2})(?P<rest>-.*)?"
)


@dataclass(frozen=True, slots=True)
class TraceParent:
    """A span in a trace, as hexadecimal ids. `sampled`: whether the trace is recorded."""

    trace_id: str
    span_id: str
    sampled: bool = True

    def encode(self) -> bytes:
        """Return the header's value."""
        return f"00-{self.trace_id}-{self.span_id}-{int(self.sampled):02x}".encode()


def derive_trace_id(*names: str) -> str:
    """Return the id (32 hexadecimal digits) of the trace that these names identify."""
    return _digest("trace", *names)[:32]


def derive_span_id(trace_id: str, *names: str) -> str:
    """Return the id (16 hexadecimal digits) of a span of a trace."""
    return _digest("span", trace_id, *names)[:16]


def move_trace_id(move_id: str) -> str:
    """Return the trace of a decision and of what follows from it.

    `move_id`: id of the decision that began the move, or of a decision that belongs to no move.
    """
    return derive_trace_id("decision", move_id)


def published_span(move_id: str, decision_id: str, sampled: bool = True) -> TraceParent:
    """Return the span of a decision's publication, which its record names to agents."""
    trace_id = move_trace_id(move_id)
    return TraceParent(trace_id, derive_span_id(trace_id, decision_id, "published"), sampled)


def parse_traceparent(value: bytes | None) -> TraceParent | None:
    """Parse a header; None if it is missing, malformed, too long, or of an unknown form."""
    if not value or len(value) > MAX_HEADER_BYTES:
        return None
    found = _FORM.fullmatch(value)
    if found is None or found["version"] == b"ff":
        return None
    if found["version"] == b"00" and found["rest"] is not None:
        return None
    trace_id, span_id = found["trace"].decode(), found["span"].decode()
    if not int(trace_id, 16) or not int(span_id, 16):
        return None
    return TraceParent(trace_id, span_id, bool(int(found["flags"], 16) & 1))


def _digest(*names: str) -> str:
    """Return the SHA-256 of names, hexadecimal. No two lists of names have the same text."""
    text = "\0".join(f"{len(name)}:{name}" for name in names)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
