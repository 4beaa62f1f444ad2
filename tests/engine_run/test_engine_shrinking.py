"""A failing draw becomes as simple as possible, in limited time."""

from __future__ import annotations

from itertools import count

from kernloom.config.schema import SizeRange
from kernloom.run.fuzzing.draws import Draw
from kernloom.run.fuzzing.shrinking import MAX_SECONDS, shorten, shrink

DRAW = Draw(1, {"n": 1000, "m": 600}, {"x": "sorted"}, {"x": {"kind": "pattern"}}, {"y": 4})
LIMITS = {"n": SizeRange(low=2, multiple=4)}


def test_only_what_a_failure_needs_is_left() -> None:
    found = shrink(DRAW, LIMITS, lambda draw: draw.sizes["n"] >= 100 and "y" in draw.offsets)
    assert found == Draw(1, {"n": 100, "m": 1}, offsets={"y": 4})


def test_a_tail_is_left_at_its_smallest() -> None:
    def fails(draw: Draw) -> bool:
        return draw.sizes["n"] > 40 and draw.sizes["n"] % 8 == 1

    found = shrink(Draw(1, {"n": 4097, "m": 600}), {}, fails)
    assert found == Draw(1, {"n": 41, "m": 1})


def test_a_sequence_keeps_what_a_failure_needs() -> None:
    found = shorten(range(50), lambda some: {7, 31} <= set(some))
    assert found == [7, 31]


def test_draws_that_take_long_end_it_early() -> None:
    times = count(0, MAX_SECONDS / 3)
    tried: list[Draw] = []

    def fails(draw: Draw) -> bool:
        tried.append(draw)
        return True

    found = shrink(DRAW, LIMITS, fails, lambda: next(times))
    assert len(tried) == 2
    assert found == tried[-1]
