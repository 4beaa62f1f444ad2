"""Speed of the simulated accelerators.

.venv/bin/python benchmarks/accelerator.py

events       events per CPU second of the simulator alone on a5, for three shares of tiles that
             lie in another cube (accelerator_events.cpp)
workloads    every workload at its default size on a5: wall time of its launches, and of the
             whole run in a process that is already running; the artifacts are built before
at once      32 commands `run` at once on two cores, each of another trial: those that do not
             end within five minutes are hangs
"""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "engine"))

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

TREE = Path(__file__).resolve().parent.parent
NATIVE = TREE / "native"
FLAGS = ("-std=gnu++20", "-O2", "-ffp-contract=off")
EVENTS_TARGET = 5e6
REMOTE = (0, 2, 8)
"""How many of 8 tiles lie in another cube."""
RUN_TARGET_S = 1.0
ROUNDS = 3
AT_ONCE, CORES, PATIENCE_S = 32, 2, 300.0


def main() -> None:
    # As the command itself does.
    gc.disable()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "kernloom.yaml").touch()
        assembly = Assembly(find_places(folder))
        events(assembly, folder)
        workloads(assembly, folder)
        at_once(folder)


def events(assembly: Assembly, folder: Path) -> None:
    composer = assembly.composer
    point = next(iter(composer.points(composer.choose({"target": "a5"}))))
    settings = settings_of(convert(Arch, point.data["arch"], "arch"))
    lines = "".join(f"{key}={value}\n" for key, value in settings.items())
    (folder / "settings").write_text(lines, encoding="utf-8")
    program = build_events(folder)
    print(f"{'events, tiles elsewhere':34}{'million/s':>10}{'wanted':>8}{'ratio':>8}")
    for remote in REMOTE:
        rate = max(events_per_second(program, folder, remote) for _ in range(ROUNDS))
        print(
            f"{f'{remote} of 8':34}{rate / 1e6:10.2f}{EVENTS_TARGET / 1e6:8.1f}"
            f"{rate / EVENTS_TARGET:8.2f}",
            flush=True,
        )


def build_events(folder: Path) -> Path:
    """One translation unit: the program and the simulator."""
    simulator = NATIVE / "accelerator" / "platform" / "sim"
    sources = [*sorted(simulator.glob("*.cpp")), TREE / "benchmarks" / "accelerator_events.cpp"]
    unit, program = folder / "unit.cpp", folder / "events"
    unit.write_text("".join(f'#include "{path}"\n' for path in sources), encoding="utf-8")
    includes = (simulator, NATIVE / "accelerator" / "include", NATIVE / "include")
    paths = [f"-I{path}" for path in includes]
    subprocess.run(["g++", *FLAGS, *paths, str(unit), "-o", str(program)], check=True)
    return program


def events_per_second(program: Path, folder: Path, remote: int) -> float:
    command = [str(program), str(folder / "settings"), "200", str(remote)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return float(done.stdout.rpartition("events_per_second=")[2])


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


def workloads(assembly: Assembly, folder: Path) -> None:
    launches = Launches()
    quiet = Progress(sys.stderr, quiet=True)
    title = "workload on a5, default size"
    print(f"\n{title:34}{'launch s':>10}{'run s':>8}{'wanted':>8}{'ratio':>8}")
    with open_store(folder / "store.db") as store:
        fleet = Local(assembly, quiet, LocalSettings("local"))
        execution = Execution(assembly, store, quiet, fleet)
        for name in assembly.composer.options("workload"):
            words = ["target=a5", f"workload={name}", "case=default", "rerun=all"]
            timings = []
            # The first round builds, and is left out.
            for _ in range(1 + ROUNDS):
                launches.seconds, start = 0.0, time.perf_counter()
                parsed = assembly.composer.parse(words, multirun=False)
                (trial,) = execution.execute(plan_points(assembly, parsed)).trials
                timings.append((time.perf_counter() - start, launches.seconds))
            run, launch = min(timings[1:])
            said = "" if trial.verified else f"  {trial.status}: {trial.message[:60]}"
            print(
                f"{name:34}{launch:10.3f}{run:8.3f}{RUN_TARGET_S:8.1f}"
                f"{run / RUN_TARGET_S:8.2f}{said}",
                flush=True,
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
    print(f"\n{'at once':34}{'verified':>10}{'hangs':>8}{'wanted':>8}{'wall s':>8}")
    title = f"{AT_ONCE} simulations on {min(CORES, len(cores))} cores"
    print(f"{title:34}{good:10}{hangs:8}{0:8}{seconds:8.1f}")


if __name__ == "__main__":
    main()
