"""Lookups for clients: topic → bundle → broker, from the ownership topic; in Python and over
HTTP."""

from lb_stream.io.lookup.client import Lookup, LookupConfig, LookupFailed, LookupResult, StaleLookup

__all__ = ["Lookup", "LookupConfig", "LookupFailed", "LookupResult", "StaleLookup"]
