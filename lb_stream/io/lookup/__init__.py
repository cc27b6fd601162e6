"""Lookups for clients: topic → bundle → broker, from the ownership topic; in Python and over HTTP."""
