"""The numpy peer: the same workload, each time in a process of its own, sampled like a kernel."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import kernloom
from kernloom.base.code_stamp import code_stamp
from kernloom.base.errors import ConfigError, DeviceError
from kernloom.config.schema import Policy, Workload
from kernloom.device.process import TAIL_BYTES, ending
from kernloom.measure.trial import Samples

START_S = 60.0
"""Seconds the process may take to import numpy and receive its inputs."""
LONGEST_S = 1e8
"""Three years: the longest wait that every system accepts."""
CALIBRATIONS = 4
"""Limit of runs for finding the inner count of a slow workload."""
_WORKER = ("-P", "-m", "kernloom.measure.numpy_worker")
_MALLOC = {"MALLOC_MMAP_THRESHOLD_": str(32 * 2**20), "MALLOC_TRIM_THRESHOLD_": str(64 * 2**20)}
"""The thresholds that glibc's malloc adapts to once a program has freed large arrays. Before that
each temporary is returned and faulted in again, which made one stencil 377 or 2500 us, depending on
whether the process had verified first."""
_KEPT = ("PATH", "LD_LIBRARY_PATH", "HOME", "PYTHONDONTWRITEBYTECODE", "PYTHONPYCACHEPREFIX")
_THREADS = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")


class NumpyPeer:
    """A workload as a numpy user would write it; the first process finds the inner count and
    compares the outputs with the golden."""

    def __init__(
        self,
        workload: Workload,
        seed: int,
        folders: Sequence[Path],
        policy: Policy,
        *,
        threads: int = 1,
        pin: int | None = None,
        timeout: float = 60.0,
    ) -> None:
        self.workload = workload
        self.seed = seed
        self.folders = folders
        self.policy = policy
        self.threads = threads
        self.pin = pin
        """The core it runs on; further threads may use the cores after it."""
        self.timeout = timeout
        """Time limit of one run in seconds."""
        self._inner = 0

    def sample(self, *, fresh: bool = True) -> Samples:
        """The samples of one process, which is always a fresh one."""
        if self.policy.cache == "cold":
            raise ConfigError(
                f"{self._name} cannot be measured with cold caches",
                key="measure.cache",
                hint="Set measure.cache=warm, or leave numpy out of measure.peers.",
            )
        answer = self.run_worker(self.request())
        if "message" in answer:
            self._fail(answer)
        inner = self._inner = int(answer["inner"])
        return Samples(
            inner,
            tuple(total / inner for total in answer["wall_ns"]),
            tuple(total / inner for total in answer["cpu_ns"]),
            tuple(answer["involuntary"]),
        )

    def exact(self) -> dict[str, float]:
        """Refused: numpy runs on the host, which has no exact gauges."""
        raise ConfigError(
            f"{self._name} does not run on a device that counts instructions",
            key="measure.peers",
        )

    @property
    def _name(self) -> str:
        return f"peer 'numpy' of workload '{self.workload.name}'"

    def request(self) -> dict[str, Any]:
        """The request for the next process."""
        return {
            "workload": asdict(self.workload),
            "seed": self.seed,
            "folders": [str(folder) for folder in self.folders],
            "cores": cores_from(self.pin, self.threads),
            "verify": not self._inner,
            "warmup": self.policy.warmup,
            "inner": self._inner,
            "samples": self.policy.samples,
            "min_sample_ns": int(self.policy.min_sample_us * 1000),
            "realtime": self.policy.scheduling == "fifo",
        }

    def run_worker(self, request: dict[str, Any]) -> dict[str, Any]:
        """The response of a process."""
        runs = self.policy.warmup + self.policy.samples + CALIBRATIONS
        limit = min(START_S + self.timeout * runs, LONGEST_S)
        try:
            done = subprocess.run(
                [sys.executable, *_WORKER],
                input=json.dumps(request).encode(),
                capture_output=True,
                env=_environment(self.threads),
                timeout=limit,
                # Ctrl-C is for the engine, which then ends the process.
                process_group=0,
            )
        except subprocess.TimeoutExpired:
            raise DeviceError(
                f"{self._name} did not end within {limit:g} s", status="timeout"
            ) from None
        said = done.stderr[-TAIL_BYTES:].decode(errors="replace")
        try:
            answer: dict[str, Any] = json.loads(done.stdout)
        except ValueError:
            raise DeviceError(
                f"{self._name} crashed: {ending(done.returncode)}", status="crashed", stderr=said
            ) from None
        return answer

    def _fail(self, answer: dict[str, Any]) -> None:
        message = f"{self._name}: {answer['message']}"
        if answer.get("refused"):
            raise ConfigError(message, hint=answer["hint"])
        raise DeviceError(message, status=answer["status"])


def numpy_identity() -> str:
    """Changes with Python and the measuring code; numpy itself is a fact of every trial."""
    modules = ("numpy_program", "numpy_worker", "references")
    stamp = code_stamp(*(f"measure/{module}" for module in modules))
    return f"{platform.python_version()} {stamp}"


def cores_from(pin: int | None, threads: int) -> list[int]:
    """The cores of the threads, as the runner places them: from `pin` on, wrapping around; empty if
    nothing is pinned."""
    if pin is None:
        return []
    allowed = sorted(os.sched_getaffinity(0))
    if pin not in allowed:
        raise DeviceError(
            f"numpy cannot be pinned to core {pin}. Allowed: {', '.join(map(str, allowed))}.",
            status="refused",
        )
    first = allowed.index(pin)
    return [*allowed[first:], *allowed[:first]][:threads]


def _environment(threads: int) -> dict[str, str]:
    """Minimal environment plus the engine's import path."""
    ours = str(Path(kernloom.__file__).resolve().parents[1])
    others = os.environ.get("PYTHONPATH")
    kept = {name: os.environ[name] for name in _KEPT if name in os.environ}
    return {
        "LC_ALL": "C",
        "PYTHONPATH": os.pathsep.join([ours, others] if others else [ours]),
        **kept,
        **_MALLOC,
        **{name: str(threads) for name in _THREADS},
    }
