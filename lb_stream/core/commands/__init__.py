"""Operators' commands: answered once each, remembered where their effect stays, followed until they are done."""
