"""Speed of the simulated accelerators.

.venv/bin/python benchmarks/accelerator.py [PART ...]

events       events per CPU second of the simulator alone on a5, for three shares of tiles that
             lie in another cube
scheduler    tasks of three tensors each per CPU second: recorded, dependencies derived, given to
             the PEs of a5 without fabric, with each runtime; and bytes of a task
recorded     nodes of a recorded graph against the same tasks submitted one by one: CPU time of
             submission and derived dependencies, per node. Execution costs both the same, and is
             left out; it is in the last column. Recording happens once for each graph: the table
             says what it costs, and how often a graph must be submitted so that all together is
             cheaper, and ten times cheaper
simulator    65,792 tasks of paged attention without kernel work on a whole a5: CPU time of the
             launch, as devices are used: hazards are looked for, times are kept
times        a million tasks on a whole a5: what it costs to keep the times of every task
trace        a million tasks on a whole a5: bytes of the trace
hazards      launches of workloads on a5 that look for hazards, against those that do not
mlp          mlp over all PEs of a5: wall time of the whole run in a process that is already
             running; the artifacts are built before
workloads    the same for every workload at its default size
at_once      32 commands `run` at once on two cores, each of another trial: those that do not
             end within five minutes are hangs

Without a PART all of them. `ratio` is 1 or more where the wanted number is reached.
"""

from __future__ import annotations

import gc
import math
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "engine"))

from accelerator_programs import (
    RUNTIMES,
    TREE,
    Program,
    build_events,
    build_scheduler,
    build_simulator,
)

from kernloom.base.places import find_places
from kernloom.cli.progress import Progress
from kernloom.config.accelerator import settings_of
from kernloom.config.convert import convert
from kernloom.config.schema import Arch
from kernloom.device.runner import RunnerSession
from kernloom.fleet.local import Local, LocalSettings
from kernloom.run.assembly import Assembly
from kernloom.run.execution import Execution
from kernloom.run.planning import plan_points
from kernloom.store.store import open_store

EVENTS_TARGET = 5e6
TASKS = (10**3, 10**4, 10**5, 10**6)
SCHEDULER_TARGETS = dict(zip(RUNTIMES, (3e6, 1.5e6), strict=True))
TASK_BYTES_TARGET = 512
FLAT_TARGET = 0.2
NODES = (64, 1024, 16_384)
"""Of the recorded graph; each size divides RECORDED_TASKS."""
RECORDED_TASKS = 2**20
RECORDED_TARGET = 10
ATTENTION_TASKS, ATTENTION_TARGET_S = 65_792, 1.0
MANY_TASKS = 10**6
TRACE_TARGET_MB = 100
HAZARDS_TARGET = 1.2
HAZARDS_WORKLOADS = ("mlp", "matmul", "batched_gemm", "paged_attention", "softmax_pipeline")
REMOTE = (0, 2, 8)
"""How many of 8 tiles lie in another cube."""
RUN_TARGET_S = 1.0
MLP_TARGET_S = 0.5
ROUNDS = 3
AT_ONCE, CORES, PATIENCE_S = 32, 2, 300.0


def main() -> None:
    # As the command itself does.
    gc.disable()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "kernloom.yaml").touch()
        assembly = Assembly(find_places(folder))
        programs = Programs(assembly, folder)
        parts = {
            "events": lambda: events(programs),
            "scheduler": lambda: scheduler(programs),
            "recorded": lambda: recorded(programs),
            "simulator": lambda: simulator(programs),
            "times": lambda: times(programs),
            "trace": lambda: trace(programs),
            "hazards": lambda: hazards(assembly, folder),
            "mlp": lambda: workloads(assembly, folder, ["mlp"]),
            "workloads": lambda: workloads(assembly, folder, assembly.composer.options("workload")),
            "at_once": lambda: at_once(folder),
        }
        for part in sys.argv[1:] or parts:
            if part not in parts:
                sys.exit(f"there is no part {part!r}: {', '.join(parts)}")
            parts[part]()


class Programs:
    """Each is built when it is first used."""

    def __init__(self, assembly: Assembly, folder: Path) -> None:
        self.assembly = assembly
        self.folder = folder

    @cached_property
    def events(self) -> Program:
        return build_events(self.folder, settings_lines(self.assembly))

    @cached_property
    def scheduler(self) -> Program:
        return build_scheduler(self.folder)

    @cached_property
    def simulator(self) -> Program:
        return build_simulator(self.folder, settings_lines(self.assembly))


def settings_lines(assembly: Assembly) -> str:
    """The settings of a5."""
    composer = assembly.composer
    point = next(iter(composer.points(composer.choose({"target": "a5"}))))
    settings = settings_of(convert(Arch, point.data["arch"], "arch"))
    return "".join(f"{key}={value}\n" for key, value in settings.items())


def heading(title: str, *columns: str) -> None:
    print(f"\n{title:38}" + "".join(f"{column:>11}" for column in columns))


