"""Builder: determines which artifacts are missing and why, and has SCons make only those.

When nothing is missing, SCons is not started.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from kernloom.base.errors import BuildError, KernloomError
from kernloom.base.places import Places
from kernloom.build.cores import MeasuredCore
from kernloom.build.explain import FETCHED, Explanation, Index, explain, to_plain
from kernloom.build.limit import CompileLimit
from kernloom.build.manifest import Damaged, Verifier, Whole, read_manifest
from kernloom.build.not_built import not_built
from kernloom.build.scons import LOG, Ahead, Scons
from kernloom.build.shared_cache import SharedCache
from kernloom.build.stable_paths import make_links
from kernloom.build.workspace import reports_missing_file, unwritable
from kernloom.plan.artifact import COMMANDS, FAILED, STEPS, Artifact, steps_of
from kernloom.plan.source import ENTRY

if TYPE_CHECKING:
    from kernloom.build.make import Job, Result

Progress = Callable[[int, int], None]
_ATTEMPTS = 4
"""Retries when inputs change during a build, or the build folder is deleted."""


@dataclass(frozen=True)
class State:
    """Whether an artifact is present, and if not, why."""

    status: Literal["cached", "missing"]
    explanation: Explanation
    fetched: bool = False
    """Whether it has just been copied from the shared cache."""

    @property
    def cached(self) -> bool:
        return self.status == "cached"


@dataclass(frozen=True)
class Outcome:
    """Result of building one artifact."""

    artifact: Artifact
    path: Path
    """The built file."""
    cached: bool
    seconds: float
    ok: bool
    message: str
    """The compiler's output."""
    source: Path
    """The compiled source, also of a failed build."""
    explanation: Explanation
    entry: str = ENTRY
    """Symbol to call."""
    outdated: str = ""
    """An outside file that differed from the key during the build."""
    fetched: bool = False
    """Whether it has been copied from the shared cache."""
    stopped: bool = False
    """Whether its compiler took too long."""


