"""Lookups for clients: topic → bundle → broker, from the ownership topic; in Python and over
HTTP."""

from lb_stream.io.lookup.client import Found, Lookup, LookupConfig, LookupFailed, Stale

__all__ = ["Found", "Lookup", "LookupConfig", "LookupFailed", "Stale"]
