"""The same workload computed by numpy, each time in a process of its own, sampled like a kernel."""

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
"""How long the process may take until numpy is imported and the inputs are there."""
LONGEST_S = 1e8
"""Three years: as long as any system can be asked to wait."""
CALIBRATIONS = 4
"""Runs that finding the inner count of a slow workload takes at most."""
_WORKER = ("-P", "-m", "kernloom.measure.numpy_worker")
_MALLOC = {"MALLOC_MMAP_THRESHOLD_": str(32 * 2**20), "MALLOC_TRIM_THRESHOLD_": str(64 * 2**20)}
"""Where glibc's malloc arrives by itself once a program has freed large arrays. Before that each
temporary is given back and faulted in again, which made one stencil 377 or 2500 us, depending on
whether the process had verified first."""
_THREADS = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")


class NumpyBaseline:
    """A workload as a numpy user would write it; the inner count is found in the first process,
    which also compares what comes out with the golden."""

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
        """The core it runs on; further threads may use the ones after it."""
        self.timeout = timeout
        """Seconds that one run may take."""
        self._inner = 0

    def sample(self, *, fresh: bool = True) -> Samples:
        """What one process measures; there is none but a fresh one."""
        if self.policy.cache == "cold":
            raise ConfigError(
                f"{self._name} cannot be measured with cold caches",
                key="measure.cache",
                hint="Set measure.cache=warm, or leave numpy out of measure.baselines.",
            )
        answer = self.asked(self.request())
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
        """There are no exact gauges on the host, and numpy is nowhere else."""
        raise ConfigError(
            f"{self._name} does not run on a device with exact gauges",
            key="measure.baselines",
        )

    @property
    def _name(self) -> str:
        return f"baseline 'numpy' of workload '{self.workload.name}'"

    def request(self) -> dict[str, Any]:
        """What the next process is to do."""
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

    def asked(self, request: dict[str, Any]) -> dict[str, Any]:
        """What a process answers."""
        runs = self.policy.warmup + self.policy.samples + CALIBRATIONS
        limit = min(START_S + self.timeout * runs, LONGEST_S)
        try:
            done = subprocess.run(
                [sys.executable, *_WORKER],
                input=json.dumps(request).encode(),
                capture_output=True,
                env=_environment(self.threads),
                timeout=limit,
                # Ctrl-C is for the engine, which ends it.
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
    """Changes with Python and the way it is measured; numpy itself is a fact of every trial."""
    modules = ("numpy_program", "numpy_worker", "references")
    stamp = code_stamp(*(f"measure/{module}" for module in modules))
    return f"{platform.python_version()} {stamp}"


def cores_from(pin: int | None, threads: int) -> list[int]:
    """The cores of as many threads, as the runner places them: from `pin` on, around; empty where
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
    """Small and fixed but for what finds the same packages as the engine has."""
    ours = str(Path(kernloom.__file__).resolve().parents[1])
    others = os.environ.get("PYTHONPATH")
    kept = {n: os.environ[n] for n in ("PATH", "LD_LIBRARY_PATH", "HOME") if n in os.environ}
    return {
        "LC_ALL": "C",
        "PYTHONPATH": os.pathsep.join([ours, others] if others else [ours]),
        "PYTHONDONTWRITEBYTECODE": "1",
        **kept,
        **_MALLOC,
        **{name: str(threads) for name in _THREADS},
    }
