"""How attacks count what they tried, and the table that ends a run of them.

A test of tests/attack takes the fixture `attack`, asks it how many cases to try, and reports each
failure to it. The normal run tries a small seeded share; `tests/run --attack` tries all, also of
the few other tests that have many cases.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterable, Iterator
from typing import TypeVar

import pytest

T = TypeVar("T")
WHOLE = "KERNLOOM_TESTS_WHOLE"
"""Set by --attack, for parameters that are chosen before a test can ask for options."""


def whole() -> bool:
    """Whether every case is to be tried."""
    return WHOLE in os.environ


class Attack:
    """One kind of attack: the cases to try, and those that got through."""

    def __init__(self, kind: str, random: random.Random, *, whole: bool) -> None:
        self.random = random
        """Seeded by the kind: the same cases in every run."""
        self.whole = whole
        self.counts: dict[str, str | int] = {"kind": kind, "tried": 0, "failed": 0}
        self._failures: list[str] = []

    def cases(self, cases: Iterable[T], small: int) -> Iterator[T]:
        """All cases in a whole attack, else `small` of them; each one yielded counts as tried."""
        listed = list(cases)
        if not self.whole and len(listed) > small:
            listed = self.random.sample(listed, small)
        for case in listed:
            self.counts["tried"] = int(self.counts["tried"]) + 1
            yield case

    def failed(self, what: str) -> None:
        """Report that a case got through; the attack goes on with the next."""
        self.counts["failed"] = int(self.counts["failed"]) + 1
        self._failures.append(what)

    def check(self) -> None:
        """Fail the test if any case got through; to be called last."""
        tried = self.counts["tried"]
        shown = "\n".join(self._failures[:20])
        assert not self._failures, f"{len(self._failures)} of {tried} got through:\n{shown}"
        assert tried, "nothing was tried"


def table(reports: Iterable[pytest.TestReport]) -> list[str]:
    """Tried and failed for each kind of attack, as lines of text."""
    counts = [
        value
        for report in reports
        if report.when == "call"
        for name, value in report.user_properties
        if name == "attack" and isinstance(value, dict)
    ]
    if not counts:
        return []
    width = max(len(str(count["kind"])) for count in counts)
    return [f"{'attack':{width}}  tried  failed"] + [
        f"{count['kind']:{width}}  {count['tried']:5}  {count['failed']:6}"
        for count in sorted(counts, key=lambda count: str(count["kind"]))
    ]
