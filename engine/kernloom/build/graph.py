"""Build graph: targets and actions of a plan file, for SConstruct."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import sys
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from kernloom.base.sealed import read_sealed, write_sealed
from kernloom.build.cores import Cores
from kernloom.build.limit import CompileLimit
from kernloom.build.make import Job, Result, execute
from kernloom.build.manifest import Verifier, Whole
from kernloom.build.shared_cache import SharedCache
from kernloom.plan.artifact import Artifact, from_plain, to_plain


def write_plan(
    path: Path,
    build: Path,
    workspace: Path,
    jobs: Iterable[Job],
    measured: int | None = None,
    cache: Path | None = None,
    limit: CompileLimit | None = None,
) -> None:
    """Write a plan file; `measured` is the core on which the engine may be measuring, `cache` the
    folder of the shared cache, `limit` that of compilations."""
    listed = list(jobs)
    # Kernels that are compiled alike share one mapping of stamps.
    shared = {id(job.artifact.stamps): job.artifact.stamps for job in listed}
    places = {key: place for place, key in enumerate(shared)}
    write_sealed(
        path,
        {
            "build": str(build),
            "workspace": str(workspace),
            "measured": measured,
            "cache": str(cache) if cache else None,
            "limit": asdict(limit) if limit else None,
            "stamps": list(shared.values()),
            "jobs": [
                {
                    "artifact": to_plain(job.artifact),
                    "stamps": places[id(job.artifact.stamps)],
                    "because": job.because,
                    "keep": job.keep,
                    "whole": job.whole,
                }
                for job in listed
            ],
        },
    )


class BuildGraph:
    """A plan in execution; holds the lock of its build folder."""

    def __init__(self, plan: Path) -> None:
        data = read_sealed(plan)
        self.build = Path(data["build"])
        self.workspace = Path(data["workspace"])
        self._cores = Cores(data["measured"], self.build)
        self._speak = threading.Lock()
        self._shared = SharedCache(Path(data["cache"])) if data["cache"] else None
        self._limit = CompileLimit(**data["limit"]) if data["limit"] else None
        self._lock = os.open(self.build / ".lock", os.O_RDWR | os.O_CREAT, 0o644)
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        self.jobs: dict[str, Job] = {}
        jobs = (_job(item, data["stamps"]) for item in data["jobs"])
        for job in self._still_needed(jobs):
            self.jobs[str(self.target(job.artifact))] = job

    def _still_needed(self, jobs: Iterable[Job]) -> Iterator[Job]:
        """Check again under the lock: another process may have built some."""
        verifier = Verifier()
        for job in jobs:
            whole = isinstance(verifier.condition(job.artifact, self.build), Whole)
            if whole and not job.keep:
                self.report(job, Result(job.artifact.key, ok=True, cached=True))
            else:
                yield replace(job, whole=whole)

    def target(self, artifact: Artifact) -> Path:
        """The name of an artifact in SCons. Not its real path: SCons would create its folder, which
        costs more than writing the files in it."""
        return self.workspace / artifact.key

    def sources(self, target: str) -> list[str]:
        """The targets that a target is made from; what exists already is no node, because it may
        still be deleted."""
        steps = self.jobs[target].artifact.steps.values()
        return [name for step in steps if (name := str(self.target(step))) in self.jobs]

    def make(self, target: list[Any], source: list[Any], env: Any) -> int:
        """The action of SCons' builder."""
        job = self.jobs[target[0].get_abspath()]
        with self._cores.for_child():
            result = execute(job, self.build, self.workspace, self._shared, self._limit)
        self.report(job, result)
        return 0 if result.ok else 1

    def report(self, job: Job, result: Result) -> None:
        with self._speak:
            sys.stdout.write(json.dumps(asdict(result)) + "\n")
            sys.stdout.flush()


def read_result(line: str) -> Result | None:
    """Parse a line of the graph's output; None if it is not a result."""
    try:
        return Result(**json.loads(line))
    except (ValueError, TypeError):
        return None


def die_with_parent(lifeline: int) -> None:
    """End this process and its compilers when the other end of the pipe closes."""

    def watch() -> None:
        os.read(lifeline, 1)
        if os.getpgrp() == os.getpid():
            os.killpg(0, signal.SIGKILL)

    threading.Thread(target=watch, daemon=True).start()


def _job(item: Mapping[str, Any], stamps: Sequence[Mapping[str, Any]]) -> Job:
    artifact = replace(from_plain(item["artifact"]), stamps=stamps[item["stamps"]])
    return Job(artifact, item["because"], item["keep"], item["whole"])
