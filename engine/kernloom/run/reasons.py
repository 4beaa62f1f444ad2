"""Why a trial has to run: the facts that differ from those of the nearest stored one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from kernloom.base.digest import DigestCache
from kernloom.base.files import canonical_json
from kernloom.measure.trial import Trial
from kernloom.plan.facts import THIS_MACHINE
from kernloom.plan.planned import Planned, groups_of
from kernloom.run.execution import lasting
from kernloom.run.fleet import BESIDE_BUILDS
from kernloom.run.fleets import fleet_kind
from kernloom.store.store import Store

COMPARED = 2000
"""Number of the newest trials of a workload on a target to compare with."""
SHOWN = 40
"""Longer values are not shown."""
NOTHING_LIKE_IT = "nothing like it is stored"
_HASHED = ("artifacts", "programs", "data files", "peers", "config", "calls")
"""Groups whose values mean nothing to people."""
_LABELS = {
    "names": "{}",
    "run": "{}",
    "artifacts": "kernel of step {}",
    "programs": "program {}",
    "data files": "data file of tensor {}",
    "placement": "placement of tensor {}",
    "calls": "arguments of step {}",
    "stages": "pipeline.stages.{}",
    "peers": "peer {}",
    "config": "config (a stage of another package may look at all of it)",
    "code": "code of {}",
}
"""Label of a group's facts, where it is not GROUP.NAME."""
_FOLLOWS_FROM: Mapping[str, tuple[str, ...]] = {
    "calls": ("workload.sizes", "workload.scalars"),
    "artifacts": ("toolchain", "arch", "variant"),
    "programs": ("toolchain", "arch", "variant"),
    "arch": ("arch",),
    "measure": ("measure",),
}
"""Group -> label prefixes of the differences that cause its own."""


@dataclass(frozen=True)
class Difference:
    """A fact that has changed."""

    label: str
    change: str = ""
    """`0 -> 1`, if readable."""
    step: str = ""
    """The step whose kernel differs, if one does."""

    def __str__(self) -> str:
        return f"{self.label} {self.change}".rstrip()


@dataclass(frozen=True)
class Reason:
    """Why a trial has to run."""

    text: str
    differences: tuple[Difference, ...] = ()
    nearest: str = ""
    """The id of the stored trial with most facts in common."""

    @property
    def labels(self) -> tuple[str, ...]:
        return tuple(difference.label for difference in self.differences)


def reasons_for(plans: Sequence[Planned], store: Store) -> dict[str, Reason]:
    """Plan id -> why it has to run. The plans of a sweep are compared with the same trials."""
    known = store.latest(plan.id for plan in plans)
    stored: dict[tuple[str, str], _Stored] = {}
    found = {}
    for plan in plans:
        if plan.id in known:
            found[plan.id] = Reason(_not_reused(known[plan.id], plan))
            continue
        experiment = plan.experiment
        subject = (experiment.workload.name, experiment.target.name)
        if subject not in stored:
            here = fleet_kind(experiment.fleet).on_this_machine
            left_out = () if here else THIS_MACHINE
            stored[subject] = _Stored(store.facts(*subject, COMPARED), left_out)
        found[plan.id] = stored[subject].reason(plan.facts.groups())
    _name_parameters(plans, found, store)
    return found


def _name_parameters(plans: Sequence[Planned], found: dict[str, Reason], store: Store) -> None:
    """Name the changed parameters of a step where they explain its different kernel."""
    by_kernel = [plan for plan in plans if any(d.step for d in found[plan.id].differences)]
    nearest = store.latest(found[plan.id].nearest for plan in by_kernel)
    for plan in by_kernel:
        reason = found[plan.id]
        if trial := nearest.get(reason.nearest):
            differences = tuple(
                named
                for difference in reason.differences
                for named in _with_parameters(difference, trial.params, plan.params)
            )
            text = "; ".join(map(str, differences))
            found[plan.id] = replace(reason, text=text, differences=differences)


def _with_parameters(
    difference: Difference, before: Mapping[str, Any], now: Mapping[str, Any]
) -> list[Difference]:
    """One difference per changed parameter of its step; itself, if none has changed."""
    if not difference.step:
        return [difference]
    old, new = (_parameters(params, difference.step) for params in (before, now))
    changed = [
        Difference(f"{difference.label}: {name}", _change(old.get(name), new.get(name)))
        for name in dict.fromkeys([*new, *old])
        if canonical_json(old.get(name)) != canonical_json(new.get(name))
    ]
    return changed or [difference]


def _parameters(params: Mapping[str, Any], step: str) -> dict[str, Any]:
    """`transform.tunable` -> value of a step."""
    return {
        f"{transform}.{name}": value
        for transform, steps in params.items()
        if isinstance(steps, Mapping)
        for name, value in steps.get(step, {}).items()
    }


