"""The Pareto front: what no other point beats in every objective."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

T = TypeVar("T")
Costs = tuple[float, ...] | None


def front(items: Sequence[T], costs_of: Callable[[T], Costs]) -> list[T]:
    """The items that no other one dominates, by their first cost; the first of equals."""
    found: list[tuple[T, tuple[float, ...]]] = []
    pairs = [(item, costs) for item in items if (costs := costs_of(item)) is not None]
    for item, costs in sorted(pairs, key=lambda pair: pair[1]):
        # Sorted: nothing that comes later is better in the first objective.
        if not any(_covers(kept, costs) for _, kept in found):
            found.append((item, costs))
    return [item for item, _ in found]


def spread(items: Sequence[T], limit: int) -> list[T]:
    """At most so many of a front, evenly, with both of its ends."""
    if len(items) <= limit:
        return list(items)
    steps = max(1, limit - 1)
    return [items[number * (len(items) - 1) // steps] for number in range(limit)]


def _covers(one: Sequence[float], other: Sequence[float]) -> bool:
    return all(a <= b for a, b in zip(one, other, strict=True))
