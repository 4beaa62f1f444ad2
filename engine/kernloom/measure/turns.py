"""Trials in turns: each round gives every unfinished trial one turn, in an order of its own, and
begins no sooner after the one before than the trials ask for."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from random import Random
from typing import Generic, TypeVar

T = TypeVar("T")


class Order(Generic[T]):
    """The order of turns: a random order, then its reverse, then another random order, and so on.

    Reversed, so that a trial that suffers from its neighbours in one round gains in the next.
    """

    def __init__(self, items: Iterable[T], seed: int | None = None) -> None:
        self._items = list(items)
        self._seed = seed
        self._random: Random | None = None
        self._backwards = True

    def next(self) -> list[T]:
        if len(self._items) > 1:
            self._backwards = not self._backwards
            if self._backwards:
                self._items.reverse()
            else:
                self._shuffle()
        return list(self._items)

    def _shuffle(self) -> None:
        if self._random is None:
            self._random = Random(self._seed)  # noqa: S311 (an order, not a secret)
        self._random.shuffle(self._items)

    def drop(self, item: T) -> None:
        self._items.remove(item)


def in_turns(
    trials: Sequence[Generator[float | None, None, T]],
    *,
    shuffled: bool,
    seed: int | None = None,
    turn: Callable[[int], None] = lambda round: None,
    pause: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> Iterator[tuple[int, T]]:
    """Index and outcome of each trial as it ends; if interrupted, closes the unfinished ones.

    `turn` receives the number of the round before each turn. A trial may yield the seconds that it
    wants between the starts of its rounds; the least of a round counts, since other trials may be
    done with waiting.
    """
    waiting = list(range(len(trials)))
    order = Order(waiting, seed)
    try:
        for round in itertools.count(1):
            if not waiting:
                return
            begun, wanted = clock(), []
            for number in order.next() if shuffled else list(waiting):
                turn(round)
                try:
                    wanted.append(next(trials[number]) or 0.0)
                except StopIteration as end:
                    order.drop(number)
                    waiting.remove(number)
                    yield number, end.value
            left = begun + min(wanted, default=0.0) - clock()
            if left > 0:
                pause(left)
    finally:
        for trial in trials:
            trial.close()


def blocks(items: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    """Blocks of items that share their rounds; a finished block is safe when the next begins."""
    for start in range(0, len(items), size):
        yield items[start : start + size]
