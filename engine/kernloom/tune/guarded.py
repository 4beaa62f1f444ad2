"""A strategy whose suggestions are checked: a study gets new valid points, or a clear error."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kernloom.base.errors import KernloomError, UsageError
from kernloom.tune.strategy import STRATEGIES, Point, Search, Strategy

_MAX_REPEATS = 100
"""Batches without any new point that are tolerated in a row."""


class GuardedStrategy:
    """A strategy by name. Errors name the strategy; repeated points are left out."""

    def __init__(self, name: str, search: Search) -> None:
        self.name = name
        self.space = search.space
        self._seen = {self.space.index(p) for p, _ in search.known if self.space.contains(p)}
        kind = STRATEGIES.get(name, key="strategy")
        try:
            self._strategy: Strategy = kind(search)
        except KernloomError:
            raise
        except Exception as error:
            raise self._failed("start", error) from error

    def ask(self, count: int) -> list[Point]:
        """Up to `count` new valid points; none if the strategy has no more."""
        if count < 1:
            return []
        for _ in range(_MAX_REPEATS):
            try:
                asked = self._strategy.ask(count)
            except KernloomError:
                raise
            except Exception as error:
                raise self._failed("ask", error) from error
            if not isinstance(asked, list):
                raise KernloomError(f"strategy '{self.name}' gave {asked!r:.80}, not a list")
            if not asked:
                return []
            if new := self._new(asked[:count]):
                return new
        raise KernloomError(
            f"strategy '{self.name}' suggests the same points for ever: {_shown(asked[0])} "
            "is evaluated already",
            hint="A strategy answers with an empty list when it has no other point.",
        )

    def tell(self, point: Point, value: float | None) -> None:
        self._seen.add(self.space.index(point))
        try:
            self._strategy.tell(point, value)
        except KernloomError:
            raise
        except Exception as error:
            raise self._failed("tell", error) from error

    def _new(self, asked: list[Point]) -> list[Point]:
        new = []
        for point in asked:
            if not isinstance(point, Mapping) or not self._is_valid(point):
                raise KernloomError(
                    f"strategy '{self.name}' suggests {_shown(point)}, which is not a valid point "
                    "of the space",
                    hint="Choose another strategy, or mend this one.",
                )
            index = self.space.index(point)
            if index not in self._seen:
                self._seen.add(index)
                new.append(dict(point))
        return new

    def _is_valid(self, point: Point) -> bool:
        try:
            return self.space.contains(point)
        except (UsageError, TypeError):
            return False

    def _failed(self, where: str, error: Exception) -> KernloomError:
        return KernloomError(
            f"strategy '{self.name}' failed in {where}: {type(error).__name__}: {error}",
            hint="Everything evaluated so far is kept. Choose another strategy, or mend this one.",
        )


def _shown(point: Any) -> str:
    if not isinstance(point, Mapping):
        return repr(point)[:80]
    return ", ".join(f"{key}={value}" for key, value in point.items())[:200]
