"""Several engines that want the same trials: each trial is carried out by one of them.

An engine claims trials just before it carries them out. Those that another engine has claimed it
leaves for later; by then they are stored, or the other engine is gone and they are free again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from kernloom.measure.trial import Trial
from kernloom.plan.planned import Planned
from kernloom.store.claims import Claims


class Share(Protocol):
    """Which trials are this engine's to carry out."""

    def claim(self, plans: Sequence[Planned]) -> tuple[list[Planned], list[Planned]]:
        """Of some trials, those that are ours now, and those that another engine has."""

    def release(self, plan: Planned) -> None:
        """A trial of ours is stored."""

    def wait(self, plans: Sequence[Planned]) -> None:
        """Return when another engine has let go of one of these."""


class Everything:
    """Nobody else is asked: all trials are ours."""

    def claim(self, plans: Sequence[Planned]) -> tuple[list[Planned], list[Planned]]:
        return list(plans), []

    def release(self, plan: Planned) -> None:
        pass

    def wait(self, plans: Sequence[Planned]) -> None:
        pass


class Sharing:
    """Trials shared with every engine that works with the same store."""

    def __init__(
        self,
        claims: Claims,
        stored: Callable[[Sequence[Planned]], Mapping[str, Trial]],
        take: Callable[[Planned, Trial], None],
        waiting: Callable[[int], None],
    ) -> None:
        """`stored` finds the trials that other engines have carried out in the meantime, `take`
        gets each of them, and `waiting` is told how many trials are left to others."""
        self._claims = claims
        self._stored = stored
        self._take = take
        self._waiting = waiting
        self._held: set[str] = set()

    def claim(self, plans: Sequence[Planned]) -> tuple[list[Planned], list[Planned]]:
        held = [plan for plan in plans if self._claim(plan)]
        ids = {plan.id for plan in held}
        # Only now: until the claim was ours, another engine could still store it.
        found = self._stored(held)
        for plan in held:
            if plan.id in found:
                self.release(plan)
                self._take(plan, found[plan.id])
        mine = [plan for plan in held if plan.id not in found]
        return mine, [plan for plan in plans if plan.id not in ids]

    def _claim(self, plan: Planned) -> bool:
        if plan.id in self._held:
            return True
        if self._claims.take(plan.id):
            self._held.add(plan.id)
            return True
        return False

    def release(self, plan: Planned) -> None:
        if plan.id in self._held:
            self._held.remove(plan.id)
            self._claims.release(plan.id)

    def wait(self, plans: Sequence[Planned]) -> None:
        self._waiting(len(plans))
        self._claims.wait(plans[0].id)
        self._held.add(plans[0].id)
