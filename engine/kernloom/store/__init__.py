"""Storage of trials."""

from kernloom.store.store import Store, open_store

__all__ = ["Store", "open_store"]
