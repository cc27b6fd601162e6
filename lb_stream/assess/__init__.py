"""Assesses a cluster from its load reports alone: evenness, doubts, settings, possible moves."""