def _not_reused(trial: Trial, plan: Planned) -> str:
    """Why a stored trial with the same facts is no cache hit for a plan."""
    rerun = plan.experiment.rerun
    if rerun == "all":
        return "rerun=all"
    if trial.conditions.get(BESIDE_BUILDS):
        return "a study measured it while compilers ran"
    if not lasting(trial, plan):
        return f"it ended as {trial.status}, which another attempt may not"
    return f"rerun={rerun}, and it ended as {trial.status}"


class _Stored:
    """Facts of stored trials as a table of numbers: a column per fact, equal numbers for equal
    values."""

    def __init__(
        self, trials: Sequence[tuple[str, Mapping[str, Any]]], left_out: Sequence[str]
    ) -> None:
        self._left_out = left_out
        self._numbers: dict[str, int] = {}
        self._flattened = DigestCache()
        self._ids = [id for id, _ in trials]
        self._facts = [self._compared(groups_of(document)) for _, document in trials]
        rows = [self._texts(facts) for facts in self._facts]
        self._names = sorted({name for row in rows for name in row})
        numbers = [self._row(row, self._added) for row in rows]
        self._table: npt.NDArray[np.int64] = np.array(numbers, dtype=np.int64)

    def _compared(self, facts: Mapping[str, Any]) -> dict[str, Any]:
        return {group: found for group, found in facts.items() if group not in self._left_out}

    def _texts(self, facts: Mapping[str, Any]) -> dict[str, str]:
        """Group and path of each single fact -> its value as text."""
        return {
            f"{group}:{path}": text
            for group, found in facts.items()
            for path, text in self._flattened.get(_flattened, found).items()
        }

    def _row(self, texts: Mapping[str, str], number: Callable[[str], int]) -> list[int]:
        return [number(texts.get(name, "")) for name in self._names]

    def _added(self, text: str) -> int:
        return self._numbers.setdefault(text, len(self._numbers))

    def _known(self, text: str) -> int:
        """-1 equals no number of a stored fact."""
        return self._numbers.get(text, -1)

    def reason(self, facts: Mapping[str, Any]) -> Reason:
        """Compared with the stored trial that has the fewest other facts, the newest of several."""
        if not self._ids:
            return Reason(NOTHING_LIKE_IT)
        facts = self._compared(facts)
        row = np.array(self._row(self._texts(facts), self._known), dtype=np.int64)
        # Facts that no stored trial has count equally against all of them.
        at = int((self._table != row).sum(axis=1).argmin())
        differences = tuple(_differences(self._facts[at], facts))
        text = "; ".join(map(str, differences)) or NOTHING_LIKE_IT
        return Reason(text, differences, self._ids[at])


def _flattened(value: Any, path: str = "") -> dict[str, str]:
    """Path and text of every value that is not a mapping."""
    if not isinstance(value, Mapping):
        return {path: canonical_json(value)}
    found: dict[str, str] = {}
    for name, inner in value.items():
        found |= _flattened(inner, f"{path}.{name}" if path else str(name))
    return found


def _differences(before: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[Difference]:
    """Causes only: a difference that merely follows from another is left out."""
    found: list[tuple[str, Difference]] = []
    for group in dict.fromkeys([*now, *before]):
        old, new = before.get(group, {}), now.get(group, {})
        # Compared as JSON, because stored facts have been through JSON.
        if canonical_json(old) != canonical_json(new):
            found += [(group, difference) for difference in _changed(group, old, new)]
    for group, difference in found:
        causes = _FOLLOWS_FROM.get(group, ())
        others = [other.label for its_group, other in found if its_group != group]
        if not any(label.startswith(causes) for label in others if causes):
            yield difference


def _changed(group: str, old: Any, new: Any, path: str = "") -> Iterator[Difference]:
    """The innermost differences of a group."""
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        for name in dict.fromkeys([*new, *old]):
            inner = f"{path}.{name}" if path else str(name)
            before, now = old.get(name), new.get(name)
            if canonical_json(before) != canonical_json(now):
                yield from _changed(group, before, now, inner)
        return
    label = _LABELS.get(group, f"{group}.{{}}").format(path)
    if group in _HASHED:
        yield Difference(label, step=path if group == "artifacts" else "")
        return
    yield Difference(label, _change(old, new, hashed=group == "code"))


def _change(old: Any, new: Any, *, hashed: bool = False) -> str:
    """`0 -> 1`, if readable."""
    texts = [value if isinstance(value, str) else canonical_json(value) for value in (old, new)]
    if hashed:
        # A version and a hash, or only a hash.
        texts = [text.split(" ")[0] if " " in text else "" for text in texts]
    readable = all(0 < len(text) <= SHOWN for text in texts) and texts[0] != texts[1]
    return f"{texts[0]} -> {texts[1]}" if readable else ""
