"""Every strategy keeps the contract: valid points, none twice, all of them, the same by seed."""

from __future__ import annotations

from typing import Any

import pytest

from kernloom.space.space import Space
from kernloom.tune.strategy import STRATEGIES, Point, Search, create_strategy

NAMES = STRATEGIES.names()


def key(point: Point) -> tuple[tuple[str, Any], ...]:
    return tuple(sorted(point.items()))


def cost(point: Point) -> float | None:
    """Lower is better; some points fail."""
    if point["x"] == 8 and point["flag"]:
        return None
    return 1.0 + abs(point["x"] - 4) + 0.1 * abs(point["y"] - 3) + 0.5 * (not point["flag"])


@pytest.fixture
def space() -> Space:
    return Space.of(
        {"x": [1, 2, 4, 8], "y": [1, 2, 3, 4, 5], "flag": [False, True]}, where=["x * y <= 24"]
    )


def drive(name: str, search: Search, evaluations: int = 1000, batch: int = 1) -> list[Point]:
    strategy = create_strategy(name, search)
    trace: list[Point] = []
    while len(trace) < evaluations:
        points = strategy.ask(min(batch, evaluations - len(trace)))
        if not points:
            break
        for point in points:
            trace.append(point)
            strategy.tell(point, cost(point))
    return trace


@pytest.mark.parametrize("batch", [1, 4])
@pytest.mark.parametrize("name", NAMES)
def test_a_strategy_asks_every_valid_point_once(name: str, batch: int, space: Space) -> None:
    trace = drive(name, Search(space, seed=1), batch=batch)
    assert all(space.contains(point) for point in trace)
    assert len({key(point) for point in trace}) == len(trace) == space.count()
