"""A compiler that takes many times longer than those before it is stopped."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from kernloom.base.places import Places
from kernloom.build import limit as limits
from kernloom.build.builder import Builder
from kernloom.build.limit import CompileLimit, Stopped
from kernloom.plan.artifact import Artifact

SLOW = """\
import subprocess, sys
child = "import os, time; print(os.getpid(), flush=True); time.sleep(99)"
subprocess.run([sys.executable, "-c", child])
"""


def start(program: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE)


def test_a_process_and_what_it_started_end_at_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "LEAST_S", 1.0)
    limit = CompileLimit(2.0)
    limit.seen(0.01)
    with start(SLOW) as process:
        assert process.stdout
        child = int(process.stdout.readline())
        with pytest.raises(Stopped, match=r"stopped after \d+ s: .* in 0.01 s \(build.limit=2"):
            limit.wait(process)
    stat = Path(f"/proc/{child}/stat")
    assert not stat.exists() or ") Z " in stat.read_text(), "it is gone, or waits to be reaped"


def test_without_a_kernel_before_there_is_no_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "LEAST_S", 0.0)
    limit = CompileLimit(2.0)
    with start("import time; time.sleep(0.6); print('done')") as process:
        assert limit.wait(process) == b"done\n"
    limit.seen(3.0)
    limit.seen(1.0)
    assert limit.slowest == 3.0


def test_a_builder_learns_from_every_build(kernel: Callable[..., Artifact], places: Places) -> None:
    limit = CompileLimit(2.0)
    artifact = kernel()
    found = Builder(places, limit=limit).build([artifact])[artifact.key]
    assert found.ok and not found.stopped
    assert limit.slowest == found.seconds > 0
