"""Under which conditions samples are taken: caches, scheduling class, addresses, libraries."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from building import compiled, types
from subjects import Subject, without

from kernloom.base.errors import DeviceError
from kernloom.device.contract import Call, LaunchResult, LaunchSettings, Scalar, Session, require
from kernloom.device.emulated import EmulatedDevice
from kernloom.device.host import HostDevice
from kernloom.device.runner import RunnerSession
from kernloom.device.window import WindowPool
from parts import needs

ADDR_NO_RANDOMIZE = 0x0040000
NORMAL, FIFO = os.SCHED_OTHER, os.SCHED_FIFO

LIBRARY = """
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stddef.h>
#include <unistd.h>

static int thread_id;
static pthread_barrier_t started;

static void *wait_forever(void *nothing) {
    thread_id = gettid();
    pthread_barrier_wait(&started);
    for (;;)
        pause();
    return nothing;
}

__attribute__((constructor)) static void start(void) {
    pthread_t thread;
    pthread_barrier_init(&started, NULL, 2);
    pthread_create(&thread, NULL, wait_forever, NULL);
    pthread_barrier_wait(&started);
}

long class_of_my_thread(void) {
    return sched_getscheduler(thread_id);
}

long cores_of_my_thread(void) {
    cpu_set_t cores;
    sched_getaffinity(thread_id, sizeof cores, &cores);
    return CPU_COUNT(&cores);
}
"""
CALLER = """
long class_of_my_thread(void);
long cores_of_my_thread(void);

void kl_entry(void *const *args) {
    long *out = args[0];
    out[0] = class_of_my_thread();
    out[1] = cores_of_my_thread();
}
"""
NO_PERSONALITY = """
#include <errno.h>

