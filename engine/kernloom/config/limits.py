"""Limits of numbers in a config, as metadata of dataclass fields."""

from __future__ import annotations

Number = int | float


def at_least(minimum: Number) -> dict[str, Number]:
    """Field metadata: the smallest allowed number."""
    return {"minimum": minimum}


def between(minimum: Number, maximum: Number) -> dict[str, Number]:
    """Field metadata: the smallest and the largest allowed number."""
    return {"minimum": minimum, "maximum": maximum}


FINITE = between(-1e300, 1e300)
