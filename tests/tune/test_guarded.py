"""Strategies of other packages: whatever they do is one error that names them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from kernloom.base.errors import KernloomError
from kernloom.space.space import Space
from kernloom.tune.guarded import GuardedStrategy
from kernloom.tune.strategy import STRATEGIES, Point, Search, Strategy


class NoText:
    def __repr__(self) -> str:
        raise RuntimeError("no")


class Speechless(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no")


def end() -> Any:
    raise GeneratorExit


def be_speechless() -> Any:
    raise Speechless


@pytest.fixture
def space() -> Space:
    return Space.of({"step": [4, 8, 16]})


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (end, "failed in ask: GeneratorExit"),
        (be_speechless, "failed in ask: Speechless: a Speechless"),
        (NoText, "gave a NoText, not a list"),
        (lambda: [NoText()], "suggests a NoText, which is not a valid point"),
        (lambda: [{"step": NoText()}], "suggests step=a NoText, which is not a valid point"),
    ],
)
def test_an_answer_that_is_none_is_told(
    space: Space, monkeypatch: pytest.MonkeyPatch, answer: Any, said: str
) -> None:
    class Odd(Strategy):
        name = "odd"

        def ask(self, count: int) -> list[Point]:
            found: list[Point] = answer()
            return found

        def tell(self, point: Point, value: float | None) -> None:
            pass

    monkeypatch.setattr(type(STRATEGIES), "get", lambda self, name, *, key: Odd)
    with pytest.raises(KernloomError, match=said):
        GuardedStrategy("odd", Search(space, 0, 3)).ask(1)


def test_a_strategy_may_change_the_points_that_it_is_told(
    space: Space, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Clearing(Strategy):
        name = "clearing"

        def __init__(self, search: Search) -> None:
            super().__init__(search)
            self.points: Iterator[Point] = iter(search.space)

        def ask(self, count: int) -> list[Point]:
            return [next(self.points)]

        def tell(self, point: Point, value: float | None) -> None:
            point.clear()

    monkeypatch.setattr(type(STRATEGIES), "get", lambda self, name, *, key: Clearing)
    strategy = GuardedStrategy("clearing", Search(space, 0, 3))
    (point,) = strategy.ask(1)
    strategy.tell(point, 1.0)
    assert point == {"step": 4}