int personality(unsigned long wanted) {
    if (wanted == 0xffffffff)
        return 0;
    errno = EPERM;
    return -1;
}
"""


@pytest.fixture(params=["host", "host-asan"])
def native(request: pytest.FixtureRequest, build_subject: Callable[[str], Subject]) -> Subject:
    """This machine, with and without a sanitizer."""
    return build_subject(request.param)


def shared(folder: Path, name: str, text: str) -> Path:
    source = folder / f"{name}.c"
    source.write_text(text)
    return compiled(folder / f"{name}.so", [source], "-O1", "-shared", "-fPIC")


def session_of(command: list[str], environment: dict[str, str] | None = None) -> RunnerSession:
    """A session in which every condition may be asked for, whatever runs the runner."""
    device = HostDevice(Path(command[-1]))
    return RunnerSession(device, command, WindowPool(), 20, environment=environment)


def emulated(subject: Subject) -> list[str]:
    """The runner of another CPU under its emulator, counting nothing."""
    assert isinstance(subject.device, EmulatedDevice)
    return [*subject.device.emulator, str(subject.runner)]


def counted(
    session: Session, subject: Subject, settings: LaunchSettings
) -> tuple[int, LaunchResult]:
    """How often a kernel ran, and what its launch says of itself."""
    counter = session.allocate(8)
    session.fill(counter, 0)
    call = Call(session.load(subject.library, types("count"), entry="count"), (counter,))
    result = session.launch([call], settings)
    return int.from_bytes(session.read(counter), "little"), result


def classes(
    session: Session, subject: Subject, threads: int, settings: LaunchSettings
) -> tuple[set[int], LaunchResult]:
    """The scheduling classes that the threads of a kernel have."""
    out = session.allocate(8 * threads)
    kernel = session.load(subject.library, 2, entry="scheduling_classes")
    result = session.launch([Call(kernel, (Scalar(threads), out))], settings)
    return set(np.frombuffer(session.read(out), "int64").tolist()), result


@pytest.mark.parametrize("inner", [0, 1, 50])
def test_a_cold_sample_is_one_run_and_the_warm_up_still_happens(
    native: Subject, inner: int
) -> None:
    require(native.device, "cold_cache")
    settings = LaunchSettings(warmup=2, inner=inner, samples=5, min_sample_ns=1_000_000, cold=True)
    with native.device.open() as session:
        large = session.allocate(3 << 20)
        session.fill(large, 0x5A)
        session.free(session.allocate(100))
        runs, result = counted(session, native, settings)
        assert (runs, result.inner, result.cold) == (2 + 5, 1, True)
        assert len(result.wall_ns) == 5
        assert session.read(large) == b"\x5a" * (3 << 20)
        runs, result = counted(session, native, LaunchSettings(inner=4))
        assert (runs, result.inner, result.cold) == (4, 4, False)


@without("cold_cache")
def test_a_cold_cache_is_refused_by_name_where_there_is_none(subject: Subject) -> None:
    with pytest.raises(DeviceError, match="has no 'cold_cache'"):
        require(subject.device, "cold_cache")
    with subject.device.open() as session:
        with pytest.raises(DeviceError, match="has no 'cold_cache'") as error:
            counted(session, subject, LaunchSettings(cold=True))
        assert (error.value.status, error.value.code) == ("refused", "unsupported")
        runs, result = counted(session, subject, LaunchSettings())
        assert (runs, result.cold) == (1, False)


def test_the_caches_of_an_aarch64_cpu_can_be_flushed(
    build_subject: Callable[[str], Subject],
) -> None:
    subject = build_subject("aarch64")
    with session_of(emulated(subject)) as session:
        runs, result = counted(session, subject, LaunchSettings(samples=3, cold=True))
        assert (runs, result.inner, result.cold) == (3, 1, True)


def test_a_runner_whose_cpu_cannot_flush_its_caches_refuses(
    build_subject: Callable[[str], Subject],
) -> None:
    subject = build_subject("riscv64")
    with session_of(emulated(subject)) as session:
        with pytest.raises(DeviceError, match="flush its caches") as error:
            counted(session, subject, LaunchSettings(cold=True))
        assert (error.value.status, error.value.code) == ("refused", "unsupported")


def test_a_result_says_whether_its_threads_were_in_the_real_time_class(native: Subject) -> None:
    with native.device.open() as session:
        for threads in (1, 2, 4):
            found, result = classes(session, native, threads, LaunchSettings(realtime=True))
            assert found == {FIFO if result.realtime else NORMAL}


@pytest.mark.parametrize("first", [NORMAL, FIFO])
def test_only_a_real_time_launch_is_in_the_real_time_class(host: Subject, first: int) -> None:
    with host.device.open() as session:
        if not classes(session, host, 1, LaunchSettings(realtime=True))[1].realtime:
            pytest.skip("the real-time class is not permitted here")
        order = (NORMAL, FIFO, NORMAL) if first == NORMAL else (FIFO, NORMAL, FIFO)
        for wanted in order:
            settings = LaunchSettings(warmup=1, samples=2, realtime=wanted == FIFO)
            found, result = classes(session, host, 3, settings)
            assert (found, result.realtime) == ({wanted}, wanted == FIFO)
            pid = session._connection.process.pid  # type: ignore[attr-defined]
            threads = [int(task.name) for task in Path(f"/proc/{pid}/task").iterdir()]
            assert {os.sched_getscheduler(thread) for thread in threads} == {NORMAL}


def test_where_the_real_time_class_is_not_permitted_samples_are_taken_without(
    host: Subject,
) -> None:
    needs("prlimit", "setpriv")
    command = [str(shutil.which("prlimit")), "--rtprio=0"]
    if os.geteuid() == 0:
        command += [str(shutil.which("setpriv")), "--bounding-set=-sys_nice"]
    with session_of([*command, str(host.runner)]) as session:
        found, result = classes(session, host, 2, LaunchSettings(realtime=True))
        assert (found, result.realtime, len(result.wall_ns)) == ({NORMAL}, False, 1)


@without("realtime")
def test_a_device_without_the_real_time_class_says_that_it_was_not_used(subject: Subject) -> None:
    with subject.device.open() as session:
        runs, result = counted(session, subject, LaunchSettings(realtime=True))
        assert (runs, result.realtime) == (1, False)


@pytest.mark.parametrize("pinned", [False, True])
def test_a_kernel_that_hangs_in_the_real_time_class_times_out(host: Subject, pinned: bool) -> None:
    pin = max(os.sched_getaffinity(0)) if pinned else None
    with HostDevice(host.runner, pin=pin).open() as session:
        hang = Call(session.load(host.library, 0, entry="hang"), ())
        with pytest.raises(DeviceError, match=r"KernelLaunch within 0\.3 s") as error:
            session.launch([hang], LaunchSettings(timeout=0.3, realtime=True))
        assert error.value.status == "timeout"


def personality_in(session: Session, subject: Subject) -> tuple[int, LaunchResult]:
    out = session.allocate(8)
    kernel = session.load(subject.library, 1, entry="ask_personality")
    result = session.launch([Call(kernel, (out,))])
    return int.from_bytes(session.read(out), "little"), result


@pytest.mark.parametrize("aslr", [True, False])
def test_random_addresses_are_had_or_not_as_asked(native: Subject, aslr: bool) -> None:
    device = HostDevice(native.runner, aslr=aslr, pin=max(os.sched_getaffinity(0)))
    with device.open() as session:
        found, result = personality_in(session, native)
        assert result.aslr is not bool(found & ADDR_NO_RANDOMIZE)
        if aslr or not result.aslr:
            assert result.aslr is aslr


def test_without_random_addresses_buffers_are_at_the_same_place_in_every_session(
    host: Subject,
) -> None:
    places = set()
    for _ in range(5):
        with HostDevice(host.runner, aslr=False).open() as session:
            places.add((session.allocate(1000).address, session.allocate(3 << 20).address))
            if personality_in(session, host)[1].aslr:
                pytest.skip("the system does not permit it")
    assert len(places) == 1


def test_where_random_addresses_cannot_be_avoided_the_runner_goes_on_and_says_so(
    host: Subject, tmp_path: Path
) -> None:
    refusing = {"LD_PRELOAD": str(shared(tmp_path, "refusing", NO_PERSONALITY))}
    session = session_of([str(host.runner), "--no-aslr"], environment=refusing)
    with session:
        runs, result = counted(session, host, LaunchSettings())
        assert (runs, result.aslr) == (1, True)
        assert "addresses stay random" in session._connection.process.tail()


def test_kernels_find_what_a_library_defines(native: Subject, tmp_path: Path) -> None:
    library = shared(tmp_path, "library", LIBRARY)
    caller = shared(tmp_path, "caller", CALLER)
    with native.device.open() as session, pytest.raises(DeviceError, match="of_my_thread"):
        session.load(caller, 1)
    core = max(os.sched_getaffinity(0))
    with HostDevice(native.runner, libraries=(library,), pin=core).open() as session:
        out = session.allocate(16)
        kernel = session.load(caller, 1)
        for realtime in (False, True, False):
            result = session.launch([Call(kernel, (out,))], LaunchSettings(realtime=realtime))
            found, cores = np.frombuffer(session.read(out), "int64").tolist()
            # Its threads are where the kernel's are: left behind they would starve beside it.
            assert found == (FIFO if result.realtime else NORMAL)
            assert cores == len(os.sched_getaffinity(0))


def test_several_libraries_may_be_needed(host: Subject, tmp_path: Path) -> None:
    one = shared(tmp_path, "one", "long one(void) { return 1; }")
    two = shared(tmp_path, "two", "long one(void); long two(void) { return 2 * one(); }")
    text = "long two(void); void kl_entry(void *const *args) { *(long *)args[0] = two(); }"
    caller = shared(tmp_path, "caller", text)
    with HostDevice(host.runner, libraries=(one, two)).open() as session:
        out = session.allocate(8)
        session.launch([Call(session.load(caller, 1), (out,))])
        assert int.from_bytes(session.read(out), "little") == 2


@pytest.mark.parametrize("kind", ["missing", "text"])
def test_a_library_that_cannot_be_used_makes_the_device_unavailable(
    host: Subject, tmp_path: Path, kind: str
) -> None:
    library = tmp_path / f"{kind}.so"
    if kind == "text":
        library.write_text("not a library")
    good = shared(tmp_path, "good", "int good;")
    with HostDevice(host.runner, libraries=(library, good)).open() as session:
        with pytest.raises(DeviceError, match=rf"library cannot be used: .*/{kind}\.so") as error:
            session.allocate(10)
        assert error.value.status == "unavailable"
        with pytest.raises(DeviceError, match=f"has ended: .*{kind}") as error:
            session.allocate(10)
        assert (error.value.status, error.value.code) == ("unavailable", "ended")


def test_a_library_that_is_no_path_is_refused_by_the_runner(host: Subject) -> None:
    done = subprocess.run(
        [host.runner, "--library=libm.so.6"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert "--library must be a path" in done.stderr
