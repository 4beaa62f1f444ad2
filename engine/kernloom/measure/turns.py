"""Trials in turns: each round gives every unfinished one a turn, in an order of its own."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from random import Random
from typing import Generic, TypeVar

T = TypeVar("T")


class Order(Generic[T]):
    """Who comes first: a random order, the same backwards, another, and so on.

    Backwards, so that whoever suffers from its neighbours in one round gains in the next.
    """

    def __init__(self, items: Iterable[T], seed: int | None = None) -> None:
        self._items = list(items)
        self._random = Random(seed)  # noqa: S311 (an order, not a secret)
        self._backwards = True

    def next(self) -> list[T]:
        self._backwards = not self._backwards
        if self._backwards:
            self._items.reverse()
        else:
            self._random.shuffle(self._items)
        return list(self._items)

    def drop(self, item: T) -> None:
        self._items.remove(item)


def in_turns(
    trials: Sequence[Generator[None, None, T]],
    *,
    shuffled: bool,
    seed: int | None = None,
    turn: Callable[[int], None] = lambda round: None,
) -> Iterator[tuple[int, T]]:
    """Number and outcome of each as it ends; whatever stops this closes those under way.

    `turn` is told the number of the round before each turn.
    """
    waiting = list(range(len(trials)))
    order = Order(waiting, seed)
    try:
        for round in itertools.count(1):
            if not waiting:
                return
            for number in order.next() if shuffled else list(waiting):
                turn(round)
                try:
                    next(trials[number])
                except StopIteration as end:
                    order.drop(number)
                    waiting.remove(number)
                    yield number, end.value
    finally:
        for trial in trials:
            trial.close()


def blocks(items: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    """As many at a time as share their rounds; what is finished is safe when the next begin."""
    for start in range(0, len(items), size):
        yield items[start : start + size]
