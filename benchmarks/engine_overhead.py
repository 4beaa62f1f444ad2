"""What the engine itself costs per point of a sweep whose artifacts are all cached.

Everything but the time inside the device's sessions (starting runners, moving data, launching) is
the engine's: composing, planning, checking artifacts, inputs and goldens, comparing, storing.
Waiting for the disk to confirm each commit is shown apart: it depends on the disk's other users.

    .venv/bin/python benchmarks/engine_overhead.py [POINTS]
"""

from __future__ import annotations

import gc
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "engine"))

from sqlalchemy.engine.default import DefaultDialect

from kernloom.cli.assembly import Assembly
from kernloom.cli.carry_out import Workshop
from kernloom.cli.planning import plan_points
from kernloom.cli.progress import Progress
from kernloom.device.runner import RunnerSession
from kernloom.store.store import open_store

SESSION = ("__init__", "allocate", "write", "read", "fill", "load", "launch", "close")


class Stopwatch:
    """Adds up the time spent in some methods, the outermost call only."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._depth = 0

    def timed(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            self._depth += 1
            start = time.perf_counter()
            try:
                return function(*args, **kwargs)
            finally:
                self._depth -= 1
                if self._depth == 0:
                    self.seconds += time.perf_counter() - start

        return call


def main() -> None:
    points = int(sys.argv[1]) if len(sys.argv) > 1 else 500
    sizes = ",".join(str(1024 + 16 * i) for i in range(points))
    words = ["workload=axpy", f"workload.sizes.{size_name()}={sizes}", "rerun=all"]
    watch, disk = Stopwatch(), Stopwatch()
    for name in SESSION:
        setattr(RunnerSession, name, watch.timed(getattr(RunnerSession, name)))
    DefaultDialect.do_commit = disk.timed(DefaultDialect.do_commit)  # type: ignore[method-assign]
    assembly = Assembly()
    quiet = Progress(sys.stderr, quiet=True)
    with tempfile.TemporaryDirectory() as folder, open_store(Path(folder) / "s.db") as store:
        workshop = Workshop(assembly, store, quiet)
        workshop.carry_out(plan_points(assembly, words[:1], multirun=False))
        gc.freeze()
        watch.seconds = disk.seconds = 0.0
        start = time.perf_counter()
        plans = plan_points(assembly, words, multirun=True)
        planned = time.perf_counter() - start
        results = workshop.carry_out(plans)
        total = time.perf_counter() - start
    good = sum(trial.good for trial in results.trials)
    engine = total - watch.seconds - disk.seconds
    print(f"{points} points, {good} verified, {results.build.built} built")
    print(f"{'part':24}{'ms per point':>14}{'share':>8}")
    parts = {
        "planning": planned,
        "data, compare, store": engine - planned,
        "engine": engine,
        "commits (disk)": disk.seconds,
        "device sessions": watch.seconds,
        "total": total,
    }
    for name, seconds in parts.items():
        print(f"{name:24}{seconds / points * 1e3:14.3f}{seconds / total:8.0%}")


def size_name() -> str:
    """The name of axpy's only size."""
    point = next(iter(Assembly().composer.points(["workload=axpy"], multirun=False)))
    return str(next(iter(point.data["workload"]["sizes"])))


if __name__ == "__main__":
    main()
