"""Claims between engines that want the same trials, so that each trial runs only once.

An engine claims trials just before it runs them. Trials claimed by another engine are left for
later; by then they are stored, or the other engine has ended and they are free again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from kernloom.measure.trial import Trial
from kernloom.plan.planned import Planned
from kernloom.store.claims import Claims


class Share(Protocol):
    """Decides which trials this engine runs."""

    def claim(self, plans: Sequence[Planned]) -> tuple[list[Planned], list[Planned]]:
        """Split trials into those claimed now, and those that another engine holds."""

    def release(self, plan: Planned) -> None:
        """Release a trial that is stored."""

    def wait(self, plans: Sequence[Planned]) -> None:
        """Return when another engine has released one of these."""


class Everything:
    """No sharing: this engine runs all trials."""

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
        """`stored` finds the trials that other engines have run in the meantime, `take` receives
        each of them, and `waiting` the number of trials left to others."""
        self._claims = claims
        self._stored = stored
        self._take = take
        self._waiting = waiting
        self._held: set[str] = set()

    def claim(self, plans: Sequence[Planned]) -> tuple[list[Planned], list[Planned]]:
        held = [plan for plan in plans if self._claim(plan)]
        ids = {plan.id for plan in held}
        # Only now: before the claim, another engine could still store it.
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
