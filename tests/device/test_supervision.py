"""Whatever a kernel starts ends with its session, and it runs in a folder of its own."""

from __future__ import annotations

import gc
import os
import select
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from building import TOP
from subjects import KINDS, Subject, devices

from kernloom.base.errors import DeviceError
from kernloom.device.contract import Call, LaunchSettings, Scalar, Session
from kernloom.device.emulated import EmulatedDevice
from kernloom.device.host import HostDevice
from kernloom.device.scratch import ScratchPool

PROCESSES = pytest.mark.parametrize(
    "subject",
    devices(k for k in KINDS.values() if k.device_class in (HostDevice, EmulatedDevice)),
    indirect=True,
)
ENVIRONMENT = os.environ | {"PYTHONPATH": str(TOP / "engine")}
ENGINE = """
import sys
from pathlib import Path
from kernloom.device.contract import Call
from kernloom.device.host import HostDevice
session = HostDevice(Path(sys.argv[1])).open()
out = session.allocate(8)
session.launch([Call(session.load(Path(sys.argv[2]), 1, entry="double_fork"), (out,))])
print(int.from_bytes(session.read(out), "little"), flush=True)
sys.stdin.read()
"""


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


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def double_fork(session: Session, subject: Subject) -> int:
    out = session.allocate(8)
    session.launch([Call(session.load(subject.library, 1, entry="double_fork"), (out,))])
    return int.from_bytes(session.read(out), "little")


@PROCESSES
def test_a_double_forked_child_does_not_outlive_its_session(subject: Subject) -> None:
    with subject.device.open(timeout=30) as session:
        child = double_fork(session, subject)
        assert Path(f"/proc/{child}").exists()
    assert not Path(f"/proc/{child}").exists()


@PROCESSES
def test_a_double_forked_child_does_not_outlive_a_timeout(subject: Subject) -> None:
    with subject.device.open(timeout=30) as session:
        child = double_fork(session, subject)
        hang = session.load(subject.library, 0, entry="hang")
        with pytest.raises(DeviceError, match="within"):
            session.launch([Call(hang, ())], LaunchSettings(timeout=0.5))
        assert not Path(f"/proc/{child}").exists()


