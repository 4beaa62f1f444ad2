"""How soon a search on this machine finds a good point, beside Kernel Tuner on the same kernel.

    .venv/bin/python benchmarks/tuning_host.py --kernel-tuner PYTHON [--repeats 3] [--trials 60]
        [--size 512] [--strategies pso,...] [--judge FOLDER]

The space is that of the product of square matrices on one thread with the widest vectors: tiles,
blocks, packing and unrolling. Both systems get the same sources and the flags of code generation,
and measure CPU time with as many samples. Kernel Tuner gets its sources rendered.

First all points are measured, and the best of them again in the same rounds. These times judge:
a search is done when the point that it holds for the best is within 3% of the best of all.
Searches take turns, each with an empty store and nothing compiled but Kernloom's runner, which
comes with it as Kernel Tuner's packages do. Of Kernel Tuner the time counts from the call of
`tune_kernel`, of Kernloom from the start of the command.

`warm` has studied two other sizes before, and is judged after 10 points.

FOLDER keeps the times of all points, for further calls on a machine that stays as it is.

PYTHON is an interpreter with kernel-tuner 1.5 installed.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ENGINE = HERE.parent / "engine"
AXES = {
    "mr": ("tile", (6, 8, 12, 14, 4)),
    "nv": ("tile", (4, 3, 2, 1)),
    "kc": ("tile", (512, 256, 128)),
    "nc": ("tile", (512, 256, 1024)),
    "b": ("pack", (False, True)),
    "k": ("unroll", (1, 4)),
}
SAMPLES = 7
CLOSE = 1.03
JUDGED = 100
"""Points that are measured again."""
WARM_TRIALS = 10
THEIRS = "random_sample,pso,simulated_annealing,genetic_algorithm,greedy_ils,diff_evo"
OURS, WARM = "Kernloom", "Kernloom, warm"
WRAPPER = """
#include <time.h>
#define restrict __restrict
extern "C" {
SOURCE
float timed(float *C, const float *A, const float *B);
float timed(float *C, const float *A, const float *B)
{
    long size = SIZE;
    void *args[] = {&size, &size, &size, (void *)A, (void *)B, C};
    struct timespec start, end;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &start);
    kl_entry(args);
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &end);
    return (end.tv_sec - start.tv_sec) * 1e3f + (end.tv_nsec - start.tv_nsec) * 1e-6f;
}
}
"""


@dataclass(frozen=True)
class Step:
    """A point of a search: its key, its time as the search measured it, and when it ended."""

    key: str
    value: float | None
    seconds: float


@dataclass
class Found:
    """What the searches of one system came to, one item for each repeat."""

    seconds: list[float] = field(default_factory=list)
    """Until the best point is close to the best of all; infinite if it never is."""
    points: list[float] = field(default_factory=list)
    last: list[float] = field(default_factory=list)
    """Of the point that is best in the end, relative to the best of all."""
    whole: list[float] = field(default_factory=list)
    """Seconds of the whole search, with what follows it."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kernel-tuner", metavar="PYTHON", required=True)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--trials", type=int, default=60)
    parser.add_argument("--size", type=int, default=512)
    parser.add_argument("--strategies", default=THEIRS)
    parser.add_argument("--judge", metavar="FOLDER", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        bench = Searches(Path(name), options)
        found: dict[str, Found] = {}
        for seed in range(options.repeats):
            for system in (OURS, WARM, *options.strategies.split(",")):
                steps, whole = bench.search(system, seed)
                one = found.setdefault(system, Found())
                bench.judge(steps, one)
                one.whole.append(whole)
                print(
                    f"repeat {seed + 1}: {system}: {one.points[-1]:g} points, "
                    f"{one.seconds[-1]:.2f} s, in the end {one.last[-1]:.3f}",
                    file=sys.stderr,
                )
    print_table(found, bench)


def print_table(found: Mapping[str, Found], bench: Searches) -> None:
    print(
        f"{len(bench.times)} points, {bench.close} of them within 3% of the best; "
        f"medians of {bench.options.repeats} repeats"
    )
    headings = ("reached", "points", "seconds", "ratio", "in the end", "whole s")
    print(f"{'':24}" + "".join(heading.rjust(11) for heading in headings))
    ours = found[OURS]
    for system, one in found.items():
        reached = sum(map(math.isfinite, one.points))
        ratio = statistics.median(a / b for a, b in zip(one.seconds, ours.seconds, strict=True))
        cells = (
            f"{reached}/{len(one.points)}",
            f"{statistics.median(one.points):g}",
            f"{statistics.median(one.seconds):.2f}",
            f"{ratio:.2f}",
            f"{statistics.median(one.last):.3f}",
            f"{statistics.median(one.whole):.1f}",
        )
        print(f"{system:24}" + "".join(cell.rjust(11) for cell in cells))


class Searches:
    """The same search under both systems, in folders of their own."""

    def __init__(self, folder: Path, options: argparse.Namespace) -> None:
        self.options = options
        self._folder = folder
        self._size = options.size
        self._judge = options.judge or folder / "judge"
        self._prepared = folder / "prepared"
        self._prepared.mkdir()
        (self._prepared / "kernloom.yaml").touch()
        self._kernloom(self._prepared, "run", "workload=axpy")
        self._clear_store(self._prepared)
        plan = self._kernloom(self._prepared, "plan", "workload=matmul", *self._sizes())
        self._lanes = plan["trials"][0]["params"]["vectorize"]["multiply"]["lanes"]
        if not (self._judge / "judge.json").exists():
            self._measure_all()
        judge = json.loads((self._judge / "judge.json").read_text(encoding="utf-8"))
        self.times, self._flags = judge["times"], judge["flags"]
        self.best = min(self.times.values())
        self.close = sum(time <= CLOSE * self.best for time in self.times.values())
        self._warm = self._studied()

    def judge(self, steps: Sequence[Step], found: Found) -> None:
        best, first = math.inf, math.inf
        key, seconds = "", math.inf
        for number, step in enumerate(steps, 1):
            if step.value is not None and step.value < best:
                best, key = step.value, step.key
            if key and not math.isfinite(first) and self.times[key] <= CLOSE * self.best:
                first, seconds = number, step.seconds
        found.points.append(first)
        found.seconds.append(seconds)
        found.last.append(self.times[key] / self.best)

    def search(self, system: str, seed: int) -> tuple[list[Step], float]:
        """The points of a search in order, and its duration."""
        if system == WARM:
            return self._tune(self._warm, seed, WARM_TRIALS)
        if system == OURS:
            return self._tune(self._prepared, seed, self.options.trials)
        return self._kernel_tuner(system, seed)

    def _tune(self, prepared: Path, seed: int, trials: int) -> tuple[list[Step], float]:
        project = self._folder / "project"
        shutil.rmtree(project, ignore_errors=True)
        shutil.copytree(prepared, project)
        start = time.time()
        words = [*self._sizes(), *self._fixed(), f"trials={trials}", f"search.seed={seed}"]
        found = self._kernloom(project, "tune", "workload=matmul", *words)
        whole = time.time() - start
        steps = []
        for one in found["history"]:
            ended = datetime.fromisoformat(one["created"]).timestamp() - start
            costs = one["costs"]
            steps.append(Step(key_of(one["point"]), costs[0] if costs else None, ended))
        return sorted(steps, key=lambda step: step.seconds), whole

    def _kernel_tuner(self, strategy: str, seed: int) -> tuple[list[Step], float]:
        task = {
            "sources": str(self._judge / "sources.json"),
            "values": {name: list(map(int, values)) for name, (_, values) in AXES.items()},
            "wrapper": WRAPPER.replace("SIZE", str(self._size)),
            "flags": self._flags,
            "size": self._size,
            "samples": SAMPLES,
            "strategy": strategy,
            "evaluations": self.options.trials,
            "seed": seed,
        }
        given = self._folder / "task.json"
        given.write_text(json.dumps(task), encoding="utf-8")
        # Not resolved: an environment is found by the link to its interpreter.
        python = str(Path(self.options.kernel_tuner).absolute())
        argv = [python, str(HERE / "kernel_tuner/host.py"), str(given)]
        done = subprocess.run(argv, capture_output=True, text=True, cwd=self._folder)
        end = time.time()
        if done.returncode != 0:
            sys.exit(f"Kernel Tuner failed:\n{done.stderr[-2000:]}")
        start, points = json.loads(done.stdout.strip().splitlines()[-1])
        return [Step(key, value, ended - start) for key, value, ended in points], end - start

    # Preparation

    def _measure_all(self) -> None:
        """Keep the time of every point; those of the best come from the same rounds."""
        project = self._folder / "all"
        shutil.copytree(self._prepared, project)
        axes = [
            f"select.fixed.{group}.{name}={','.join(str(value).lower() for value in values)}"
            for name, (group, values) in AXES.items()
        ]
        words = ["-m", "workload=matmul", *self._sizes(), *self._fixed(), *axes]
        print("measuring all points", file=sys.stderr)
        # Every kernel alone, so that its source is what Kernel Tuner gets.
        more = [f"screen.keep={JUDGED}", "screen.batch=1", "measure=standard"]
        document = self._kernloom(project, "run", *words, *more)
        verified = [one for one in document["screened"] if one["verified"]]
        times = {_key_of_params(one["params"]): one["median_ns"] for one in verified}
        judged = [one for one in document["trials"] if one["verified"]]
        kept = [one["metrics"]["median_ns"] for one in judged]
        if max(kept) < CLOSE * min(kept):
            print(f"more than {JUDGED} points may be within 3%", file=sys.stderr)
        for one, time_ns in zip(judged, kept, strict=True):
            times[_key_of_params(one["params"])] = time_ns
        sources, flags = _sources(project)
        self._judge.mkdir(parents=True, exist_ok=True)
        for name, content in (
            ("sources", sources),
            ("judge", {"times": times, "flags": flags}),
        ):
            (self._judge / f"{name}.json").write_text(json.dumps(content), encoding="utf-8")

    def _studied(self) -> Path:
        """A project that has tuned two other sizes."""
        project = self._folder / "warm"
        shutil.copytree(self._prepared, project)
        for size in (self._size * 3 // 4, self._size * 3 // 2):
            print(f"studying size {size}", file=sys.stderr)
            words = [*self._sizes(size), *self._fixed(), f"trials={self.options.trials}"]
            self._kernloom(project, "tune", "workload=matmul", *words)
        # What was compiled for them would be cached.
        for folder in ("kernels", "cache"):
            shutil.rmtree(project / ".kernloom/build" / folder, ignore_errors=True)
        return project

    def _clear_store(self, project: Path) -> None:
        for path in (project / ".kernloom").glob("store.db*"):
            path.unlink()

    def _sizes(self, size: int = 0) -> list[str]:
        return [f"workload.sizes.{name}={size or self._size}" for name in "MNK"]

    def _fixed(self) -> list[str]:
        return ["select.fixed.parallelize.threads=1", f"select.fixed.vectorize.lanes={self._lanes}"]

    def _kernloom(self, project: Path, *words: str) -> dict[str, Any]:
        done = subprocess.run(
            [sys.executable, "-m", "kernloom", *words, "output=json"],
            capture_output=True,
            text=True,
            cwd=project,
            # Compiled once, as an installed program is.
            env={k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
            | {"PYTHONPATH": str(ENGINE)},
        )
        # Points outside of the space are refused, which the exit code says.
        if done.returncode not in (0, 1):
            sys.exit(f"kernloom {' '.join(words)} failed:\n{done.stderr[-2000:]}")
        found: dict[str, Any] = json.loads(done.stdout)
        return found


def _sources(project: Path) -> tuple[dict[str, str], list[str]]:
    """What was compiled for each point, and the flags of code generation."""
    sources, flags = {}, []
    for path in sorted(project.glob(".kernloom/build/kernels/*/manifest.json")):
        manifest = json.loads(path.read_text(encoding="utf-8"))
        if not manifest["name"].startswith("matmul"):
            continue
        groups = [group for group in manifest["params"].values() if isinstance(group, dict)]
        params = {name: value for group in groups for name, value in group.items()}
        sources[key_of(params)] = (path.parent / "kernel.c").read_text(encoding="utf-8")
        flags = [one for one in manifest["argv"] if one.startswith(("-O", "-march", "-f", "-m"))]
    return sources, flags


def key_of(point: Mapping[str, Any]) -> str:
    return ",".join(str(int(point[name])) for name in AXES)


def _key_of_params(params: Mapping[str, Any]) -> str:
    return key_of({name: params[group]["multiply"][name] for name, (group, _) in AXES.items()})


if __name__ == "__main__":
    main()
