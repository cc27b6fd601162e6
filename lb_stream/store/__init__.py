"""Folders of this machine and of object stores, behind one interface."""

from lb_stream.store.address import AddressError
from lb_stream.store.store import Store, checkpoint_of, tables_of

__all__ = ["AddressError", "Store", "checkpoint_of", "tables_of"]
