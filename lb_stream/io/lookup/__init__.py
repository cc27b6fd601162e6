"""Lookups for clients, in Python and over HTTP: topic → bundle → broker, from `lb-ownership`."""

from lb_stream.io.lookup.client import Lookup, LookupConfig, LookupFailed, LookupResult, StaleLookup

__all__ = ["Lookup", "LookupConfig", "LookupFailed", "LookupResult", "StaleLookup"]
