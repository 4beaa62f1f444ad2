"""Versions of the kernel sources that a trial was planned from, independent of tunables."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kernloom.base.digest import DigestCache
from kernloom.base.files import sha256_json, sha256_text
from kernloom.config.schema import Target
from kernloom.plan.planned import Planned, StepArtifact
from kernloom.plan.render import source_for

DEFINITION = "definition"
"""Pseudo-path of a source's config section, without its tunables."""
DEFINED_BY = (
    *("template", "file", "function", "macros", "work", "finish", "core", "charge"),
    "distribute",
)
ORCHESTRATION = "(orchestration)"
"""The source that submits the tasks of a workload; no kernel has this name."""
_LENGTH = 16


def sources_of(plan: Planned, cache: DigestCache) -> Mapping[str, Mapping[str, str]]:
    """`kernel:family` -> path -> hash of every source file of the kernel."""
    target = plan.experiment.target
    parts = [
        part
        for item in plan.steps
        for part in (item.step.kernel.digest, *item.artifact.origins.items())
    ]
    tasks = plan.orchestration.artifact.origins if plan.orchestration else {}
    key = (sources_of, target.digest, *parts, tuple(tasks.items()))
    return cache.by_key(key, lambda: _found(plan.steps, target, tasks))


def _found(
    steps: tuple[StepArtifact, ...], target: Target, tasks: Mapping[str, str]
) -> dict[str, dict[str, str]]:
    found: dict[str, dict[str, str]] = {}
    if tasks:
        found[ORCHESTRATION] = {path: _hash(text) for path, text in tasks.items()}
    for item in steps:
        source, key = source_for(item.step, target)
        name = f"{item.step.kernel.name}:{key.rpartition('.')[2]}"
        defined: dict[str, Any] = {part: repr(getattr(source, part)) for part in DEFINED_BY}
        found.setdefault(name, {DEFINITION: sha256_json(defined)[:_LENGTH]})
        found[name] |= {path: _hash(text) for path, text in item.artifact.origins.items()}
    return found


def _hash(text: str) -> str:
    return sha256_text(text)[:_LENGTH]
