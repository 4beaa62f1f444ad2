"""What the engine itself costs per point of a sweep whose artifacts are all cached.

Everything but the time inside the device's sessions (starting runners, moving data, launching) is
the engine's: composing, planning, checking artifacts, inputs and goldens, comparing, storing.
Waiting for the disk to confirm each commit is shown apart: it depends on the disk's other users.
CPU time is what the engine costs; wall time also holds what others on the machine took from it.

    .venv/bin/python benchmarks/engine_overhead.py [POINTS]
"""

from __future__ import annotations

import gc
import resource
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "engine"))

from kernloom.cli.progress import Progress
from kernloom.device.runner import RunnerSession
from kernloom.fleet.local import Local, LocalSettings
from kernloom.run.assembly import Assembly
from kernloom.run.execution import Execution
from kernloom.run.planning import plan_points
from kernloom.store.sqlite import SqliteConnection
from kernloom.store.store import open_store

SESSION = ("__init__", "prepare", "launch", "launch_and_view", "view", "read", "close")


class Spent(NamedTuple):
    """Nanoseconds by the clock and of this process's CPU."""

    wall: int = 0
    cpu: int = 0

    def less(self, *others: Spent) -> Spent:
        """What is left without these."""
        return Spent(
            self.wall - sum(other.wall for other in others),
            self.cpu - sum(other.cpu for other in others),
        )


def now() -> Spent:
    return Spent(time.perf_counter_ns(), time.process_time_ns())


class Stopwatch:
    """Adds up the time spent in some methods, the outermost call only.

    Plain sums, with little around them: what it takes itself counts as the engine's.
    """

    def __init__(self) -> None:
        self._depth = 0
        self.clear()

    def clear(self) -> None:
        self._wall = self._cpu = 0

    @property
    def spent(self) -> Spent:
        return Spent(self._wall, self._cpu)

    def timed(self, function: Callable[..., Any]) -> Callable[..., Any]:
        wall_now, cpu_now = time.perf_counter_ns, time.process_time_ns

        def call(*args: Any, **kwargs: Any) -> Any:
            if self._depth:
                return function(*args, **kwargs)
            self._depth = 1
            wall, cpu = wall_now(), cpu_now()
            try:
                return function(*args, **kwargs)
            finally:
                self._cpu += cpu_now() - cpu
                self._wall += wall_now() - wall
                self._depth = 0

        return call


def main() -> None:
    # As the command itself does.
    gc.disable()
    points = int(sys.argv[1]) if len(sys.argv) > 1 else 500
    sizes = ",".join(str(1024 + i) for i in range(points))
    words = ["workload=axpy", f"workload.sizes.{size_name()}={sizes}", "rerun=all"]
    watch, disk = Stopwatch(), Stopwatch()
    for name in SESSION:
        setattr(RunnerSession, name, watch.timed(getattr(RunnerSession, name)))
    SqliteConnection.commit = disk.timed(SqliteConnection.commit)  # type: ignore[method-assign]
    assembly = Assembly()
    quiet = Progress(sys.stderr, quiet=True)
    with tempfile.TemporaryDirectory() as folder, open_store(Path(folder) / "s.db") as store:
        execution = Execution(
            assembly, store, quiet, Local(assembly, quiet, LocalSettings("local"))
        )
        one = assembly.composer.parse(words[:1], multirun=False)
        execution.execute(plan_points(assembly, one))
        watch.clear()
        disk.clear()
        start = now()
        plans = plan_points(assembly, assembly.composer.parse(words, multirun=True))
        planned = now().less(start)
        results = execution.execute(plans)
        total = now().less(start)
    good = sum(trial.good for trial in results.trials)
    engine = total.less(watch.spent, disk.spent)
    print(f"{points} points, {good} verified, {results.build.built} built")
    print(f"{'ms per point':24}{'CPU':>10}{'wall':>10}")
    parts = {
        "planning": planned,
        "data, compare, store": engine.less(planned),
        "engine": engine,
        "commits (disk)": disk.spent,
        "device sessions": watch.spent,
        "total": total,
    }
    for name, spent in parts.items():
        print(f"{name:24}{spent.cpu / points / 1e6:10.3f}{spent.wall / points / 1e6:10.3f}")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"peak memory {peak:.0f} MB; planning took {planned.cpu / 1e9:.2f} s of CPU")


def size_name() -> str:
    """The name of axpy's only size."""
    composer = Assembly().composer
    point = next(iter(composer.points(composer.choose({"workload": "axpy"}))))
    return str(next(iter(point.data["workload"]["sizes"])))


if __name__ == "__main__":
    main()