class Builder:
    """Builds artifacts below one build folder."""

    def __init__(
        self,
        places: Places,
        jobs: int = 0,
        keep: bool = False,
        ahead: Ahead | None = None,
        shared: SharedCache | None = None,
        never: bool = False,
        limit: CompileLimit | None = None,
    ) -> None:
        """`ahead` may hold an SCons that is started already; `shared` is a cache of artifacts of
        several checkouts. `never`: what is missing is an error. `limit`: of compilations."""
        self.places = places
        self.build_folder = places.build
        self.jobs = jobs or len(os.sched_getaffinity(0))
        self.keep = keep
        self._verifier = Verifier()
        self._index = Index(places.build)
        self._ahead = ahead or Ahead()
        self.shared = shared
        self._never = never
        self._limit = limit

    def prepare(self) -> None:
        """Start SCons ahead of a build that is likely to come."""
        if self._never:
            return
        self._ahead.prepare(self.places, self.jobs)

    def path(self, artifact: Artifact) -> Path:
        return artifact.path(self.build_folder)

    def state(self, artifact: Artifact, *, sweep: bool = False) -> State:
        """Whether the artifact is present and undamaged; if not, why it has to be built."""
        try:
            condition = self._verifier.condition(artifact, self.build_folder)
            if not isinstance(condition, Whole):
                reason = explain(artifact, self.build_folder, self._index, condition, sweep=sweep)
                return State("missing", reason)
        except OSError as error:
            raise BuildError(
                f"cannot read {error.filename or self.build_folder}: {error.strerror}"
            ) from None
        return State("cached", self._kept(artifact))

    def is_whole(self, artifact: Artifact) -> bool:
        """Whether the artifact is present and undamaged."""
        return isinstance(self._verifier.condition(artifact, self.build_folder), Whole)

    def fetched_state(self, artifact: Artifact) -> State:
        """The same, after looking into the shared cache, which gets what it lacks."""
        state = self.state(artifact)
        if self.shared is None:
            return state
        if state.cached:
            self.shared.publish(artifact, self.build_folder)
            return state
        found = self.shared.fetch(artifact, self.build_folder)
        if isinstance(found, Damaged):
            why = f"the copy in build.cache was damaged: {found.reason}"
            return State("missing", Explanation("corrupt", f"{why}; {state.explanation.text}"))
        return replace(self.state(artifact), fetched=True) if found else state

    def _kept(self, artifact: Artifact) -> Explanation:
        manifest = read_manifest(artifact.folder(self.build_folder)) or {}
        because: Mapping[str, Any] = manifest.get("because") or {}
        text = "nothing that goes into it has changed"
        if not because.get("text"):
            return Explanation("kept", text)
        if because.get("kind") == FETCHED:
            return Explanation("kept", f"{text}; {because['text']}", (because,))
        text += f"; built {manifest.get('created')} because: {because['text']}"
        return Explanation("kept", text, ({**because, "created": manifest.get("created")},))

    def build(
        self, artifacts: Iterable[Artifact], progress: Progress | None = None
    ) -> dict[str, Outcome]:
        """Build missing artifacts; returns outcomes by key. A failed compilation is an outcome, not
        an exception: BuildError means that nothing can be built here."""
        wanted = list(artifacts)
        outcomes: dict[str, Outcome] = {}
        for found in self.as_built(wanted, progress):
            outcomes |= found
        return {artifact.key: outcomes[artifact.key] for artifact in wanted}

    def as_built(
        self,
        artifacts: Iterable[Artifact],
        progress: Progress | None = None,
        *,
        measured: MeasuredCore | None = None,
    ) -> Generator[dict[str, Outcome], None, None]:
        """The same as a stream of outcomes, starting with those that need no build.

        Compilers keep off a core that is being measured.
        """
        wanted = list(artifacts)
        waiting = {artifact.key: artifact for artifact in wanted}
        outcomes: dict[str, Outcome] = {}
        jobs: list[Job] = []
        try:
            for attempt in range(1, _ATTEMPTS + 1):
                last = attempt == _ATTEMPTS
                outdated: dict[str, Outcome] = {}
                building = self._attempt(waiting, jobs, progress, measured)
                with contextlib.closing(building):
                    for found in building:
                        outdated |= {k: o for k, o in found.items() if o.outdated and not last}
                        known = {key: o for key, o in found.items() if key not in outdated}
                        outcomes |= known
                        yield known
                failed = {}
                waiting = {
                    key: outcome.artifact
                    for key, outcome in outcomes.items()
                    if outcome.ok and not last and not outcome.path.exists()
                }
                for key, outcome in outdated.items():
                    try:
                        waiting[key] = _redeclared(outcome.artifact)
                    except KernloomError as error:
                        failed[key] = replace(outcome, outdated="", message=str(error))
                outcomes |= failed
                if failed:
                    yield failed
                if not waiting:
                    break
            good = [_as_built(one, outcomes[one.key]) for one in wanted if outcomes[one.key].ok]
            self.link(good)
            self.note_uses(good)
            new = jobs or any(outcome.fetched for outcome in outcomes.values())
            if new or not (self.build_folder / COMMANDS).exists():
                bad = [outcome.artifact for outcome in outcomes.values() if not outcome.ok]
                self._note(good, bad)
        except OSError as error:
            raise unwritable(self.build_folder, error.strerror or str(error)) from None

    def _attempt(
        self,
        artifacts: Mapping[str, Artifact],
        made: list[Job],
        progress: Progress | None,
        measured: MeasuredCore | None,
    ) -> Generator[dict[str, Outcome], None, None]:
        """Build once; outcomes by the keys of `artifacts`, which may be keys of older versions.
        Adds the jobs to `made`."""
        states = {key: self.fetched_state(artifact) for key, artifact in artifacts.items()}
        jobs = self._jobs(artifacts, states)
        if jobs and self._never:
            missing_now = [one for key, one in artifacts.items() if not states[key].cached]
            if missing_now:
                raise not_built(missing_now, self.build_folder, self.shared)
            jobs = []
        made += jobs
        missing = {job.artifact.key: job.artifact for job in jobs}
        yield {
            key: self._outcome(artifact, states[key], None)
            for key, artifact in artifacts.items()
            if artifact.key not in missing
        }
        asked: dict[str, list[str]] = {}
        for key, artifact in artifacts.items():
            asked.setdefault(artifact.key, []).append(key)
        with contextlib.closing(self._made(jobs, progress, measured)) as building:
            for results in building:
                yield {
                    key: self._outcome(artifacts[key], states[key], result)
                    for result in results
                    for key in asked.get(result.key, ())
                }

    def _jobs(self, artifacts: Mapping[str, Artifact], states: Mapping[str, State]) -> list[Job]:
        from kernloom.build.make import INTERMEDIATES, Job

        jobs: dict[str, Job] = {}
        for key, artifact in artifacts.items():
            folder = artifact.folder(self.build_folder)
            keep = self.keep and artifact.kind == "kernel" and not artifact.packaged
            bare = keep and not all((folder / name).is_file() for name in INTERMEDIATES)
            if not states[key].cached or bare:
                because = to_plain(states[key].explanation)
                job = Job(artifact, because, keep, states[key].cached)
                self._add_steps(jobs, artifact)
                jobs[artifact.key] = job
        return list(jobs.values())

    def _add_steps(self, jobs: dict[str, Job], artifact: Artifact) -> None:
        """Add jobs for the missing artifacts that this one is made from."""
        from kernloom.build.make import Job

        for step in artifact.steps.values():
            if step.key not in jobs and not (state := self.fetched_state(step)).cached:
                self._add_steps(jobs, step)
                jobs[step.key] = Job(step, to_plain(state.explanation))

    def _outcome(self, artifact: Artifact, state: State, result: Result | None) -> Outcome:
        ok = result is None or result.ok
        source = artifact.folder(self.build_folder) / artifact.main
        if result and not ok and not state.cached:
            failed = result.source or f"{artifact.key}/{artifact.main}"
            source = self.build_folder / FAILED / failed
        return Outcome(
            artifact=artifact,
            path=self.path(artifact),
            cached=state.cached or (result is not None and result.cached),
            seconds=result.seconds if result else 0.0,
            ok=ok,
            message=_message(result) if result else "",
            source=source,
            explanation=state.explanation,
            outdated=result.outdated if result else "",
            fetched=state.fetched,
            stopped=result is not None and result.stopped,
        )

    def history(self, name: str) -> Path:
        """The file that records the builds under a name."""
        return self._index.path(name)

    def link(self, artifacts: Iterable[Artifact]) -> None:
        """Point the stable paths of these runtimes to the built artifacts."""
        make_links(artifacts, self.build_folder)

    def note_uses(self, artifacts: Iterable[Artifact]) -> None:
        """Record that these artifacts were used, so that their next versions are compared with
        them; only speed and explanations depend on this."""
        with contextlib.suppress(OSError):
            self._index.note_uses(artifacts)

    def _note(self, good: Sequence[Artifact], bad: Sequence[Artifact]) -> None:
        """Update compile_commands.json for editors."""
        from kernloom.build.compile_commands import write_compile_commands

        write_compile_commands(self.places, good, bad)

    def _made(
        self, jobs: Sequence[Job], progress: Progress | None, measured: MeasuredCore | None
    ) -> Generator[list[Result], None, None]:
        """Have SCons make all jobs; yields results as they arrive."""
        tell = progress or (lambda done, total: None)
        left = {job.artifact.key: job for job in jobs}
        total = _whole_artifacts(left)
        if left:
            tell(0, total)
            self.build_folder.mkdir(parents=True, exist_ok=True)
        for attempt in range(1, _ATTEMPTS + 1):
            if not left:
                return
            if attempt > 1:
                # A deleted build folder is created again, for the remaining jobs.
                for job in [*left.values()]:
                    self._add_steps(left, job.artifact)
            with (
                _deletion(self.build_folder, last=attempt == _ATTEMPTS),
                contextlib.closing(self._scons()) as scons,
            ):
                waiting = [*left.values()]
                for results in scons.results(waiting, measured, self.shared, self._limit):
                    self._check_broken(results)
                    self._learn(left, results)
                    known = [one for result in results for one in _take(left, result)]
                    tell(total - _whole_artifacts(left), total)
                    yield known
                if left:
                    raise self._unfinished(scons)

    def _learn(self, jobs: Mapping[str, Job], results: Sequence[Result]) -> None:
        """Keep for later builds how long kernels took to compile."""
        if self._limit is None:
            return
        for result in results:
            job = jobs.get(result.key)
            if result.ok and job and job.artifact.kind == "kernel":
                self._limit.seen(result.seconds)

    def _check_broken(self, results: Sequence[Result]) -> None:
        for result in results:
            if result.deleted:
                raise FileNotFoundError(errno.ENOENT, result.broken)
            if result.broken:
                raise unwritable(self.build_folder, result.broken)

    def _unfinished(self, scons: Scons) -> BuildError | FileNotFoundError:
        """The error when SCons ended early, with its last output."""
        said = (scons.folder / LOG).read_text(encoding="utf-8", errors="replace").strip()
        if reports_missing_file(said, self.build_folder) or not scons.plan.exists():
            return FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(scons.folder))
        return BuildError(
            f"SCons ended with exit code {scons.code} before all was built",
            hint="\n  ".join(said.splitlines()[-12:]),
        )

    def _scons(self) -> Scons:
        return self._ahead.take(self.places, self.jobs)


