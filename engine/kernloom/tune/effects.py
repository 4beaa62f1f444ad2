"""Refuses tunables without an effect: a search over them would only repeat trials."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator

from kernloom.base.errors import ConfigError
from kernloom.plan.planned import Planned
from kernloom.tune.planning import StudyPlan
from kernloom.tune.tunables import Point, StudyAxis

_COMMENT = re.compile(r"/\*.*?\*/", re.DOTALL)
SAMPLES = 4
"""Points around which a tunable is varied, beside the choice of the model."""


def check_effects(plan: StudyPlan) -> None:
    """Refuse a tunable that no template mentions and that changes no artifact."""
    texts = {
        one.step.name: "\n".join(one.source.origins.values())
        for part in plan.base.graph.of_type("sources", plan.base.outputs)
        for one in part
    }
    for axis in plan.study.tunables:
        text = texts.get(axis.step)
        # Tasks are shaped by more than templates; a fused step has no source of its own.
        if (
            plan.base.orchestration
            or text is None
            or len(axis.values) < 2
            or re.search(rf"\b{axis.name}\b", text)
        ):
            continue
        if not _has_effect(plan, axis):
            raise ConfigError(
                f"no template uses {axis.transform}.{axis.name} of step '{axis.step}': all of its "
                "values give the same code",
                key=next(r.key for r in plan.schedule if r.name == axis.step),
                hint="Use it in the kernel's template, or delete the tunable.",
            )


def _has_effect(plan: StudyPlan, axis: StudyAxis) -> bool:
    pairs = list(itertools.islice(_pairs(plan, axis), 2 * SAMPLES))
    return not pairs or any(_differ(plan, one, other) for one, other in pairs)


def _pairs(plan: StudyPlan, axis: StudyAxis) -> Iterator[tuple[Point, Point]]:
    """Points that differ in one tunable."""
    space = plan.study.space
    for point in (*plan.models[:1], *space.sample(SAMPLES)):
        others = ({**point, axis.key: v} for v in axis.values if v != point[axis.key])
        if other := next((one for one in others if space.contains(one)), None):
            yield point, other


def _differ(plan: StudyPlan, one: Point, other: Point) -> bool:
    """Whether two points run different artifacts, or one of them cannot be planned."""
    try:
        return _code(plan.plan(one)) != _code(plan.plan(other))
    except ConfigError:
        return True


def _code(plan: Planned) -> list[tuple[str, ...]]:
    """What is compiled for the steps, without comments: those of templates tell all decisions."""
    return [
        (
            one.step.name,
            *one.source.flags,
            *(_COMMENT.sub("", t) for t in one.source.files.values()),
        )
        for part in plan.graph.of_type("sources", plan.outputs)
        for one in part
    ]
