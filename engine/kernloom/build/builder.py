"""Builds artifacts: finds out which are missing and why, and has SCons make just those.

When nothing is missing, SCons is not started.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import sys
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Literal, cast

from kernloom.build.artifact import Artifact
from kernloom.build.cores import MeasuredCore
from kernloom.build.explain import Explanation, Index, explain, to_plain
from kernloom.build.manifest import Verifier, read_manifest
from kernloom.build.workspace import broken, workspace
from kernloom.errors import BuildError
from kernloom.files import link_atomically
from kernloom.places import Places
from kernloom.plan.source import ENTRY

if TYPE_CHECKING:
    import subprocess

    from kernloom.build.make import Job, Result

Progress = Callable[[int, int], None]
_GRACE_S = 3.0
_PIPE_BYTES = 2**20


@dataclass(frozen=True)
class State:
    """Whether an artifact is there, and why it is not."""

    status: Literal["cached", "missing"]
    explanation: Explanation

    @property
    def cached(self) -> bool:
        return self.status == "cached"


@dataclass(frozen=True)
class Outcome:
    """How building one artifact ended."""

    artifact: Artifact
    path: Path
    """The built file."""
    cached: bool
    seconds: float
    ok: bool
    message: str
    """What the compiler said."""
    source: Path
    """The source it was given; of a failed build, too."""
    explanation: Explanation
    entry: str = ENTRY
    """The symbol in it that is called."""


class Builder:
    """Builds artifacts below one build folder."""

    def __init__(self, places: Places, jobs: int = 0, keep: bool = False) -> None:
        self.places = places
        self.build_folder = places.build
        self.jobs = jobs or len(os.sched_getaffinity(0))
        self.keep = keep
        self._verifier = Verifier()
        self._index = Index(places.build)

    def path(self, artifact: Artifact) -> Path:
        return artifact.path(self.build_folder)

    def state(self, artifact: Artifact) -> State:
        """Whether the artifact is there and whole; if not, why it has to be built."""
        try:
            problem = self._verifier.problem(artifact, self.build_folder)
            if problem is not None:
                reason = explain(artifact, self.build_folder, self._index, problem)
                return State("missing", reason)
        except OSError as error:
            raise BuildError(
                f"cannot read {error.filename or self.build_folder}: {error.strerror}"
            ) from None
        return State("cached", self._kept(artifact))

    def _kept(self, artifact: Artifact) -> Explanation:
        manifest = read_manifest(artifact.folder(self.build_folder)) or {}
        because: Mapping[str, Any] = manifest.get("because") or {}
        text = "nothing that goes into it has changed"
        if not because.get("text"):
            return Explanation("kept", text)
        text += f"; built {manifest.get('created')} because: {because['text']}"
        return Explanation("kept", text, ({**because, "created": manifest.get("created")},))

    def build(
        self, artifacts: Iterable[Artifact], progress: Progress | None = None
    ) -> dict[str, Outcome]:
        """Build what is missing; by key, how each artifact fared. A failed compile is an outcome,
        not an exception: BuildError means that nothing can be built here."""
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
        """The same, outcomes as soon as they are known: first those that need no building.

        What is built meanwhile stays away from a core on which something is being measured.
        """
        wanted = list(artifacts)
        unique = {artifact.key: artifact for artifact in wanted}
        states = {key: self.state(artifact) for key, artifact in unique.items()}
        jobs = self._jobs(unique, states)
        missing = {job.artifact.key for job in jobs}
        outcomes = {
            key: self._outcome(artifact, states[key], None)
            for key, artifact in unique.items()
            if key not in missing
        }
        yield dict(outcomes)
        try:
            with contextlib.closing(self._made(jobs, progress, measured)) as made:
                for results in made:
                    found = {
                        result.key: self._outcome(unique[result.key], states[result.key], result)
                        for result in results
                    }
                    outcomes |= found
                    yield found
            self.link(artifact for artifact in wanted if outcomes[artifact.key].ok)
            self._index_shared(artifact for artifact in wanted if outcomes[artifact.key].ok)
            self._note(jobs, unique.values(), outcomes)
        except OSError as error:
            raise broken(self.build_folder, error.strerror or str(error)) from None

    def needed(self, artifacts: Iterable[Artifact]) -> list[Job]:
        """What has to be made so that all of `artifacts` are there."""
        unique = {artifact.key: artifact for artifact in artifacts}
        return self._jobs(unique, {key: self.state(item) for key, item in unique.items()})

    def _jobs(self, artifacts: Mapping[str, Artifact], states: Mapping[str, State]) -> list[Job]:
        from kernloom.build.make import INTERMEDIATES, Job

        jobs = []
        for key, artifact in artifacts.items():
            folder = artifact.folder(self.build_folder)
            keep = self.keep and artifact.kind == "kernel" and not artifact.packaged
            bare = keep and not all((folder / name).is_file() for name in INTERMEDIATES)
            if not states[key].cached or bare:
                because = to_plain(states[key].explanation)
                jobs.append(Job(artifact, because, keep, states[key].cached))
        return jobs

    def _outcome(self, artifact: Artifact, state: State, result: Result | None) -> Outcome:
        ok = result is None or result.ok
        folder = artifact.folder(self.build_folder)
        failed = self.build_folder / "failed" / artifact.key
        return Outcome(
            artifact=artifact,
            path=self.path(artifact),
            cached=state.cached or (result is not None and result.cached),
            seconds=result.seconds if result else 0.0,
            ok=ok,
            message=result.message if result else "",
            source=(folder if ok or state.cached else failed) / artifact.main,
            explanation=state.explanation,
        )

    def link(self, artifacts: Iterable[Artifact]) -> None:
        """Make the stable paths of these built runtimes lead to them."""
        for artifact in artifacts:
            link = artifact.link(self.build_folder)
            if link and not (link.exists() and link.samefile(self.path(artifact))):
                link_atomically(link, self.path(artifact))

    def _index_shared(self, artifacts: Iterable[Artifact]) -> None:
        """Note artifacts that were built under another name under their own, too: the next
        build under that name wants to know its predecessor."""
        for artifact in artifacts:
            manifest = read_manifest(artifact.folder(self.build_folder)) or {}
            if manifest.get("name") != artifact.name and not self._index.knows(artifact):
                self._index.append(artifact, str(manifest.get("created", "")))

    def _note(
        self, jobs: Sequence[Job], artifacts: Iterable[Artifact], outcomes: Mapping[str, Outcome]
    ) -> None:
        """Keep what editors read up to date."""
        from kernloom.build.compile_commands import FILE, write_compile_commands

        if jobs or not (self.build_folder / FILE).exists():
            good = [artifact for artifact in artifacts if outcomes[artifact.key].ok]
            write_compile_commands(self.places, good)

    @contextlib.contextmanager
    def planned(self, jobs: Sequence[Job], measured: MeasuredCore | None = None) -> Iterator[Path]:
        """A plan file, in a workspace that is gone afterwards."""
        from kernloom.build.graph import write_plan

        with workspace(self.build_folder) as folder:
            plan = folder / "plan.json"
            core = None if measured is None else measured.number
            write_plan(plan, self.build_folder, folder, jobs, core)
            yield plan

    def _made(
        self, jobs: Sequence[Job], progress: Progress | None, measured: MeasuredCore | None
    ) -> Generator[list[Result], None, None]:
        """Have SCons make all jobs at once; what has ended since the last look."""
        from kernloom.build.graph import read_result

        if not jobs:
            return
        tell = progress or (lambda done, total: None)
        done = 0
        tell(0, len(jobs))
        with self.planned(jobs, measured) as plan, (plan.parent / "scons.log").open("w+b") as log:
            with self._scons(plan, log.fileno()) as process:
                for lines in _lines(cast("IO[bytes]", process.stdout).fileno()):
                    results = [result for line in lines if (result := read_result(line))]
                    for result in results:
                        if result.broken:
                            raise broken(self.build_folder, result.broken)
                        done += 1
                        tell(done, len(jobs))
                    yield results
            if done < len(jobs):
                log.seek(0)
                said = log.read().decode(errors="replace").strip().splitlines()[-12:]
                raise BuildError(
                    f"SCons ended with exit code {process.returncode} before all was built",
                    hint="\n  ".join(said),
                )

    @contextlib.contextmanager
    def _scons(self, plan: Path, log: int) -> Iterator[subprocess.Popen[bytes]]:
        """SCons with its compilers in a process group, ended whatever happens here."""
        import subprocess

        # The group notices by this pipe when this process is killed outright.
        listen, hold = os.pipe()
        options = [f"--plan={plan}", f"--lifeline={listen}", "-Q", "-s", "-k", f"-j{self.jobs}"]
        environment = {k: v for k, v in os.environ.items() if k not in ("SCONSFLAGS", "PWD")}
        try:
            process = subprocess.Popen(
                [sys.executable, "-m", "SCons", "-f", self.places.share / "SConstruct", *options],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                bufsize=0,
                cwd=plan.parent,
                env=environment,
                pass_fds=[listen],
                process_group=0,
            )
        finally:
            os.close(listen)
        try:
            with contextlib.closing(process.stdout or contextlib.ExitStack()):
                yield process
            process.wait()
        finally:
            try:
                _end(process)
            finally:
                os.close(hold)


def _lines(descriptor: int) -> Iterator[list[str]]:
    """What came through a pipe since the last look, line by line, until it is closed."""
    # Nobody may be looking for a while: SCons should not have to wait for that.
    with contextlib.suppress(OSError):
        fcntl.fcntl(descriptor, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
    rest = b""
    while data := os.read(descriptor, _PIPE_BYTES):
        *whole, rest = (rest + data).split(b"\n")
        yield [line.decode(errors="replace") for line in whole]


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a process group: first asked, then forced. Its leader is reaped last, so that its
    number cannot come to mean another group meanwhile."""
    if process.returncode is not None:
        return
    gone = os.WEXITED | os.WNOHANG | os.WNOWAIT
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGTERM)
        deadline = time.monotonic() + _GRACE_S
        while time.monotonic() < deadline and not os.waitid(os.P_PID, process.pid, gone):
            time.sleep(0.005)
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
