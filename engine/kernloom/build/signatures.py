"""SCons' database of signatures, which Kernloom does without: targets are named by the hash of
their inputs, so whatever exists is up to date. Nothing is written that could be damaged, or that a
read-only tree would refuse."""

from __future__ import annotations


class NoSignatures(dict[str, bytes]):
    """A database module for `SConsignFile` that is always empty."""

    @classmethod
    def open(cls, name: str, mode: str) -> NoSignatures:
        return cls()

    def __setitem__(self, path: str, entries: bytes) -> None:
        pass
