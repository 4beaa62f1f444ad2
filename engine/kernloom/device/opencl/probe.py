"""Detects the OpenCL devices of this machine.

A separate process asks the drivers, because they may crash and stay loaded. That takes a quarter of
a second, so the result is cached until anything that drivers depend on changes.
"""

from __future__ import annotations

import importlib.util
import json
import os
import sys
from collections.abc import Iterable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import kernloom
from kernloom.base.code_stamp import code_stamp
from kernloom.base.errors import UnavailableError
from kernloom.base.files import file_stamp, sha256_json
from kernloom.base.sealed import read_cache, write_cache
from kernloom.base.temporary import own_folder, temporary_folder
from kernloom.device.opencl.choice import INSTALL, Found

PROBE_SECONDS = 60
WORKER = ("-P", "-m", "kernloom.device.opencl.worker")
_KEPT = (
    "CL_",
    "CUDA_",
    "GPU_",
    "HIP_",
    "HSA_",
    "OCL_",
    "OPENCL_",
    "POCL_",
    "ROCR_",
    "RUSTICL_",
    "ZE_",
)
"""Prefixes of the variables that choose and configure drivers."""
_BYTECODE = ("PYTHONDONTWRITEBYTECODE", "PYTHONPYCACHEPREFIX")
"""Where Python keeps what it has compiled: without, each worker would compile its modules again."""
_IGNORED_VARIABLES = ("CUDA_CACHE_PATH", "OCL_ICD_DEBUG", "POCL_CACHE_DIR")
"""Variables that change no result."""
_VENDORS = "/etc/OpenCL/vendors"
_NODES = ("/dev/dri", "/dev/kfd", "/dev/nvidiactl", "/dev/nvidia0", "/sys/module/nvidia/version")
"""Files that come and go with a driver's kernel module."""
_SYSTEM = ("/etc/ld.so.cache", "/proc/sys/kernel/random/boot_id")


def devices(compute_units: int = 0, cache: Path | None = None) -> tuple[Found, ...]:
    """All devices of this machine, from the cache folder if its record is still valid."""
    settings = driver_settings()
    return _devices(compute_units, cache, tuple(settings.items()))


@lru_cache(maxsize=8)
def _devices(
    compute_units: int, cache: Path | None, settings: tuple[tuple[str, str], ...]
) -> tuple[Found, ...]:
    if cache is None:
        return _found(_query_drivers(compute_units)["devices"])
    file = cache / "opencl.json"
    entry = sha256_json([compute_units, settings])
    surroundings = _surroundings(dict(settings))
    record = read_cache(file).get(entry)
    if isinstance(record, dict) and record.get("surroundings") == surroundings:
        known = _still_true(record)
        if known is not None:
            return known
    answer = _query_drivers(compute_units, cache)
    # No device may mean a busy driver: this is not cached unless there is no driver at all.
    none = not answer["platform"] and not _lists_drivers(surroundings, settings)
    if answer["devices"] or none:
        answer["stamps"] = _stamps(answer.pop("libraries"))
        write_cache(file, entry, {**answer, "surroundings": surroundings})
    return _found(answer["devices"])


def driver_settings() -> dict[str, str]:
    """Variables of the environment that drivers see."""
    return {
        name: value
        for name, value in sorted(os.environ.items())
        if name.startswith(_KEPT) or name == "LD_LIBRARY_PATH"
    }


def settings_that_matter() -> dict[str, str]:
    """Those variables that may affect results."""
    return {
        name: value for name, value in driver_settings().items() if name not in _IGNORED_VARIABLES
    }


def worker_environment(cache: Path) -> dict[str, str]:
    """Environment of a worker: drivers cache compiled kernels below `cache`, not in the user's
    home."""
    return {
        "PATH": os.environ.get("PATH", os.defpath),
        "PYTHONPATH": str(Path(kernloom.__file__).resolve().parents[1]),
        **{name: os.environ[name] for name in _BYTECODE if name in os.environ},
        "HOME": str(cache),
        "TMPDIR": str(cache),
        "POCL_CACHE_DIR": str(cache / "pocl"),
        "CUDA_CACHE_PATH": str(cache / "cuda"),
        "PYOPENCL_NO_CACHE": "1",
        "PYOPENCL_COMPILER_OUTPUT": "0",
        **driver_settings(),
    }


