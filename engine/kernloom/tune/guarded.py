"""A strategy whose suggestions are checked: a study gets new valid points, or a clear error."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from kernloom.base.errors import KernloomError, UsageError
from kernloom.base.streams import stdout_to_stderr
from kernloom.tune.strategy import STRATEGIES, Point, Search, Strategy

_Answer = TypeVar("_Answer")

_MAX_REPEATS = 100
"""Batches without any new point that are tolerated in a row."""


class GuardedStrategy:
    """A strategy by name. Errors name the strategy; repeated points are left out."""

    def __init__(self, name: str, search: Search) -> None:
        self.name = name
        self.space = search.space
        self._seen = {self.space.index(p) for p, _ in search.known if self.space.contains(p)}
        kind = STRATEGIES.get(name, key="strategy")
        self._strategy: Strategy = self._called("start", lambda: kind(search))

    def ask(self, count: int) -> list[Point]:
        """Up to `count` new valid points; none if the strategy has no more."""
        if count < 1:
            return []
        for _ in range(_MAX_REPEATS):
            asked = self._called("ask", lambda: self._strategy.ask(count))
            if not isinstance(asked, list):
                raise KernloomError(f"strategy '{self.name}' gave {_text(asked)}, not a list")
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
        # A copy, which the strategy may change.
        self._called("tell", lambda: self._strategy.tell(dict(point), value))

    def _called(self, where: str, call: Callable[[], _Answer]) -> _Answer:
        """The result of a call of the strategy; errors name the strategy."""
        try:
            with stdout_to_stderr():
                return call()
        except (KernloomError, KeyboardInterrupt):
            raise
        except BaseException as error:  # whatever code from outside raises
            raise KernloomError(
                f"strategy '{self.name}' failed in {where}: {type(error).__name__}: "
                f"{_text(error, str)}",
                hint="Everything evaluated so far is kept. Choose another strategy, or mend this "
                "one.",
            ) from error

    def _new(self, asked: list[Point]) -> list[Point]:
        new = []
        for point in asked:
            if why := self._invalid(point):
                raise KernloomError(
                    f"strategy '{self.name}' suggests {_shown(point)}, which is not a valid point "
                    f"of the space: {why}",
                    hint="Choose another strategy, or mend this one.",
                )
            ranks = self.space.ranks_of(point)
            index = self.space.index_at(ranks)
            if index not in self._seen:
                self._seen.add(index)
                # With the values of the axes: 8.0 is the point 8.
                new.append(self.space.point(ranks))
        return new

    def _invalid(self, point: Any) -> str:
        """Why a point is not valid; empty if it is."""
        if not isinstance(point, Mapping):
            return "it is no mapping"
        if more := [key for key in point if key not in self.space.keys]:
            return f"{more[0]!s} is no axis"
        try:
            self.space.ranks_of(point)
        except UsageError as error:
            return error.message
        except Exception:  # of the values' own methods
            return "its values have wrong types"
        if self.space.contains(point):
            return ""
        broken = [c for c in self.space.constraints if not c.holds(dict(point))]
        return f"a constraint does not hold: {getattr(broken[0], 'text', broken[0])}"


def _shown(point: Any) -> str:
    if not isinstance(point, Mapping) or not point:
        return _text(point)
    return ", ".join(f"{_text(key, str)}={_text(value)}" for key, value in point.items())[:200]


def _text(value: Any, convert: Callable[[Any], str] = repr) -> str:
    """A value for a message, even if its own conversion to text fails."""
    try:
        return convert(value)[:80]
    except Exception:
        return f"a {type(value).__name__}"
