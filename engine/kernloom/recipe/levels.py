"""Levels of a verified recipe: the same config (L1), the same bytes (L2), the same results (L3)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from kernloom.base.files import sha256_text
from kernloom.base.gauges import GAUGES
from kernloom.measure.trial import Trial
from kernloom.plan.artifact import Artifact, steps_of
from kernloom.recipe.difference import comparable, differing
from kernloom.recipe.entries import Entry
from kernloom.recipe.lock import TEMPLATES, Lock, LockedArtifact, LockedPoint, short

Status = Literal["reached", "failed", "not claimable", "not checked"]
LEVELS = ("L1", "L2", "L3")
MEANINGS = {
    "L1": "same config and points",
    "L2": "same sources and toolchain, same bytes",
    "L3": "outputs within tolerance, claims hold",
}
_SAME = 1e-9
"""Relative difference of counts that a lock rounds."""


@dataclass(frozen=True)
class Level:
    """What came of one level."""

    name: str
    status: Status
    reason: str = ""

    @property
    def line(self) -> str:
        said = f"{self.name} {self.status}: {MEANINGS[self.name]}"
        return f"{said} ({self.reason})" if self.reason else said


def compared(points: Sequence[LockedPoint], here: Sequence[Entry]) -> Level:
    if len(points) != len(here):
        return Level("L1", "failed", f"it has {len(points)} points, and here {len(here)}")
    for locked, entry in zip(points, here, strict=True):
        for difference in differing(dict(locked.point), dict(entry.point.swept)):
            return Level("L1", "failed", f"the points differ: {difference.text}")
        old, new = comparable(locked.config), comparable(entry.point.data)
        for difference in differing(old, new):
            return Level("L1", "failed", difference.text)
    return Level("L1", "reached", f"{len(points)} points" if len(points) > 1 else "")


@dataclass(frozen=True)
class Changes:
    """Why an artifact is not the locked one."""

    failed: str = ""
    not_claimable: str = ""


def changes_of(lock: Lock, key: str, artifact: Artifact) -> Changes:
    """Why an artifact is not the locked one, or is rendered from other templates."""
    locked = {one.name: one for one in _locked_steps(lock, key)}
    steps = list(steps_of(artifact))
    for step in steps:
        old = locked.get(step.name)
        if old is None:
            return Changes(failed=f"{artifact.name} has a new part, {step.name}")
        if changed := _changed_file(old, step):
            return Changes(failed=changed)
    if key == artifact.key:
        return Changes()
    for step in steps:
        old = locked[step.name]
        if old.toolchain != short(step.identity.digest):
            return Changes(not_claimable=_other_compiler(lock, old, step))
        for kind, theirs, ours in (
            ("system header", old.headers, step.headers),
            ("system file", old.linked, step.linked),
        ):
            for path in dict.fromkeys([*theirs, *ours]):
                if theirs.get(path) != short(ours.get(path, "")):
                    return Changes(not_claimable=f"{kind} {path} is another here")
    for step in steps:
        old = locked[step.name]
        if old.argv != step.argv:
            gone = [flag for flag in old.argv if flag not in step.argv]
            new = [flag for flag in step.argv if flag not in old.argv]
            said = " ".join([*(f"-[{flag}]" for flag in gone), *(f"+[{flag}]" for flag in new)])
            return Changes(failed=f"{step.name} is built with other flags: {said or 'order'}")
    return Changes(failed=f"{artifact.name} is rendered otherwise from the same templates")


def _locked_steps(lock: Lock, key: str) -> Iterator[LockedArtifact]:
    artifact = lock.artifacts[key]
    for step in artifact.steps.values():
        yield from _locked_steps(lock, step)
    yield artifact


def _changed_file(old: LockedArtifact, new: Artifact) -> str:
    """The first source that differs; '' if none does."""
    if old.origins:
        ours = {path: short(sha256_text(text)) for path, text in new.origins.items()}
        theirs, folder = old.origins, f"{TEMPLATES}/"
    else:
        ours, theirs, folder = {p: short(h) for p, h in new.inputs.items()}, old.inputs, ""
    for path in dict.fromkeys([*theirs, *ours]):
        if path not in ours:
            return f"{folder}{path} is not used here"
        if path not in theirs:
            return f"{folder}{path} was not used then"
        if theirs[path] != ours[path]:
            return f"{folder}{path} was changed (source of {new.name})"
    return ""


def _other_compiler(lock: Lock, old: LockedArtifact, new: Artifact) -> str:
    """How the compiler differs from the locked one."""
    then: Mapping[str, Any] = lock.toolchains.get(old.toolchain, {})
    now = new.identity
    if (then.get("name"), then.get("version")) != (now.toolchain, now.version):
        was = f"{then.get('name')} {then.get('version')}"
        return f"another toolchain: {was} then, {now.toolchain} {now.version} here"
    parts: Mapping[str, str] = then.get("parts") or {}
    changed = [part for part, digest in now.parts.items() if parts.get(part) != short(digest)]
    what = ", ".join(changed[:3]) or "its parts"
    return f"another build of {now.toolchain} {now.version}: {what} differ"


def other_count(locked: LockedPoint, trial: Trial) -> str:
    """An exact metric that is not that of the lock."""
    for gauge in GAUGES.all():
        old, new = locked.metrics.get(gauge.name), trial.metrics.get(gauge.name)
        if not gauge.exact or old is None or new is None:
            continue
        if abs(new - old) > _SAME * abs(old):
            return f"{name_of(trial)}: {gauge.name} is {new:,}, and {old:,} in the lock"
    return ""


def name_of(trial: Trial) -> str:
    named = ("workload", "target")
    point = " ".join(f"{key}={v}" for key, v in trial.point.items() if key not in named)
    return f"{trial.workload} on {trial.target}" + (f" ({point})" if point else "")
