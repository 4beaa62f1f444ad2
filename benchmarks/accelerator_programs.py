"""The C++ programs of benchmarks/accelerator.py: how they are built and run."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

TREE = Path(__file__).resolve().parent.parent
NATIVE = TREE / "native"
ACCELERATOR = NATIVE / "accelerator"
COMMON = (ACCELERATOR / "include", NATIVE / "include")
FLAGS = ("-std=gnu++20", "-O2", "-ffp-contract=off")
LIBRARY = ("-shared", "-fPIC", "-fvisibility=hidden")
RUNTIMES = ("hostgraph", "ringmap")


def unit(path: Path, sources: Iterable[Path]) -> Path:
    """A source that includes others, as the engine compiles the accelerator's programs."""
    path.write_text("".join(f'#include "{source}"\n' for source in sources), encoding="utf-8")
    return path


def compiled(output: Path, sources: Sequence[Path], includes: Sequence[Path], *flags: str) -> None:
    paths = [f"-I{path}" for path in includes]
    command = ["g++", *FLAGS, *flags, *paths, *map(str, sources), "-ldl", "-lpthread"]
    subprocess.run([*command, "-o", str(output)], check=True)


@dataclass(frozen=True)
class Program:
    path: Path
    environment: dict[str, str]

    def run(self, *words: object) -> dict[str, float]:
        """The lines `key=number` that it prints; others are left out."""
        done = subprocess.run(
            [str(self.path), *map(str, words)],
            check=True,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | self.environment,
        )
        numbers = {}
        for line in done.stdout.splitlines():
            key, _, value = line.partition("=")
            with suppress(ValueError):
                numbers[key] = float(value)
        return numbers


def build_events(folder: Path, settings: str) -> Program:
    """One translation unit: the program and the simulator."""
    simulator = ACCELERATOR / "platform" / "sim"
    sources = [*sorted(simulator.glob("*.cpp")), TREE / "benchmarks" / "accelerator_events.cpp"]
    program = folder / "events"
    (folder / "settings").write_text(settings, encoding="utf-8")
    compiled(program, [unit(folder / "unit.cpp", sources)], (simulator, *COMMON))
    return Program(program, {})


def build_scheduler(folder: Path) -> Program:
    control, library = ACCELERATOR / "control", ACCELERATOR / "tasks"
    graphs, rings = (control / "runtimes" / name for name in RUNTIMES)
    scheduler = [
        *(control / "scheduler.cpp", control / "peaks.cpp", graphs / "graph_order.cpp"),
        *(rings / "ring_order.cpp", rings / "ring.cpp"),
    ]
    sources = [
        TREE / "benchmarks" / "accelerator_scheduler.cpp",
        unit(folder / "control.cpp", scheduler),
        unit(folder / "tasks.cpp", sorted(library.glob("*.cpp"))),
    ]
    program = folder / "scheduler"
    compiled(program, sources, (control, graphs, rings, library, *COMMON))
    return Program(program, {})


def build_simulator(folder: Path, settings: str) -> Program:
    """Each program of the device is a library of its own."""
    shared = [ACCELERATOR / "tasks", ACCELERATOR / "code"]
    control = ACCELERATOR / "control"
    parts = {
        "PLATFORM": [ACCELERATOR / "platform" / "sim"],
        "HOST": [ACCELERATOR / "host", *shared],
        "CORE": [ACCELERATOR / "core", ACCELERATOR / "code"],
        **{name.upper(): [control, control / "runtimes" / name, *shared] for name in RUNTIMES},
    }
    files = {name: folder / f"{name.lower()}.so" for name in parts}
    for name, folders in parts.items():
        sources = [
            unit(folder / f"{name.lower()}_{part.name}.cpp", sorted(part.glob("*.cpp")))
            for part in folders
        ]
        compiled(files[name], sources, [*folders, *COMMON], *LIBRARY)
    source = TREE / "benchmarks" / "accelerator_simulator.cpp"
    kernels = {"MATRIX": 0, "VECTOR": 1, "LANE": 1}
    for name, core_type in kernels.items():
        files[name] = folder / f"{name.lower()}.so"
        compiled(files[name], [source], COMMON, *LIBRARY, "-DKERNEL", f"-DCORE_TYPE={core_type}")
    files["ORCHESTRATION"] = folder / "orchestration.so"
    compiled(files["ORCHESTRATION"], [source], COMMON, *LIBRARY, "-DORCHESTRATION")
    program = folder / "simulator"
    compiled(program, [source], [*COMMON, TREE / "tests/native/accelerator/programs"])
    return Program(program, {"SETTINGS": settings, **{k: str(v) for k, v in files.items()}})
