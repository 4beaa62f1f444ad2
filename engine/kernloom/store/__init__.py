"""Trials kept and found again."""

from kernloom.store.store import Store, open_store

__all__ = ["Store", "open_store"]
