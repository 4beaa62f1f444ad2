"""Samples of a space: some rows of which all tests hold, the same ones for the same seed.

Rows are tried at random. Where next to none is allowed, the constraints are solved instead.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Sequence

from kernloom.space.hypercube import Cells, design, is_balanced, shuffled
from kernloom.space.solving import Solver
from kernloom.space.spaces import MAX_VISITED, Found, Product, Test

_PATIENCE = 10_000
"""How many rows are tried before it is asked whether trying will do."""
_WORTH = 100
"""Trying will do while one row of so many is allowed."""
_MAX_ASKED = MAX_VISITED // 10
"""How many rows are asked one by one, however few are wanted."""
_MAX_SPARE = 100_000
"""How many rows are put aside at most, before a hypercube is given up."""


def sampled(
    product: Product, tests: Sequence[Test], count: int, *, balanced: bool = False, seed: int = 0
) -> Found:
    """Some rows, each at most once; `balanced`: a Latin hypercube, with the values of every axis
    equally often."""
    generator = random.Random(seed)  # noqa: S311 (no secret)
    taking = _Taking(product, tests, min(count, product.size))
    if balanced and taking.wanted < product.size:
        for index in design(product, taking.wanted, generator, taking.allowed):
            taking.found[index] = None
        taking.cells = Cells(product, taking.wanted, taking.found)
    ended = taking.take(_tried(product, generator), taking.is_worth_it)
    if not ended and not taking.is_done:
        ended = _solved(taking, Solver(product, tests, generator), generator)
    even = taking.fill_up()
    removed = tuple(taking.removed)
    return Found(sorted(taking.found), removed, len(taking.asked), ended, even)


class _Taking:
    """What has been asked and taken so far."""

    def __init__(self, product: Product, tests: Sequence[Test], wanted: int) -> None:
        self.wanted = wanted
        self.found: dict[int, None] = {}
        self.spare: dict[int, None] = {}
        """Allowed rows that would use some value more often than others."""
        self.asked: dict[int, bool] = {}
        self.removed = [0] * len(tests)
        self.cells: Cells | None = None
        self._product = product
        self._tests = tests
        self._good = 0

    @property
    def is_done(self) -> bool:
        given_up = len(self.spare) >= max(self.wanted, min(20 * self.wanted, _MAX_SPARE))
        return given_up or len(self.found) == self.wanted

    def allowed(self, index: int) -> bool:
        known = self.asked.get(index)
        if known is None:
            row = self._product.at(index)
            failed = next((n for n, test in enumerate(self._tests) if not test.holds(row)), None)
            known = self.asked[index] = failed is None
            self._good += known
            if failed is not None:
                self.removed[failed] += 1
        return known

    def take(self, indices: Iterable[int], go_on: Callable[[int], bool]) -> bool:
        """Take rows until enough are found; whether all the indices were looked at."""
        for tries, index in enumerate(indices):
            if self.is_done or not go_on(tries):
                return False
            if index in self.found or index in self.spare or not self.allowed(index):
                continue
            if self.cells is None or self.cells.fit(index):
                self.found[index] = None
            else:
                self.spare[index] = None
        return True

    def is_worth_it(self, tries: int) -> bool:
        """Whether enough rows will be found by trying more of them."""
        if tries < _PATIENCE:
            return True
        enough = self._good * MAX_VISITED >= self.wanted * tries
        return enough and self._good * _WORTH >= tries and tries < MAX_VISITED

    def fill_up(self) -> bool:
        """Take spare rows for what is missing; whether the rows are as balanced as asked for."""
        missing = self.wanted - len(self.found)
        self.found |= dict.fromkeys(list(self.spare)[:missing])
        return self.cells is None or is_balanced(self._product, self.wanted, self.found)


def _tried(product: Product, generator: random.Random) -> Iterator[int]:
    """All indices of a space that is small enough, once each; of others, at random without end."""
    if product.size <= _MAX_ASKED:
        yield from shuffled(list(range(product.size)), generator)
        return
    while True:
        yield product.index([int(generator.random() * size) for size in product.sizes])


def _solved(taking: _Taking, solver: Solver, generator: random.Random) -> bool:
    """Take rows that solve the constraints; whether there are no others."""
    joined, ended = solver.all()
    if not ended:
        # What a walk found before it was given up lies close together.
        taking.take(solver.dives(), lambda tries: True)
    if joined and not taking.is_done:
        drawn = _drawn(joined.size * solver.free_size, generator)
        rows = (solver.index(joined, *divmod(number, solver.free_size)) for number in drawn)
        most = max(_MAX_ASKED, 2 * taking.wanted)
        ended = taking.take(rows, lambda tries: tries < most) and ended
    return ended


def _drawn(size: int, generator: random.Random) -> Iterator[int]:
    """The numbers below `size` in random order, without writing them all down."""
    moved: dict[int, int] = {}
    for last in range(size - 1, -1, -1):
        number = int(generator.random() * (last + 1))
        yield moved.get(number, number)
        moved[number] = moved.pop(last, last)
