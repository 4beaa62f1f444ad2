"""The contract of search strategies: they are asked for points and told the results.

Lower values are better. A strategy never asks for a point twice, nor for one that is invalid or
already known. It accepts results of points that it did not ask for, in any order.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

from kernloom.base.registry import Registry
from kernloom.space.axes import Row
from kernloom.space.space import Space

Point = Row
"""A point of a search space: its keys with their values."""
DEFAULT = "auto"


@dataclass(frozen=True)
class Search:
    """What a strategy is started with."""

    space: Space
    seed: int = 0
    budget: int | None = None
    """Planned number of evaluations, if known."""
    first: tuple[Point, ...] = ()
    """Points to try first, the most promising one first: the choice of a model, what is best on
    similar shapes or devices. Invalid ones are ignored."""
    known: tuple[tuple[Point, float | None], ...] = ()
    """Results that exist already; None: the point failed."""


class Strategy(ABC):
    """A search strategy. The same search gives the same points, as long as the results agree."""

    name: ClassVar[str]
    about: ClassVar[str]
    """What it does, in one line."""

    def __init__(self, search: Search) -> None:
        self.search = search

    @classmethod
    def check_available(cls) -> None:
        """Raise UnavailableError if the strategy needs what is not installed."""
        return

    @abstractmethod
    def ask(self, count: int) -> list[Point]:
        """Up to `count` valid points that were not asked before; none if the space is exhausted.

        The points of one batch can be evaluated at the same time.
        """

    @abstractmethod
    def tell(self, point: Point, value: float | None) -> None:
        """The result of a point; None: the point failed."""


SHIPPED = {
    "auto": "kernloom.tune.strategies.auto:AutoSearch",
    "surrogate": "kernloom.tune.strategies.surrogate:SurrogateSearch",
    "random": "kernloom.tune.strategies.random:RandomSearch",
    "optuna_tpe": "kernloom.tune.strategies.optuna:OptunaTPE",
    "optuna_nsga2": "kernloom.tune.strategies.optuna:OptunaGenetic",
    "grid": "kernloom.tune.strategies.grid:GridSearch",
    "local": "kernloom.tune.strategies.local:LocalSearch",
    "annealing": "kernloom.tune.strategies.annealing:Annealing",
    "genetic": "kernloom.tune.strategies.genetic:Genetic",
}
STRATEGIES: Registry[type[Strategy]] = Registry(
    "strategy", {}, later=SHIPPED, group="kernloom.strategies"
)


def create_strategy(name: str, search: Search) -> Strategy:
    """The strategy with a name, started with a search."""
    return STRATEGIES.get(name, key="strategy")(search)