def test_a_double_forked_child_does_not_outlive_an_engine_that_is_killed(host: Subject) -> None:
    engine = subprocess.Popen(
        [sys.executable, "-c", ENGINE, str(host.runner), str(host.library)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=ENVIRONMENT,
    )
    with engine:
        assert engine.stdout is not None
        child = int(engine.stdout.readline())
        engine.kill()
    assert dead(child)


def test_a_double_forked_child_does_not_outlive_a_supervisor_that_is_killed(host: Subject) -> None:
    with host.device.open(timeout=20) as session:
        child = double_fork(session, host)
        os.kill(session._connection.process.pid, signal.SIGKILL)
    assert not Path(f"/proc/{child}").exists()


@PROCESSES
@pytest.mark.parametrize("lower", [0, 1], ids=["exec", "exec-and-lower-limit"])
def test_a_kernel_that_kills_its_supervisor_leaves_nothing_behind(
    subject: Subject, lower: int
) -> None:
    with subject.device.open(timeout=30) as session:
        out = session.allocate(8)
        escape = session.load(subject.library, 2, entry="escape")
        session.launch([Call(escape, (Scalar(lower), out))])
        child = int.from_bytes(session.read(out), "little")
        assert Path(f"/proc/{child}/environ").read_bytes() == b""
        with pytest.raises(DeviceError, match="SIGKILL"):
            session.launch([Call(session.load(subject.library, 0, entry="kill_supervisor"), ())])
    assert not Path(f"/proc/{child}").exists()


def test_only_processes_of_kernels_are_killed(host: Subject) -> None:
    with (
        host.device.open(timeout=20) as other,
        host.device.open(timeout=20) as session,
        subprocess.Popen(["sleep", "100"], start_new_session=True) as known,
    ):
        # Orphaned, as a compiler's server would be: now a child of the engine.
        script = "setsid sleep 100 >/dev/null 2>&1 & echo $!"
        orphan = int(subprocess.run(["sh", "-c", script], capture_output=True, check=True).stdout)
        try:
            assert parent_of(orphan) == os.getpid()
            with pytest.raises(DeviceError, match="SIGKILL"):
                session.launch([Call(session.load(host.library, 0, entry="kill_supervisor"), ())])
            session.close()
            assert (parent_of(orphan), known.poll()) == (os.getpid(), None)
            other.allocate(8)
        finally:
            known.kill()
            os.kill(orphan, signal.SIGKILL)
            os.waitpid(orphan, 0)


def test_a_window_is_used_again_only_if_nothing_was_left(host: Subject) -> None:
    device = HostDevice(host.runner)

    def window_after(use: Callable[[Session], object]) -> object:
        with device.open() as session:
            use(session)
            return session._connection.window

    first = window_after(lambda session: session.allocate(8))
    assert window_after(lambda session: double_fork(session, host)) is first
    assert window_after(lambda session: session.allocate(8)) is not first


@PROCESSES
def test_kernels_run_in_a_folder_that_is_gone_afterwards(
    subject: Subject, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    monkeypatch.setattr(subject.device, "scratch", ScratchPool(tmp_path / "scratch"))
    with subject.device.open() as session:
        out = session.allocate(4096)
        folder = session.load(subject.library, 2, entry="current_folder")
        session.launch([Call(folder, (Scalar(4096), out))])
        found = Path(bytes(session.read(out)).partition(b"\0")[0].decode())
        assert (found / "left").exists()
        assert found.parent == tmp_path / "scratch"
    assert list((tmp_path / "scratch").iterdir()) == []
    assert list(here.iterdir()) == []


def test_a_folder_that_was_not_touched_is_used_again(host: Subject, tmp_path: Path) -> None:
    device = HostDevice(host.runner, scratch=tmp_path)
    for _ in range(3):
        with device.open() as session:
            session.allocate(8)
            (folder,) = tmp_path.iterdir()
    assert [folder] == list(tmp_path.iterdir())
    del device, session
    gc.collect()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("hangs", [0, 1])
def test_a_kernel_that_closes_its_descriptors_is_named_as_that(host: Subject, hangs: int) -> None:
    with host.device.open(timeout=20) as session:
        kernel = session.load(host.library, 1, entry="close_descriptors")
        with pytest.raises(DeviceError, match="the kernel closed the runner's connection") as error:
            session.launch([Call(kernel, (Scalar(hangs),))])
        assert error.value.status == "crashed"


@PROCESSES
def test_a_write_before_a_buffer_is_reported_at_its_first_byte(subject: Subject) -> None:
    with subject.device.open(timeout=20) as session:
        victim = session.allocate(4096, "victim")
        kernel = session.load(subject.library, 2, entry="write_float_at")
        with pytest.raises(DeviceError, match="'victim' of 4096 bytes, at byte offset -4") as error:
            session.launch([Call(kernel, (Scalar(-1), victim))])
        assert error.value.status == "out_of_bounds"


@pytest.mark.slow
def test_an_emulator_that_dies_is_quoted(build_subject: Callable[[str], Subject]) -> None:
    subject = build_subject("aarch64")
    with subject.device.open(timeout=20) as session:
        kernel = session.load(subject.library, 1, entry="raise_signal")
        with pytest.raises(DeviceError, match=r"SIGKILL.* during KernelLaunch: about to raise"):
            session.launch([Call(kernel, (Scalar(int(signal.SIGKILL)),))])


@pytest.mark.slow
def test_an_emulator_of_a_part_that_dies_is_quoted(
    build_subject: Callable[[str], Subject], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    subject = build_subject("cortex_m4")
    broken = tmp_path / "emulator"
    broken.write_text("#!/bin/sh\necho the cable is out >&2\nexit 3\n")
    broken.chmod(0o755)
    monkeypatch.setattr(subject.device, "emulator", (str(broken),))
    with subject.device.open(timeout=20) as session:
        kernel = session.load(subject.library, 1)
        with pytest.raises(DeviceError, match="exit code 3 of the emulator: the cable is out"):
            session.launch([Call(kernel, (session.allocate(8),))])


def test_sessions_that_failed_hold_no_descriptors(host: Subject) -> None:
    errors = []
    before = len(list(Path("/proc/self/fd").iterdir()))
    for _ in range(20):
        with host.device.open() as session, pytest.raises(DeviceError) as error:
            leave = session.load(host.library, 1, entry="leave")
            session.launch([Call(leave, (Scalar(3),))])
        errors.append(error)
    assert len(list(Path("/proc/self/fd").iterdir())) < before + 10
