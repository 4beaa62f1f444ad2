"""What a runner promises beyond the contract: whatever happens, it leaves nothing behind."""

from __future__ import annotations

import gc
import os
import re
import select
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from building import NATIVE, TOP
from subjects import Subject

from kernloom.base.errors import ConfigError, DeviceError, UnavailableError
from kernloom.device.contract import Call, Scalar, Session
from kernloom.device.devices import DEVICES
from kernloom.device.host import HostDevice
from kernloom.device.messages import (
    KernelLaunch,
    LaunchCall,
    Message,
    MmuMap,
    MmuUnmap,
    PeDma,
    Span,
    Vary,
)
from kernloom.device.runner import RunnerSession


def pid_of(session: Session) -> int:
    """The supervisor of a session's runner."""
    assert isinstance(session, RunnerSession)
    return session._connection.process.pid


def runner_of(session: Session) -> int:
    """The process that runs a session's kernels."""
    pid = pid_of(session)
    (runner,) = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return int(runner)


def gone(pid: int) -> bool:
    return not Path(f"/proc/{pid}").exists()


def open_descriptors() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


def wait_until_dead(pidfd: int) -> bool:
    poll = select.poll()
    poll.register(pidfd, select.POLLIN)
    return bool(poll.poll(20_000))


def launch(session: Session, subject: Subject, name: str, *args: Scalar) -> None:
    session.launch([Call(session.load(subject.library, len(args), entry=name), args)])


ENGINE = """
import sys
from pathlib import Path
from kernloom.device.contract import Call
from kernloom.device.host import HostDevice
runner, library, kernel = sys.argv[1:]
session = HostDevice(Path(runner)).open()
session.allocate(10)
print(session._connection.process.pid, flush=True)
if kernel:
    session.launch([Call(session.load(Path(library), 0, entry=kernel), ())])
sys.stdin.read()
"""


@pytest.mark.parametrize("kernel", ["", "hang"])
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_the_runner_dies_with_the_engine(host: Subject, kernel: str, number: int) -> None:
    engine = subprocess.Popen(
        [sys.executable, "-c", ENGINE, str(host.runner), str(host.library), kernel],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(TOP / "engine")},
    )
    with engine:
        assert engine.stdout is not None
        runner = os.pidfd_open(int(engine.stdout.readline()))
        engine.send_signal(number)
    try:
        assert wait_until_dead(runner)
    finally:
        os.close(runner)


def test_an_engine_that_ends_without_closing_leaves_no_runner(host: Subject) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", ENGINE, str(host.runner), str(host.library), ""],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": str(TOP / "engine")},
    )
    assert ended.stderr == ""
    assert gone(int(ended.stdout))


def test_a_runner_works_for_an_engine_without_standard_streams(host: Subject) -> None:
    code = "".join(line for line in ENGINE.splitlines(True) if "print" not in line)
    code = f"import os\nfor i in range(3): os.close(i)\n{code}".replace("sys.stdin.read()", "")
    command = [sys.executable, "-c", code, str(host.runner), str(host.library), ""]
    subprocess.run(command, check=True, env={**os.environ, "PYTHONPATH": str(TOP / "engine")})


def test_what_a_kernel_started_dies_with_it(host: Subject) -> None:
    with (
        host.device.open(timeout=0.5) as session,
        pytest.raises(DeviceError) as error,
    ):
        launch(session, host, "fork_and_hang")
    assert error.value.status == "timeout"
    found = re.search(r"child (\d+)", error.value.stderr)
    assert found is not None
    try:
        child = os.pidfd_open(int(found.group(1)))
    except ProcessLookupError:
        return
    try:
        assert wait_until_dead(child)
    finally:
        os.close(child)


def test_no_process_and_no_descriptor_is_left(host: Subject) -> None:
    device = HostDevice(host.runner)

    def use() -> None:
        pids = []
        for ending, args in (("", ()), ("write_to", (Scalar(0),)), ("leave", (Scalar(1),))):
            with device.open() as session:
                pids.append(pid_of(session))
                session.fill(session.allocate(100), 1)
                if ending:
                    with pytest.raises(DeviceError):
                        launch(session, host, ending, *args)
        assert all(gone(pid) for pid in pids)

    use()
    gc.collect()
    before = open_descriptors()
    for _ in range(5):
        use()
    gc.collect()
    assert open_descriptors() == before


def test_a_forgotten_session_ends(host: Subject) -> None:
    session = host.device.open()
    session.allocate(10)
    pid = pid_of(session)
    del session
    gc.collect()
    assert gone(pid)


def test_a_fork_of_the_engine_that_ends_leaves_its_sessions_alone(host: Subject) -> None:
    with host.device.open() as session:
        buffer = session.allocate(10)
        child = os.fork()
        if child == 0:
            try:
                # What the interpreter does on its way out.
                session._finalizer()  # type: ignore[attr-defined]
            finally:
                os._exit(0)
        os.waitpid(child, 0)
        session.fill(buffer, 1)


