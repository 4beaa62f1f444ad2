"""Every strategy keeps the contract: valid points, none twice, all of them, the same by seed."""

from __future__ import annotations

import importlib.util
from typing import Any

import pytest

from kernloom.space.space import Space
from kernloom.tune.strategies import auto, surrogate
from kernloom.tune.strategy import STRATEGIES, Point, Search, create_strategy

NAMES = [
    name
    for name in STRATEGIES.names()
    if not name.startswith("optuna") or importlib.util.find_spec("optuna")
]


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


@pytest.mark.parametrize("name", NAMES)
def test_the_same_seed_gives_the_same_points(name: str, space: Space) -> None:
    first, again = (drive(name, Search(space, seed=3, budget=15), 15) for _ in range(2))
    assert first == again


@pytest.mark.parametrize("name", [name for name in NAMES if name != "grid"])
def test_another_seed_gives_other_points(name: str, space: Space) -> None:
    traces = [drive(name, Search(space, seed=seed, budget=10), 10) for seed in (1, 2)]
    assert traces[0] != traces[1]


@pytest.mark.parametrize("name", NAMES)
def test_known_points_are_not_asked_again(name: str, space: Space) -> None:
    points = list(space)
    known = tuple((point, cost(point)) for point in points[::2])
    trace = drive(name, Search(space, seed=1, known=known))
    assert {key(point) for point in trace} == {key(point) for point in points[1::2]}


@pytest.mark.parametrize("name", NAMES)
def test_named_points_are_tried_first_and_invalid_ones_are_ignored(name: str, space: Space) -> None:
    good = [{"x": 4, "y": 3, "flag": True}, {"x": 1, "y": 1, "flag": False}]
    bad = [{"x": 8, "y": 5, "flag": True}, {"x": 3, "y": 1, "flag": True}, {"x": 1}]
    trace = drive(name, Search(space, seed=1, first=(good[0], *bad, good[1])), 2)
    assert trace == good


@pytest.mark.parametrize("name", NAMES)
def test_results_of_others_are_taken(name: str, space: Space) -> None:
    """Several engines may work on one study."""
    strategy = create_strategy(name, Search(space, seed=1))
    others = list(space)[10:20]
    mine = []
    for other in others:
        strategy.tell(other, cost(other))
        for point in strategy.ask(1):
            mine.append(point)
            strategy.tell(point, cost(point))
    asked = {key(point) for point in mine}
    assert len(asked) == len(mine)
    for number, point in enumerate(mine):
        assert key(point) not in {key(other) for other in others[: number + 1]}


@pytest.mark.parametrize("name", NAMES)
def test_a_space_in_which_every_point_fails_is_exhausted(name: str) -> None:
    space = Space.of({"a": [1, 2, 3], "b": ["x", "y"]})
    strategy = create_strategy(name, Search(space, seed=1))
    count = 0
    while points := strategy.ask(2):
        count += len(points)
        for point in points:
            strategy.tell(point, None)
    assert count == 6


@pytest.mark.parametrize("values", [[2.0], [-1.0, 0.0, 3.5], [float(10**300), 1e-300]])
@pytest.mark.parametrize("name", NAMES)
def test_any_values_are_learnt(name: str, values: list[float]) -> None:
    """Ties, negative values, and values of any size."""
    space = Space.of({"a": list(range(6)), "b": list(range(5))})
    strategy = create_strategy(name, Search(space, seed=1, budget=30))
    count = 0
    while points := strategy.ask(3):
        for point in points:
            strategy.tell(point, values[count % len(values)])
            count += 1
    assert count == 30


@pytest.mark.parametrize("name", NAMES)
def test_spaces_of_one_point_or_none(name: str) -> None:
    for where, expected in (["a > b"], 0), (["a == b"], 1):
        space = Space.of({"a": [1], "b": [1]}, where=where)
        asked = create_strategy(name, Search(space)).ask(5)
        assert asked == [{"a": 1, "b": 1}] * expected


@pytest.mark.parametrize("name", NAMES)
def test_a_space_of_a_trillion_points_is_searched(name: str) -> None:
    """Points of such a space are drawn, never listed."""
    keys = "abcdefghijkl"
    space = Space.of(
        {letter: list(range(1, 11)) for letter in keys}, where=["a * b <= 50", "c + d > 3", "e < f"]
    )
    strategy = create_strategy(name, Search(space, seed=1, budget=45))
    seen = set()
    for _ in range(15):
        for point in strategy.ask(3):
            assert space.contains(point)
            seen.add(key(point))
            strategy.tell(point, float(sum((value - 4) ** 2 for value in point.values())) + 1)
    assert len(seen) == 45


def test_no_strategy_is_worse_than_random_search_on_a_smooth_function() -> None:
    space = Space.of({name: list(range(12)) for name in "abc"}, where=["a + b < 20"])

    def best(name: str, seed: int) -> float:
        strategy = create_strategy(name, Search(space, seed=seed, budget=40))
        values = []
        for _ in range(40):
            for point in strategy.ask(1):
                value = 1 + (point["a"] - 7) ** 2 + (point["b"] - 2) ** 2 + abs(point["c"] - 9)
                values.append(float(value))
                strategy.tell(point, value)
        return min(values)

    usual = sum(best("random", seed) for seed in range(6))
    for name in ("auto", "surrogate", "local", "genetic", "annealing"):
        assert sum(best(name, seed) for seed in range(6)) < usual, name


@pytest.mark.parametrize("name", ["auto", "surrogate"])
def test_more_points_than_the_model_holds_are_searched(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (auto, surrogate):
        monkeypatch.setattr(module, "CAPACITY", 30)
    monkeypatch.setattr(auto, "_LONG_PATIENCE", 10)
    monkeypatch.setattr(auto, "_RENEWAL", 20)
    space = Space.of({"a": list(range(1, 10)), "b": [16, 24, 32, 40, 48], "c": [0, 1, 2]})
    strategy = create_strategy(name, Search(space, seed=1))
    asked = []
    while points := strategy.ask(4):
        for point in points:
            asked.append(key(point))
            failed = point["a"] == point["c"]
            strategy.tell(point, None if failed else 1.0 + abs(point["a"] - 9) * point["b"])
    assert len(set(asked)) == len(asked) == space.count()
