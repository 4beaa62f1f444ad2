"""Words of a test, parsed as a command line is: once, and then composed or planned."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kernloom.config.compose import Composer, Point
from kernloom.plan.planned import Planned
from kernloom.run.assembly import Assembly
from kernloom.run.planning import plan_points


def points_of(composer: Composer, words: Sequence[str], *, multirun: bool) -> Iterator[Point]:
    return composer.points(composer.parse(words, multirun=multirun))


def plans_of(assembly: Assembly, words: Sequence[str], *, multirun: bool) -> list[Planned]:
    return plan_points(assembly, assembly.composer.parse(words, multirun=multirun))
