"""Runs of SCons. Its start takes as long as several compilations, so it can be started ahead of its
plan."""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, cast

from kernloom.base.places import Places
from kernloom.build.cores import MeasuredCore
from kernloom.build.workspace import workspace

if TYPE_CHECKING:
    import subprocess

    from kernloom.build.limit import CompileLimit
    from kernloom.build.make import Job, Result
    from kernloom.build.shared_cache import SharedCache

LOG = "scons.log"
PLAN = "plan.json"
_GRACE_S = 3.0
_PIPE_BYTES = 2**20


class Scons:
    """A process of SCons in a workspace of its own, which waits there for its plan."""

    def __init__(self, places: Places, jobs: int) -> None:
        self._build = places.build
        self._started_for = (places, jobs)
        with contextlib.ExitStack() as stack:
            self.folder = stack.enter_context(workspace(places.build))
            self._inode = self.folder.stat().st_ino
            log = stack.enter_context((self.folder / LOG).open("wb"))
            self._process = stack.enter_context(_started(places, jobs, self.plan, log))
            self._cleanup = stack.pop_all()

    @property
    def plan(self) -> Path:
        return self.folder / PLAN

    @property
    def code(self) -> int | None:
        return self._process.returncode

    def fits(self, places: Places, jobs: int) -> bool:
        """Whether it can be used for a build: its folder may have been deleted since its start."""
        if self._started_for != (places, jobs) or self._process.poll() is not None:
            return False
        try:
            return self.folder.stat().st_ino == self._inode
        except OSError:
            return False

    def results(
        self,
        jobs: Sequence[Job],
        measured: MeasuredCore | None,
        shared: SharedCache | None = None,
        limit: CompileLimit | None = None,
    ) -> Iterator[list[Result]]:
        """Have it make all jobs; results as they arrive."""
        from kernloom.build.graph import read_result, write_plan

        core = None if measured is None else measured.number
        cache = shared.folder if shared else None
        write_plan(self.plan, self._build, self.folder, jobs, core, cache, limit)
        # If SCons has ended, its results are missing, which says enough.
        with contextlib.suppress(BrokenPipeError):
            cast("IO[bytes]", self._process.stdin).write(b"\n")
        left = len(jobs)
        for lines in _lines(cast("IO[bytes]", self._process.stdout).fileno()):
            results = [result for line in lines if (result := read_result(line))]
            yield results
            left -= len(results)
            if not left:
                # What it does after that, such as writing signatures, is of no use.
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(self._process.pid, signal.SIGKILL)
                break
        # Compilers that outlive SCons are ended with its group.
        _end(self._process)

    def close(self) -> None:
        self._cleanup.close()


class Ahead:
    """SCons started ahead of need, at most one."""

    def __init__(self) -> None:
        self._waiting: Scons | None = None

    def prepare(self, places: Places, jobs: int) -> None:
        """Start SCons now. A problem is reported by the build itself."""
        if self._waiting is None:
            with contextlib.suppress(OSError):
                self._waiting = Scons(places, jobs)

    def take(self, places: Places, jobs: int) -> Scons:
        """The waiting process, or a new one."""
        waiting, self._waiting = self._waiting, None
        if waiting and waiting.fits(places, jobs):
            return waiting
        if waiting:
            waiting.close()
        return Scons(places, jobs)

    def close(self) -> None:
        if self._waiting:
            self._waiting.close()
        self._waiting = None


@contextlib.contextmanager
def _started(
    places: Places, jobs: int, plan: Path, log: IO[bytes]
) -> Iterator[subprocess.Popen[bytes]]:
    """SCons and its compilers in a process group, which is always ended on exit."""
    import subprocess

    # If this process is killed, the group notices by this pipe.
    listen, hold = os.pipe()
    options = [f"--plan={plan}", "--await-plan", f"--lifeline={listen}"]
    options += ["-Q", "-s", "-k", f"-j{jobs}"]
    environment = {k: v for k, v in os.environ.items() if k not in ("SCONSFLAGS", "PWD")}
    try:
        process = subprocess.Popen(
            [sys.executable, "-m", "SCons", "-f", places.share / "SConstruct", *options],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            bufsize=0,
            cwd=plan.parent,
            env=environment,
            pass_fds=[listen],
            process_group=0,
        )
    except BaseException:
        os.close(hold)
        raise
    finally:
        os.close(listen)
    try:
        yield process
    finally:
        try:
            for pipe in (process.stdin, process.stdout):
                cast("IO[bytes]", pipe).close()
            _end(process)
        finally:
            os.close(hold)


def _lines(descriptor: int) -> Iterator[list[str]]:
    """Lines from a pipe as they arrive, until it is closed."""
    # A large pipe, so that SCons need not wait for a busy reader.
    with contextlib.suppress(OSError):
        fcntl.fcntl(descriptor, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
    rest = b""
    while data := os.read(descriptor, _PIPE_BYTES):
        *whole, rest = (rest + data).split(b"\n")
        yield [line.decode(errors="replace") for line in whole]


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a process group: SIGTERM, then SIGKILL. The leader is reaped last, so that its id cannot
    be reused for another group in between."""
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