def test_the_window_cannot_be_cut_short_under_the_engine(host: Subject) -> None:
    with host.device.open() as session:
        session.allocate(10)
        assert isinstance(session, RunnerSession)
        # As a kernel could open it, whose process has the same owner.
        shared = Path(f"/proc/{os.getpid()}/fd/{session._connection.window.descriptor}")
        with pytest.raises(PermissionError):
            os.truncate(shared, 0)


@pytest.mark.parametrize("victim", [runner_of, pid_of], ids=["runner", "supervisor"])
def test_a_runner_killed_from_outside_is_a_crash(
    host: Subject, victim: Callable[[Session], int]
) -> None:
    with host.device.open() as session:
        session.allocate(10)
        runner = os.pidfd_open(runner_of(session))
        os.kill(victim(session), signal.SIGKILL)
        assert wait_until_dead(runner)
        os.close(runner)
        with pytest.raises(DeviceError, match=r"^SIGKILL .*memory") as error:
            session.allocate(10)
        assert error.value.status == "crashed"


@pytest.mark.parametrize("message", [MmuMap(()), MmuUnmap(0, 4096), PeDma(0, 0, 8)])
def test_what_only_an_accelerator_has_is_refused_by_name(host: Subject, message: Message) -> None:
    with host.device.open() as session:
        assert isinstance(session, RunnerSession)
        with pytest.raises(DeviceError, match=type(message).__name__) as error:
            session.exchange(message)
        assert (error.value.status, error.value.code) == ("refused", "unsupported")


def test_a_variation_ends_with_its_launch_even_if_that_is_refused(host: Subject) -> None:
    with host.device.open() as session:
        assert isinstance(session, RunnerSession)
        buffer = session.allocate(16)
        session.fill(buffer, 7)
        session.exchange(Vary(1, (), (Span(buffer.address, 16),), ()))
        unknown = KernelLaunch(0, 1, 1, 0, 0, 0, (LaunchCall(99, 0),), (), 0)
        with pytest.raises(DeviceError, match="no kernel has handle 99"):
            session.exchange(unknown)
        launch(session, host, "spin", Scalar(1))
        assert bytes(session.read(buffer)) == bytes([7]) * 16


def test_a_missing_runner_is_unavailable(tmp_path: Path) -> None:
    for path in (tmp_path / "missing", tmp_path):
        with pytest.raises(UnavailableError, match="cannot be started"):
            HostDevice(path).open()


def test_a_runner_that_is_something_else_has_crashed() -> None:
    with HostDevice(Path("/bin/true")).open() as session:
        with pytest.raises(DeviceError, match="exit code 0") as error:
            session.allocate(1)
        assert error.value.status == "crashed"


def test_kernels_run_on_the_core_they_are_pinned_to(host: Subject) -> None:
    for core in os.sched_getaffinity(0):
        with HostDevice(host.runner, pin=core).open() as session:
            session.allocate(10)
            assert os.sched_getaffinity(runner_of(session)) == {core}
            out = session.allocate(16)
            parallel = session.load(host.library, 3, entry="parallel")
            session.launch([Call(parallel, (Scalar(2), Scalar(2), out))])


def test_a_core_that_is_not_there_is_refused(host: Subject) -> None:
    with pytest.raises(DeviceError, match="core 4095"):
        HostDevice(host.runner, pin=4095).open()


def test_large_buffers_do_not_start_at_the_same_place_of_a_page(host: Subject) -> None:
    with host.device.open() as session:
        places = {session.allocate(2 << 20).address % 4096 for _ in range(8)}
        assert len(places) == 8


def test_the_memory_limit_holds_for_all_buffers_together(host: Subject) -> None:
    with HostDevice(host.runner, memory_limit=1 << 20).open() as session:
        first = session.allocate(700_000)
        with pytest.raises(DeviceError, match="limit of 1048576") as error:
            session.allocate(700_000)
        assert error.value.status == "out_of_memory"
        session.free(first)
        session.allocate(700_000)


def test_a_kernel_may_use_any_name_for_its_own_functions(host: Subject, tmp_path: Path) -> None:
    names = set()
    for header in (NATIVE / "runner").glob("*.h"):
        names |= set(re.findall(r"^[a-z][\w *]*?\b(\w+)\(", header.read_text(), re.MULTILINE))
    assert "memory_open" in names
    functions = "".join(f"int {name}(void) {{ return 1; }}\n" for name in sorted(names))
    calls = " + ".join(f"{name}()" for name in sorted(names))
    source = tmp_path / "names.c"
    source.write_text(f"{functions}void kl_entry(void *const *a) {{ *(long *)a[0] = {calls}; }}\n")
    library = tmp_path / "names.so"
    command = ["gcc", "-shared", "-fPIC", "-O0", str(source), "-o", str(library)]
    subprocess.run(command, check=True)
    with host.device.open() as session:
        out = session.allocate(8)
        session.launch([Call(session.load(library, 1), (out,))])
        assert int.from_bytes(session.read(out), "little") == len(names)


def test_devices_are_known_by_name() -> None:
    assert DEVICES.get("host", key="target.device") is HostDevice
    with pytest.raises(ConfigError, match="unknown device 'hots'"):
        DEVICES.get("hots", key="target.device")
