"""An OpenCL device, seen from the engine: every session is a worker with the driver in it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Collection
from functools import lru_cache
from pathlib import Path

import kernloom
from kernloom.config.convert import convert
from kernloom.config.schema import Target
from kernloom.device.contract import Device, DeviceSetup, Session
from kernloom.device.opencl.choice import INSTALL, Found, Options, check_dtypes, choose
from kernloom.device.runner import RunnerSession
from kernloom.device.window import WindowPool
from kernloom.errors import UnavailableError

PROBE_SECONDS = 60
_WORKER = ("-P", "-m", "kernloom.device.opencl.worker")
_KEPT = ("POCL_", "OCL_", "OPENCL_", "CUDA_", "ROCR_", "HIP_")
"""Variables that choose and set up drivers."""


class OpenClDevice(Device):
    """A device, or sub-device, of an OpenCL platform; any number can be open at once."""

    name = "opencl"
    capabilities = frozenset({"memory", "launch", "calibrate", "wall_clock", "transfers"})

    def __init__(
        self, options: Options, *, arch: str = "opencl", cache: Path | None = None
    ) -> None:
        self.options = options
        self.arch = arch
        self.index = options.index
        self._windows = WindowPool()
        # Drivers keep compiled kernels in the user's home, which is not ours to fill.
        self._own = None if cache else tempfile.TemporaryDirectory(prefix="kernloom-opencl-")
        self._cache = Path(self._own.name) if self._own else Path(cache or ".")

    @classmethod
    def made(cls, setup: DeviceSetup) -> OpenClDevice:
        cache = setup.cache / "opencl" if setup.cache else None
        return cls(options_of(setup.target), arch=setup.arch.name, cache=cache)

    @classmethod
    def check(cls, target: Target, dtypes: Collection[str] = ()) -> None:
        check_dtypes(chosen(target), dtypes)

    @classmethod
    def facts(cls, target: Target) -> dict[str, str]:
        item = chosen(target)
        return {"platform": item.version, "device": item.device, "driver": item.driver}

    def open(self, *, timeout: float = 60.0) -> Session:
        self._cache.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, *_WORKER, f"--options={json.dumps(vars(self.options))}"]
        return RunnerSession(command, self._windows, timeout, environment=_environment(self._cache))


def options_of(target: Target) -> Options:
    return convert(Options, dict(target.options), "target.options")


def chosen(target: Target) -> Found:
    """The device that a target means, as its driver describes it."""
    options = options_of(target)
    found = devices(options.compute_units)
    return found[choose(found, options)]


@lru_cache(maxsize=8)
def devices(compute_units: int = 0) -> tuple[Found, ...]:
    """All devices of this machine. Another process looks: drivers crash, and stay once loaded."""
    with tempfile.TemporaryDirectory(prefix="kernloom-opencl-") as cache:
        try:
            done = subprocess.run(
                [sys.executable, *_WORKER, f"--list={compute_units}"],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                env={"LC_ALL": "C", **_environment(Path(cache))},
                timeout=PROBE_SECONDS,
            )
        except subprocess.TimeoutExpired:
            raise UnavailableError(
                f"the OpenCL drivers did not answer within {PROBE_SECONDS} s"
            ) from None
    try:
        answer = json.loads(done.stdout)
    except ValueError:
        said = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
        raise UnavailableError(f"the OpenCL drivers do not work: {said}") from None
    if "problem" in answer:
        raise UnavailableError(answer["problem"], hint=INSTALL)
    return tuple(Found(**item) for item in answer["devices"])


def _environment(cache: Path) -> dict[str, str]:
    kept = {
        name: value
        for name, value in os.environ.items()
        if name.startswith(_KEPT) or name == "LD_LIBRARY_PATH"
    }
    return {
        "PATH": os.environ.get("PATH", os.defpath),
        "PYTHONPATH": str(Path(kernloom.__file__).resolve().parents[1]),
        "PYTHONDONTWRITEBYTECODE": "1",
        "HOME": str(cache),
        "POCL_CACHE_DIR": str(cache / "pocl"),
        "CUDA_CACHE_PATH": str(cache / "cuda"),
        "PYOPENCL_NO_CACHE": "1",
        "PYOPENCL_COMPILER_OUTPUT": "0",
        **kept,
    }