def _query_drivers(compute_units: int, folder: Path | None = None) -> dict[str, Any]:
    """The devices that the drivers report, and the loaded driver libraries."""
    import subprocess

    if importlib.util.find_spec("pyopencl") is None:
        problem = "the Python package pyopencl is missing (No module named 'pyopencl')"
        raise UnavailableError(problem, hint=INSTALL)
    writable = folder is not None and os.access(folder, os.W_OK)
    with own_folder(folder / "tmp") if folder and writable else temporary_folder() as cache:
        try:
            done = subprocess.run(
                [sys.executable, *WORKER, f"--list={compute_units}"],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                env={"LC_ALL": "C", **worker_environment(cache)},
                timeout=PROBE_SECONDS,
            )
        except subprocess.TimeoutExpired:
            raise UnavailableError(
                f"the OpenCL drivers did not answer within {PROBE_SECONDS} s"
            ) from None
    try:
        answer: dict[str, Any] = json.loads(done.stdout)
    except ValueError:
        said = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
        raise UnavailableError(f"the OpenCL drivers do not work: {said}") from None
    if "problem" in answer:
        raise UnavailableError(answer["problem"], hint=INSTALL)
    return answer


def _found(items: Iterable[Mapping[str, Any]]) -> tuple[Found, ...]:
    return tuple(Found(**item) for item in items)


def _still_true(record: Mapping[str, Any]) -> tuple[Found, ...] | None:
    """The devices of a record, if none of its libraries has changed."""
    try:
        stamps = record["stamps"]
        same = all(file_stamp(Path(path)) == stamp for path, stamp in stamps.items())
        return _found(record["devices"]) if same else None
    except (OSError, KeyError, TypeError, AttributeError):
        return None


def _surroundings(settings: Mapping[str, str]) -> dict[str, Any]:
    """Everything beside variables and libraries that determines which devices are found."""
    found = importlib.util.find_spec("pyopencl")
    # Drivers that are Python packages install themselves there.
    beside = Path(found.origin).parent / ".libs" if found and found.origin else None
    named = [settings.get(name) for name in ("OCL_ICD_VENDORS", "OPENCL_VENDOR_PATH")]
    places = [_VENDORS, *(name for name in named if name), *([str(beside)] if beside else [])]
    code = code_stamp(
        "device/opencl/choice",
        "device/opencl/devices",
        "device/opencl/worker",
        packages=("pyopencl",),
    )
    boot = Path(_SYSTEM[1])
    return {
        "code": [code, sys.executable],
        "drivers": {place: _stamps(_files(Path(place))) for place in places},
        "nodes": [[node, os.access(node, os.R_OK)] for n in _NODES for node in _files(Path(n))],
        "loader": _stamps([_SYSTEM[0]]),
        "boot": boot.read_text(encoding="ascii").strip() if boot.exists() else "",
    }


def _lists_drivers(surroundings: Mapping[str, Any], settings: Iterable[tuple[str, str]]) -> bool:
    """Whether any file or variable names a driver, even one that does not work."""
    listed = (
        stamp is not None and (path.endswith(".icd") or path == place)
        for place, files in surroundings["drivers"].items()
        for path, stamp in files.items()
    )
    return any(listed) or any(name == "OCL_ICD_FILENAMES" for name, _ in settings)


def _files(place: Path) -> list[str]:
    """The files of a folder, or the file itself."""
    try:
        return sorted(str(path) for path in place.iterdir())
    except OSError:
        return [str(place)]


def _stamps(paths: Iterable[str]) -> dict[str, list[int] | None]:
    stamps: dict[str, list[int] | None] = {}
    for path in paths:
        try:
            stamps[path] = file_stamp(Path(path))
        except OSError:
            stamps[path] = None
    return stamps
