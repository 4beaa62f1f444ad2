"""Which version of its kernels' sources a trial was planned from, whatever the tunables are."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING, Any

from kernloom.base.files import sha256_json, sha256_text
from kernloom.base.remember import ById
from kernloom.build.stage import StepArtifact
from kernloom.config.schema import Target
from kernloom.plan.render import source_for

if TYPE_CHECKING:
    from kernloom.run.planning import Planned

DEFINITION = "definition"
"""In the place of a path: what the config says about a source beside its tunables."""
DEFINED_BY = ("template", "file", "function", "macros", "work", "finish")
_LENGTH = 16
_sources: ById[dict[str, dict[str, str]]] = ById()


def sources_of(plan: Planned) -> Mapping[str, Mapping[str, str]]:
    """`kernel:family` -> path -> hash of every file that the kernel was rendered from."""
    target = plan.experiment.target
    parts = [part for item in plan.steps for part in (item.step.kernel, item.artifact)]
    return _sources.get(lambda *_: _found(plan.steps, target), target, *parts)


def _found(steps: tuple[StepArtifact, ...], target: Target) -> dict[str, dict[str, str]]:
    found: dict[str, dict[str, str]] = {}
    for item in steps:
        source, key = source_for(item.step, target)
        name = f"{item.step.kernel.name}:{key.rpartition('.')[2]}"
        defined: dict[str, Any] = {part: repr(getattr(source, part)) for part in DEFINED_BY}
        found.setdefault(name, {DEFINITION: sha256_json(defined)[:_LENGTH]})
        found[name] |= {path: _hash(text) for path, text in item.artifact.origins.items()}
    return found


@cache
def _hash(text: str) -> str:
    return sha256_text(text)[:_LENGTH]
