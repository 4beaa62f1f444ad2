"""The supervisor in C and the one in Python treat every kind of worker alike."""

from __future__ import annotations

import os
import resource
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from building import TOP, compiled

from kernloom.device.leftovers import LIMIT, MARKER, new_mark

SOURCE = TOP / "native" / "supervisor" / "main.c"
ENVIRONMENT = os.environ | {"PYTHONPATH": str(TOP / "engine")}
COMMON = """
import ctypes, os, signal
def trace_me():
    ctypes.CDLL(None).ptrace(0, 0, None, None)
def say(number):
    os.write(1, f"{number}\\n".encode())
def told():
    os.read(0, 1)
def stop():
    os.kill(os.getpid(), signal.SIGSTOP)
def is_orphan(new_session=True):
    # True in a child of the supervisor, False in the worker.
    if os.fork() == 0:
        parent = os.getpid()
        if new_session:
            os.setsid()
        if os.fork() == 0:
            while os.getppid() == parent:
                pass
            return True
        os._exit(0)
    os.wait()
    return False
def sleep():
    say(os.getpid())
    os.execlp("sleep", "sleep", "100")
"""
STOPPED_AND_CONTINUED = """
me = os.getpid()
if os.fork() == 0:
    while open(f"/proc/{me}/stat").read().rpartition(")")[2].split()[0] != "T":
        pass
    os.kill(me, signal.SIGCONT)
    os._exit(0)
stop()
os.wait()
say(1)
told()
os._exit(8)
"""
TRACED_ORPHAN = """
ours, theirs = os.pipe()
if is_orphan():
    trace_me()
    signal.signal(signal.SIGUSR1, lambda *_: None)
    os.kill(os.getpid(), signal.SIGUSR1)
    os.write(theirs, b"x")
    os._exit(0)
os.read(ours, 1)
say(1)
told()
os._exit(6)
"""
ENGINE = "import subprocess, sys; subprocess.run(sys.argv[1:])"
Command = Callable[[str], list[str]]
"""The command that runs a program in Python as the worker of a supervisor."""


@dataclass(frozen=True)
class Worker:
    """A program that prints 1 or the number of a process, waits to be told, and ends."""

    name: str
    program: str
    code: int
    """How its supervisor must end."""


WORKERS = (
    Worker("ends-well", "say(1); told()", 0),
    Worker("ends-with-code", "say(1); told(); os._exit(7)", 7),
    Worker("ends-with-SIGSEGV", "say(1); told(); os.kill(os.getpid(), 11)", -signal.SIGSEGV),
    Worker("ends-with-SIGKILL", "say(1); told(); os.kill(os.getpid(), 9)", -signal.SIGKILL),
    Worker("leaves-orphan", "is_orphan() and sleep(); told()", 109),
    Worker("leaves-orphan-in-group", "is_orphan(new_session=False) and sleep(); told()", 109),
    Worker("leaves-orphan-and-code", "is_orphan() and sleep(); told(); os._exit(5)", 5),
    Worker("leaves-child", "os.fork() or sleep(); told()", 109),
    Worker("leaves-stopped", "is_orphan() and (say(os.getpid()), stop()); told()", 109),
    Worker("sends-SIGTERM", "os.kill(os.getppid(), 15); say(1); told(); os._exit(3)", 3),
    Worker(
        "is-traced",
        "trace_me(); signal.signal(10, lambda *_: say(1)); os.kill(os.getpid(), 10); told(); "
        "os._exit(4)",
        4,
    ),
    Worker(
        "is-traced-and-crashes",
        "trace_me(); say(1); told(); os.kill(os.getpid(), 11)",
        -signal.SIGSEGV,
    ),
    Worker("leaves-traced", TRACED_ORPHAN, 6),
    Worker("is-stopped-and-continued", STOPPED_AND_CONTINUED, 8),
)
HANGS = (
    Worker("waits", "say(os.getpid()); told()", 0),
    Worker("is-stopped", "say(os.getpid()); stop(); told()", 0),
    Worker("is-traced-and-stopped", "trace_me(); say(os.getpid()); stop(); stop(); told()", 0),
    Worker("has-orphan", "is_orphan() and sleep(); told()", 0),
)


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compiled(tmp_path_factory.mktemp("supervisor") / "supervisor", [SOURCE])


@pytest.fixture(params=["c", "python"])
def supervised(request: pytest.FixtureRequest, program: Path) -> Command:
    if request.param == "c":
        return lambda worker: [str(program), sys.executable, "-c", COMMON + worker]
    start = "from kernloom.device.supervisor import supervise; supervise()\n"
    return lambda worker: [sys.executable, "-c", start + COMMON + worker]


def each(workers: tuple[Worker, ...]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("worker", workers, ids=[worker.name for worker in workers])


@each(WORKERS)
def test_a_supervisor_ends_like_its_worker_and_leaves_nothing(
    supervised: Command, worker: Worker
) -> None:
    with started(supervised(worker.program)) as process:
        number = first_line(process)
        process.communicate(b"\n", timeout=30)
    assert process.returncode == worker.code
    assert number == 1 or dead(number)


@each(HANGS)
def test_a_supervisor_ends_everything_when_the_engine_asks(
    supervised: Command, worker: Worker
) -> None:
    with started(supervised(worker.program)) as process:
        number = first_line(process)
        process.terminate()
        assert process.wait(timeout=30) == -signal.SIGKILL
    assert dead(number)


@each(HANGS)
def test_a_supervisor_ends_everything_when_the_engine_dies(
    supervised: Command, worker: Worker
) -> None:
    command = [sys.executable, "-c", ENGINE, *supervised(worker.program)]
    with started(command) as engine:
        number = first_line(engine)
        engine.kill()
    assert dead(number)


def test_a_worker_is_marked_with_its_session(supervised: Command) -> None:
    mark = new_mark()
    with started(supervised("say(os.getpid()); told()"), {MARKER: mark}) as process:
        worker = first_line(process)
        limits = {resource.prlimit(pid, LIMIT) for pid in (process.pid, worker)}
        process.communicate(b"\n", timeout=30)
    assert limits == {(int(mark, 16), int(mark, 16))}


def test_a_supervisor_is_named_and_holds_no_descriptors(supervised: Command) -> None:
    with started(supervised("say(1); told()")) as process:
        first_line(process)
        folder = Path(f"/proc/{process.pid}")
        # Both come after the fork of the worker, which may be first.
        deadline = time.monotonic() + 20
        while (folder / "comm").read_text() != "kl-supervisor\n" and time.monotonic() < deadline:
            assert process.poll() is None
        assert (folder / "comm").read_text() == "kl-supervisor\n"
        assert {path.name for path in (folder / "fd").iterdir()} == {"0", "1", "2"}
        process.communicate(b"\n", timeout=30)


def test_a_supervisor_says_what_cannot_be_started(program: Path) -> None:
    done = subprocess.run([program, "/nowhere"], capture_output=True, text=True, check=False)
    assert done.returncode == 127
    assert done.stderr == "supervisor: /nowhere: No such file or directory\n"


def started(command: list[str], more: dict[str, str] | None = None) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=ENVIRONMENT | (more or {}),
    )


def first_line(process: subprocess.Popen[bytes]) -> int:
    """The number that a worker prints, if it does so within a while."""
    assert process.stdout is not None
    if not select.select([process.stdout], [], [], 20)[0]:
        process.terminate()
        raise AssertionError("the worker does not go on")
    return int(process.stdout.readline())


def dead(pid: int) -> bool:
    """Whether a process ends within a while."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([descriptor], [], [], 20)[0])
    finally:
        os.close(descriptor)
