"""Recipes made in this process: written from plans without a run, read and planned again.

They are of format 1, which needs no build: the rules for configs from a recipe are the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import yaml

from command_line import Project
from kernloom import __version__
from kernloom.base.files import sha256_json, sha256_text
from kernloom.base.places import find_places
from kernloom.config.reader import load_yaml
from kernloom.measure.trial import Trial
from kernloom.plan.artifact import steps_of
from kernloom.plan.planned import Planned
from kernloom.recipe.entries import Entry, pinned, plain, recorded_config
from kernloom.recipe.lock import Lock, LockedArtifact, LockedPoint, request_hashes, short
from kernloom.recipe.recipe import read_recipe
from kernloom.recipe.request import Request
from kernloom.run.assembly import Assembly
from kernloom.run.planning import plan_each
from kernloom.run.provenance import provenance_conditions
from kernloom.run.trials import trial_of
from parsed import plans_of, points_of

ENDED: dict[str, Any] = {"status": "ok", "verified": True}


class RecipeBench:
    """A project whose recipes are written, read and planned by the engine in this process."""

    def __init__(self, project: Project) -> None:
        self.folder = project.folder
        self.assembly = Assembly(find_places(project.folder))
        self.local = next(iter(points_of(self.assembly.composer, [], multirun=False))).data

    def plan(self, *words: str) -> Planned:
        (plan,) = plans_of(self.assembly, words, multirun=False)
        return plan

    def plans(self, *words: str) -> list[Planned]:
        """The points of a sweep."""
        return plans_of(self.assembly, words, multirun=True)

    def write(self, name: str, plans: Sequence[Planned]) -> Path:
        """The recipe of trials that these plans would be."""
        now = datetime.now(UTC)
        trials = [
            trial_of(plan, {}, now, **ENDED, conditions=provenance_conditions(plan))
            for plan in plans
        ]
        entries = [sealed(format1_entry(trial)) for trial in trials]
        document = sealed({"recipe": 1, "kernloom": __version__, "trials": entries})
        return self.save(name, document)

    def read(self, path: Path) -> list[Entry]:
        return read_recipe(path).entries(self.assembly.composer, self.local)

    def replan(self, path: Path) -> tuple[list[Entry], list[Planned]]:
        """A recipe read and planned as `recipe run` does."""
        entries = self.read(path)
        points = [entry.point for entry in entries]
        return entries, plan_each(self.assembly, points, alone=len(entries) == 1)

    def document(self, path: Path) -> Any:
        return load_yaml(path.read_text(encoding="utf-8"), where=str(path))

    def save(self, name: str, document: Any) -> Path:
        """A document of the test's own as a recipe file."""
        path = self.folder / name
        dumper = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
        path.write_text(yaml.dump(document, Dumper=dumper, sort_keys=False), encoding="utf-8")
        return path


def format1_entry(trial: Trial) -> dict[str, Any]:
    """A trial in a recipe of format 1."""
    return {
        "point": plain(trial.point),
        "config": pinned(recorded_config(trial), trial.params),
        "expected": {
            "id": trial.id,
            "status": trial.status,
            "verified": trial.verified,
            "artifacts": {item["name"]: item["key"] for item in trial.artifacts},
        },
    }


def sealed(data: dict[str, Any]) -> dict[str, Any]:
    """The data of format 1 with its digest: that of a document is made of those of its trials."""
    told = {**data}
    if "trials" in told:
        told["trials"] = [entry["digest"] for entry in told["trials"]]
    return {**data, "digest": sha256_json(told)[:32]}


def lock_of(request: Request, plans: Sequence[Planned]) -> Lock:
    """The lock of plans as if they had been built and run."""
    steps = {
        step.key: step
        for plan in plans
        for _, artifact in plan.named_artifacts
        for step in steps_of(artifact)
    }
    identities = {short(step.identity.digest): step.identity for step in steps.values()}
    return Lock(
        kernloom=__version__,
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        request=request_hashes(request.written),
        git={"commit": "unknown"},
        host={"cpu": "unknown"},
        toolchains={
            digest: {
                "name": one.toolchain,
                "version": one.version,
                "package": "unknown",
                "target": one.triple,
                "flags": [],
                "parts": dict(one.parts),
            }
            for digest, one in identities.items()
        },
        artifacts={
            key: LockedArtifact(
                key=key,
                name=step.name,
                kind=step.kind,
                argv=step.argv,
                toolchain=short(step.identity.digest),
                inputs={path: short(digest) for path, digest in step.inputs.items()},
                headers={path: short(digest) for path, digest in step.headers.items()},
                linked={path: short(digest) for path, digest in step.linked.items()},
                origins={path: short(sha256_text(text)) for path, text in step.origins.items()},
                steps={path: one.key for path, one in step.steps.items()},
                output="0" * 32,
                bytes=1,
            )
            for key, step in steps.items()
        },
        points=tuple(
            LockedPoint(
                point=plain(plan.point.swept),
                config=recorded_config(trial_of(plan, {}, datetime.now(UTC), **ENDED)),
                params=plain(plan.params),
                id=plan.id,
                artifacts=artifact_keys(plan),
                status="ok",
                verified=True,
                metrics={"median_ns": 100.0, "ci_low_ns": 99.0, "ci_high_ns": 101.0},
                data={"golden": "0" * 32},
            )
            for plan in plans
        ),
        cost={"build_s": 1.0, "run_s": 1.0, "bytes": 1},
    )


def artifact_keys(plan: Planned) -> dict[str, str]:
    return {name: artifact.key for name, artifact in plan.named_artifacts}