def _whole_artifacts(jobs: Mapping[str, Job]) -> int:
    """Number of artifacts that are not parts of others."""
    return sum(job.artifact.kind not in STEPS for job in jobs.values())


def _take(jobs: dict[str, Job], result: Result) -> list[Result]:
    """Take a finished job, and if it failed, those that needed it; returns their results."""
    del jobs[result.key]
    if result.ok:
        return [result]
    needed = [
        key
        for key, job in jobs.items()
        if any(step.key == result.key for step in steps_of(job.artifact))
    ]
    for key in needed:
        del jobs[key]
    return [result, *(replace(result, key=key) for key in needed)]


@contextlib.contextmanager
def _deletion(build: Path, *, last: bool) -> Iterator[None]:
    """Treat a missing file as a deleted build folder; raise only on the last attempt."""
    try:
        yield
    except FileNotFoundError:
        if last:
            raise BuildError(
                f"files below {build} were deleted during the build, again and again"
            ) from None


def _message(result: Result) -> str:
    """The compiler's output, or why it does not count."""
    if not result.outdated:
        return result.message
    return (
        f"{result.outdated} changed while this was being built, {_ATTEMPTS} times in a row, or it "
        "is read in a way that cannot be foreseen"
    )


def _redeclared(artifact: Artifact) -> Artifact:
    """The artifact with the current outside files."""
    return artifact.redeclare() if artifact.redeclare else artifact


def _as_built(artifact: Artifact, outcome: Outcome) -> Artifact:
    """The requested artifact in the version that was built."""
    if outcome.artifact.key == artifact.key:
        return artifact
    return replace(
        outcome.artifact,
        name=artifact.name,
        arch=artifact.arch,
        variant=artifact.variant,
        runtime=artifact.runtime,
    )
