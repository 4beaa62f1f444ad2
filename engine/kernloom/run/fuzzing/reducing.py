"""Reduces a failure to few and small draws."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from kernloom.base.errors import KernloomError
from kernloom.config.schema import SizeRange
from kernloom.run.fuzzing.draws import Draw
from kernloom.run.fuzzing.shrinking import shorten, shrink
from kernloom.run.fuzzing.verifying import Drawn, DrawVerifier
from kernloom.run.progress import Progress
from kernloom.run.trials import status_of


@dataclass(frozen=True)
class Failure:
    """A draw that failed."""

    drawn: Drawn
    error: KernloomError
    number: int
    before: tuple[Drawn, ...] = ()
    """Earlier draws of its session."""

    @property
    def status(self) -> str:
        return status_of(self.error)


@dataclass(frozen=True)
class Reduced:
    """The smallest draws found that show a failure; the last one fails."""

    draws: tuple[Drawn, ...]
    error: KernloomError
    always: bool = True
    """False: it did not fail again, so that nothing could be reduced."""

    @property
    def condition(self) -> str:
        """When it fails, for people; empty if it always does."""
        *before, _ = self.draws
        if not self.always:
            return " It does not fail every time."
        if not before:
            return ""
        others = f"another ({before[0].draw})" if len(before) == 1 else f"{len(before)} others"
        return f" It fails only after {others}: the kernel keeps state between calls."


class Reduction:
    """Leaves out draws, and makes the others smaller, as long as the last one fails in the same
    way."""

    def __init__(
        self,
        failure: Failure,
        limits: Mapping[str, SizeRange],
        verifier: DrawVerifier,
        built: Callable[[Draw], Drawn | None],
        progress: Progress,
    ) -> None:
        """`built` plans and builds a draw; None for an impossible one."""
        self._failure = failure
        self._error = failure.error
        self._limits = limits
        self._verifier = verifier
        self._built = built
        self._progress = progress

    def reduced(self) -> Reduced:
        item, before = self._failure.drawn, self._failure.before
        if self._fails(item):
            before = ()
        elif before and self._fails(before[-1], item):
            before = before[-1:]
        elif before and self._fails(*before, item):
            before = tuple(shorten(before, lambda some: self._fails(*some, item)))
        else:
            return Reduced((item,), self._error, always=False)
        smallest = self._smallest(item, lambda one: (*before, one))
        if len(before) == 1:
            before = (self._smallest(before[0], lambda one: (one, smallest)),)
        return Reduced((*before, smallest), self._error)

    def _fails(self, *draws: Drawn) -> bool:
        """Whether the last of some draws fails as before; keeps its error."""
        self._progress.update("shrinking", 0, 2, str(draws[-1].draw))
        error = self._verifier.verify_alone(*draws)
        if error is None or status_of(error) != self._failure.status:
            return False
        self._error = error
        return True

    def _smallest(self, item: Drawn, with_others: Callable[[Drawn], Sequence[Drawn]]) -> Drawn:
        """The smallest form of a draw; `with_others` gives the whole sequence that has to fail."""
        built = {str(item.draw): item}

        def fails(draw: Draw) -> bool:
            simpler = self._built(draw)
            if simpler is None:
                return False
            built[str(draw)] = simpler
            return self._fails(*with_others(simpler))

        return built[str(shrink(item.draw, self._limits, fails))]
