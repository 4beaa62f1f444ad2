"""An engine that is killed takes with it what it started, even a kernel that never ends."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import time
from pathlib import Path

import pytest

from command_line import PATIENCE_S, Project
from parts import needs

HANGS = "for (volatile int turn = 1; turn;) ; y[0] = x[n - 1];"
BUSY_TICKS = 30
"""Of CPU time (a hundredth of a second each): by then a kernel is running, and hangs."""
NEEDED = {
    "host": (),
    "aarch64": ("aarch64-linux-gnu-gcc", "qemu-aarch64"),
    "cortex_m7": ("arm-none-eabi-gcc", "qemu-system-arm"),
}


def busy_worker(engine: subprocess.Popen[str], program: str) -> int:
    """The process that runs `program` for an engine, once it has worked for a while. Between the
    two is a supervisor."""
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        assert engine.poll() is None, engine.communicate()
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit():
                continue
            try:
                words = (entry / "cmdline").read_bytes().split(b"\0")
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            named = program in Path(words[0].decode(errors="replace")).name
            if named and int(fields[11]) >= BUSY_TICKS and parent_of(fields[1]) == engine.pid:
                return int(entry.name)
        time.sleep(0.02)
    pytest.fail(f"no {program} of engine {engine.pid} got busy")


def parent_of(pid: str) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0


@pytest.mark.slow
@pytest.mark.parametrize("target", NEEDED)
def test_a_hanging_kernel_does_not_outlive_an_engine_that_is_killed(
    project: Project, target: str
) -> None:
    needs(*NEEDED[target])
    project.add("hangs", HANGS)
    program = NEEDED[target][-1] if NEEDED[target] else "runner"
    engine = project.start("run", "workload=hangs", f"target={target}", "timeout=1000")
    try:
        child = busy_worker(engine, program)
        watched = os.pidfd_open(child)
        engine.send_signal(signal.SIGKILL)
        engine.communicate(timeout=PATIENCE_S)
        ended, _, _ = select.select([watched], [], [], PATIENCE_S)
        os.close(watched)
        if not ended:
            os.kill(child, signal.SIGKILL)
        assert ended, f"{program} is still running"
    finally:
        engine.kill()
