"""The worker process of the numpy peer: one request on stdin, one response on stdout.

It samples like the native runner: warm-up, calibration, then for each sample both clocks and the
involuntary context switches.
"""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import gc
import itertools
import json
import os
import resource
import signal
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from kernloom.base.errors import ConfigError, DeviceError, KernloomError
from kernloom.config.convert import convert
from kernloom.config.schema import Workload

_PDEATHSIG = 1


def main() -> int:
    faulthandler.enable()
    # Killed with the engine, whatever numpy is doing.
    ctypes.CDLL(None).prctl(_PDEATHSIG, signal.SIGKILL)
    # Output of a reference from outside must not mix with the response.
    with os.fdopen(os.dup(1), "w") as answers:
        os.dup2(2, 1)
        request = json.load(sys.stdin)
        json.dump(_answer(request), answers)
    return 0


def _answer(request: Mapping[str, Any]) -> dict[str, Any]:
    if request["cores"]:
        # Before numpy is imported, because its threads inherit the affinity at their start.
        os.sched_setaffinity(0, request["cores"])
    try:
        return _sampled(request)
    except DeviceError as error:
        return {"message": str(error), "status": error.status}
    except ConfigError as error:
        return {"message": error.message, "hint": error.hint, "refused": True}
    except KernloomError as error:
        return {"message": str(error), "status": "crashed"}
    except MemoryError:
        return {"message": "there is not enough memory", "status": "out_of_memory"}


def _sampled(request: Mapping[str, Any]) -> dict[str, Any]:
    import numpy as np

    from kernloom.measure.data import DataSets
    from kernloom.measure.numpy_program import program
    from kernloom.measure.verify import compare

    workload = convert(Workload, request["workload"], "workload")
    data = DataSets([Path(folder) for folder in request["folders"]])
    inputs = data.inputs(workload, request["seed"])
    np.seterr(all="ignore")
    try:
        compute = program(workload, inputs)
        results = compute()
    except (ArithmeticError, TypeError, ValueError) as error:
        raise ConfigError(f"numpy cannot compute it in {workload.dtype}: {error}") from None
    if request["verify"]:
        regions = data.regions(workload, request["seed"])
        for name, golden in data.goldens(workload, request["seed"]).items():
            compare(name, results[name], golden, workload, region=regions.get(name))
    del results
    # A garbage collection during a sample would be measured with it.
    gc.disable()
    if request["realtime"]:
        # Where it is not permitted, kernels do not get it either.
        with contextlib.suppress(OSError):
            lowest = os.sched_get_priority_min(os.SCHED_FIFO)
            os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(lowest))
    for _ in range(request["warmup"]):
        compute()
    inner = request["inner"] or _calibrated(compute, request["min_sample_ns"])
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    samples = [_sample(compute, inner) for _ in range(request["samples"])]
    faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
    wall, cpu, involuntary = zip(*samples, strict=True)
    return {
        "inner": inner,
        "wall_ns": wall,
        "cpu_ns": cpu,
        "involuntary": involuntary,
        "page_faults": faults,
    }


def _sample(compute: Callable[[], Any], inner: int) -> tuple[int, int, int]:
    """Wall time, CPU time and involuntary switches of `inner` runs."""
    runs = itertools.repeat(None, inner)
    before = resource.getrusage(resource.RUSAGE_THREAD).ru_nivcsw
    cpu = time.thread_time_ns()
    wall = time.perf_counter_ns()
    for _ in runs:
        compute()
    wall = time.perf_counter_ns() - wall
    cpu = time.thread_time_ns() - cpu
    return wall, cpu, resource.getrusage(resource.RUSAGE_THREAD).ru_nivcsw - before


def _calibrated(compute: Callable[[], Any], min_sample_ns: int) -> int:
    """Runs for a sample of that length; uses the shorter of two, because an interruption makes a
    run appear long enough when it is not."""
    inner = 1
    while True:
        shorter = _sample(compute, inner)[0]
        if shorter >= min_sample_ns:
            shorter = min(shorter, _sample(compute, inner)[0])
        if shorter >= min_sample_ns:
            return inner
        factor = 1.1 * min_sample_ns / max(shorter, 1)
        inner = max(inner + 1, int(inner * min(max(factor, 1.2), 16.0)))


if __name__ == "__main__":
    sys.exit(main())