def row(title: str, *cells: str) -> None:
    print(f"{title:38}" + "".join(f"{cell:>11}" for cell in cells), flush=True)


def best(program: Program, by: str, *words: object) -> dict[str, float]:
    """The round with the least value of a key."""
    return min((program.run(*words) for _ in range(ROUNDS)), key=lambda found: found[by])


def events(programs: Programs) -> None:
    heading("events, tiles elsewhere", "million/s", "wanted", "ratio")
    for remote in REMOTE:
        words = (programs.folder / "settings", 200, remote)
        runs = [programs.events.run(*words)["events_per_second"] for _ in range(ROUNDS)]
        rate = max(runs)
        row(f"{remote} of 8", *million(rate, EVENTS_TARGET))


def million(rate: float, wanted: float) -> tuple[str, str, str]:
    return f"{rate / 1e6:.2f}", f"{wanted / 1e6:.1f}", f"{rate / wanted:.2f}"


def scheduler(programs: Programs) -> None:
    columns = ("million/s", "wanted", "ratio", "submit ns", "execute ns")
    heading("scheduled without fabric", *columns, "B a task", "wanted", "ratio")
    for runtime, wanted in SCHEDULER_TARGETS.items():
        rates = []
        for count in TASKS:
            found = max(
                (programs.scheduler.run(count, runtime) for _ in range(ROUNDS)),
                key=lambda one: one["tasks_per_second"],
            )
            rates.append(found["tasks_per_second"])
            size = found["bytes_per_task"]
            row(
                f"{runtime}, {count:,} tasks",
                *million(rates[-1], wanted),
                f"{found['submit_ns']:.1f}",
                f"{found['begin_ns'] + found['execute_ns']:.1f}",
                f"{size:.0f}",
                f"{TASK_BYTES_TARGET}",
                f"{TASK_BYTES_TARGET / size:.2f}",
            )
        spread = 1 - min(rates) / max(rates)
        ratio = f"{FLAT_TARGET / spread:.2f}" if spread else "-"
        row(f"{runtime}, slowest below fastest", f"{spread:.1%}", f"{FLAT_TARGET:.0%}", ratio)


def recorded(programs: Programs) -> None:
    runtime = RUNTIMES[0]
    columns = ("task ns", "node ns", "cheaper", "wanted", "ratio")
    heading(
        "recorded graph, submitted again", *columns, "record ns", "pays from", "10x from", "run ns"
    )
    for nodes in NODES:
        # As many tasks as the graph has nodes, and so the same dependencies.
        plain = best(programs.scheduler, "submit_ns", nodes, runtime)["submit_ns"]
        found = best(programs.scheduler, "again_ns", RECORDED_TASKS, runtime, nodes)
        # What is in the caches is that of other launches: a graph alone.
        once = best(programs.scheduler, "once_ns", nodes, runtime, nodes)["once_ns"]
        again = found["again_ns"]
        row(
            f"{nodes:,} nodes",
            f"{plain:.1f}",
            f"{again:.2f}",
            f"{plain / again:.0f}x",
            f"{RECORDED_TARGET}x",
            f"{plain / again / RECORDED_TARGET:.2f}",
            f"{once:.1f}",
            submissions(once, plain - again),
            submissions(once, plain / RECORDED_TARGET - again),
            f"{found['begin_ns'] + found['execute_ns']:.1f}",
        )


def submissions(once: float, saved: float) -> str:
    return str(math.ceil(once / saved)) if saved > 0 else "never"


AS_USED = ("times=1", "hazards=1")


def simulator(programs: Programs) -> None:
    heading(f"{ATTENTION_TASKS:,} attention tasks on a5", "CPU s", "wanted", "ratio", "B a task")
    for runtime in RUNTIMES:
        words = (runtime.upper(), ATTENTION_TASKS, "attention", *AS_USED)
        found = best(programs.simulator, "seconds", *words)
        row(
            runtime,
            f"{found['seconds']:.3f}",
            f"{ATTENTION_TARGET_S:.1f}",
            f"{ATTENTION_TARGET_S / found['seconds']:.2f}",
            f"{found['peak_bytes'] / ATTENTION_TASKS:.0f}",
        )


def times(programs: Programs) -> None:
    heading(f"{MANY_TASKS:,} tasks on a5, times kept", "CPU s", "without", "B a task", "without")
    for runtime in RUNTIMES:
        words = (runtime.upper(), MANY_TASKS, "tiles", "hazards=1")
        kept, without = (
            best(programs.simulator, "seconds", *words, f"times={times}") for times in (1, 0)
        )
        pairs = (kept, without)
        row(
            runtime,
            *(f"{found['seconds']:.2f}" for found in pairs),
            *(f"{found['peak_bytes'] / MANY_TASKS:.0f}" for found in pairs),
        )


