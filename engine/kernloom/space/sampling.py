"""Samples of a space: some valid points, the same ones for the same seed.

`sample_by_number` numbers the valid points by counting and draws numbers. Every set of points is
equally likely, however few combinations are valid.

`sampled` tries combinations at random. If hardly any is valid, the constraints are solved instead:
all solutions are found and drawn from, or, if there are too many, found one by one from random
starts. Only the last method is not uniform. Recorded sweeps depend on these draws: they must not
change.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator
from itertools import islice

from kernloom.space.counting import Tables
from kernloom.space.hypercube import Cells, design, is_balanced, shuffled
from kernloom.space.solving import Solver
from kernloom.space.space import Selection, Space

_MIN_TRIES = 10_000
"""Combinations tried before the success rate is judged."""
_MAX_TRIES_PER_POINT = 100
"""Trying goes on while at least one in so many combinations is valid."""
MAX_TRIED = 2_000_000
"""Maximum combinations tried."""
_MAX_ASKED = MAX_TRIED // 10
"""Maximum combinations checked one by one, however few are wanted."""
_MAX_SPARE = 100_000
"""Maximum combinations put aside before a hypercube is given up."""


def sample_by_number(space: Space, tables: Tables, count: int, seed: int) -> Selection:
    """Points drawn by their numbers among all valid points."""
    generator = random.Random(seed)  # noqa: S311 (no secret)
    wanted = min(count, tables.total)
    numbers = list(islice(_drawn(tables.total, lambda n: _below(n, generator)), wanted))
    ranks = tables.ranks(numbers).tolist()
    indices = sorted(space.index_at(line) for line in ranks)
    return Selection(space, indices, tried=wanted, all=wanted == tables.total)


def sampled(space: Space, count: int, *, balanced: bool = False, seed: int = 0) -> Selection:
    """Points found by trying or solving; `balanced`: a Latin hypercube, with the values of every
    axis equally often."""
    generator = random.Random(seed)  # noqa: S311 (no secret)
    taking = _SampleInProgress(space, min(count, space.size))
    if balanced and taking.wanted < space.size:
        for index in design(space, taking.wanted, generator, taking.allowed):
            taking.found[index] = None
        taking.cells = Cells(space, taking.wanted, taking.found)
    ended = taking.take(_tried(space, generator), taking.is_worth_it)
    if not ended and not taking.is_done:
        ended = _solved(taking, Solver(space, generator), generator)
    even = taking.fill_up()
    removed = tuple(taking.removed)
    return Selection(
        space,
        sorted(taking.found),
        removed,
        tried=len(taking.asked),
        all=ended,
        balanced=even,
        uniform=not balanced and not taking.dived,
    )


class _SampleInProgress:
    """State of a sample in progress."""

    def __init__(self, space: Space, wanted: int) -> None:
        self.wanted = wanted
        self.found: dict[int, None] = {}
        self.spare: dict[int, None] = {}
        """Valid combinations that would use some value more often than others."""
        self.asked: dict[int, bool] = {}
        self.removed = [0] * len(space.constraints)
        self.cells: Cells | None = None
        self.dived = False
        """Whether points were found one by one from random starts."""
        self._space = space
        self._good = 0

    @property
    def is_done(self) -> bool:
        given_up = len(self.spare) >= max(self.wanted, min(20 * self.wanted, _MAX_SPARE))
        return given_up or len(self.found) == self.wanted

    def allowed(self, index: int) -> bool:
        known = self.asked.get(index)
        if known is None:
            row = self._space.point_at(index)
            tests = enumerate(self._space.constraints)
            failed = next((n for n, test in tests if not test.holds(row)), None)
            known = self.asked[index] = failed is None
            self._good += known
            if failed is not None:
                self.removed[failed] += 1
        return known

    def take(self, indices: Iterable[int], go_on: Callable[[int], bool]) -> bool:
        """Take valid combinations until enough are found; whether all indices were tried."""
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
        """Whether trying more combinations is likely to find enough."""
        if tries < _MIN_TRIES:
            return True
        enough = self._good * MAX_TRIED >= self.wanted * tries
        return enough and self._good * _MAX_TRIES_PER_POINT >= tries and tries < MAX_TRIED

    def fill_up(self) -> bool:
        """Fill up with spare combinations; whether the sample is as balanced as requested."""
        missing = self.wanted - len(self.found)
        self.found |= dict.fromkeys(list(self.spare)[:missing])
        return self.cells is None or is_balanced(self._space, self.wanted, self.found)


def _tried(space: Space, generator: random.Random) -> Iterator[int]:
    """All indices of a small space in random order; for a large one, random indices without end."""
    if space.size <= _MAX_ASKED:
        yield from shuffled(list(range(space.size)), generator)
        return
    while True:
        yield space.index_at([int(generator.random() * size) for size in space.sizes])


def _solved(taking: _SampleInProgress, solver: Solver, generator: random.Random) -> bool:
    """Take combinations that solve the constraints; whether there are no others."""
    joined, ended = solver.all()
    if not ended:
        # Solutions of an incomplete walk are close together: take random ones first.
        taking.dived = True
        taking.take(solver.random_solutions(), lambda tries: True)
    if joined and not taking.is_done:
        drawn = _drawn(joined.size * solver.free_size, lambda n: int(generator.random() * n))
        rows = (solver.index(joined, *divmod(number, solver.free_size)) for number in drawn)
        most = max(_MAX_ASKED, 2 * taking.wanted)
        ended = taking.take(rows, lambda tries: tries < most) and ended
    return ended


def _drawn(size: int, below: Callable[[int], int]) -> Iterator[int]:
    """The integers below `size` in random order, without holding them all."""
    moved: dict[int, int] = {}
    for last in range(size - 1, -1, -1):
        number = below(last + 1)
        yield moved.get(number, number)
        moved[number] = moved.pop(last, last)


def _below(limit: int, generator: random.Random) -> int:
    """A uniform random integer below a limit of any size."""
    # Only random() is guaranteed to produce the same numbers; take 32 bits at a time.
    bits = limit.bit_length()
    while True:
        number = 0
        for _ in range(0, bits, 32):
            number = number << 32 | int(generator.random() * 2**32)
        number >>= -bits % 32
        if number < limit:
            return number