def trace(programs: Programs) -> None:
    heading(f"trace of {MANY_TASKS:,} tasks on a5", "MB", "wanted", "ratio", "write s")
    for runtime in RUNTIMES:
        words = (runtime.upper(), MANY_TASKS, "tiles", *AS_USED, "trace=1", "trace.level=1")
        found = programs.simulator.run(*words)
        size = found["trace_bytes"] / 1e6
        row(
            f"{runtime}, level 1",
            f"{size:.1f}",
            f"{TRACE_TARGET_MB}",
            f"{TRACE_TARGET_MB / size:.2f}",
            f"{found['trace_seconds']:.2f}",
        )


class Launches:
    """Adds up the wall time of the sessions' launches, the outermost call only."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._depth = 0
        for name in ("launch", "launch_and_view"):
            setattr(RunnerSession, name, self._timed(getattr(RunnerSession, name)))

    def _timed(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            self._depth += 1
            start = time.perf_counter()
            try:
                return function(*args, **kwargs)
            finally:
                self._depth -= 1
                if not self._depth:
                    self.seconds += time.perf_counter() - start

        return call


class Runs:
    """Runs of a process that is already running, each as often as is asked for."""

    def __init__(self, assembly: Assembly, execution: Execution, launches: Launches) -> None:
        self._assembly = assembly
        self._execution = execution
        self._launches = launches

    def time(self, *words: str) -> tuple[float, float, str]:
        """Wall time of the run and of its launches, and why it failed, if it did."""
        self._launches.seconds, start = 0.0, time.perf_counter()
        words = ("target=a5", "case=default", "rerun=all", *words)
        parsed = self._assembly.composer.parse(list(words), multirun=False)
        (trial,) = self._execution.execute(plan_points(self._assembly, parsed)).trials
        said = "" if trial.verified else f"  {trial.status}: {trial.message[:60]}"
        return time.perf_counter() - start, self._launches.seconds, said


@contextmanager
def running(assembly: Assembly, folder: Path) -> Iterator[Runs]:
    quiet = Progress(sys.stderr, quiet=True)
    with open_store(folder / "store.db") as store:
        fleet = Local(assembly, quiet, LocalSettings("local"))
        yield Runs(assembly, Execution(assembly, store, quiet, fleet), Launches())


def workloads(assembly: Assembly, folder: Path, names: Sequence[str]) -> None:
    heading("workload on a5, default size", "launch s", "run s", "wanted", "ratio")
    with running(assembly, folder) as runs:
        for name in names:
            # The first round builds, and is left out.
            rounds = [runs.time(f"workload={name}") for _ in range(1 + ROUNDS)]
            run, launch, said = min(rounds[1:])
            wanted = MLP_TARGET_S if name == "mlp" else RUN_TARGET_S
            row(name, f"{launch:.3f}", f"{run:.3f}", f"{wanted:.1f}", f"{wanted / run:.2f}{said}")


def hazards(assembly: Assembly, folder: Path) -> None:
    heading("launches on a5 with hazards", "s", "without s", "slower", "wanted", "ratio")
    with running(assembly, folder) as runs:
        for name in HAZARDS_WORKLOADS:
            seconds = {"true": math.inf, "false": math.inf}
            said = ""
            # In turn: a busy machine slows both. The first round builds, and is left out.
            for number in range(1 + 2 * ROUNDS):
                for look, known in seconds.items():
                    words = (f"workload={name}", f"target.options.hazards={look}")
                    _, launch, said = runs.time(*words)
                    seconds[look] = min(known, launch) if number else math.inf
            slower = seconds["true"] / seconds["false"]
            row(
                name,
                *(f"{value:.4f}" for value in seconds.values()),
                f"{slower - 1:.1%}",
                f"{HAZARDS_TARGET - 1:.0%}",
                f"{HAZARDS_TARGET / slower:.2f}{said}",
            )


def at_once(folder: Path) -> None:
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, sorted(cores)[:CORES])
    environment = os.environ | {"PYTHONPATH": str(TREE / "engine")}
    words = [sys.executable, "-m", "kernloom", "run", "target=a5", "workload=axpy", "case=small"]
    start = time.perf_counter()
    commands = [
        subprocess.Popen(
            [*words, f"arch.hbm.bandwidth={100 + i}"],
            cwd=folder,
            env=environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        for i in range(AT_ONCE)
    ]
    hangs, good = 0, 0
    for command in commands:
        try:
            good += command.wait(max(0.1, start + PATIENCE_S - time.perf_counter())) == 0
        except subprocess.TimeoutExpired:
            hangs += 1
            command.kill()
            command.wait()
    seconds = time.perf_counter() - start
    os.sched_setaffinity(0, cores)
    heading("at once", "verified", "hangs", "wanted", "wall s")
    title = f"{AT_ONCE} simulations on {min(CORES, len(cores))} cores"
    row(title, str(good), str(hangs), "0", f"{seconds:.1f}")


if __name__ == "__main__":
    main()
