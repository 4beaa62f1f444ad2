"""How soon a search on this machine finds a good point, beside Kernel Tuner on the same kernel.

    .venv/bin/python benchmarks/tuning_host.py --kernel-tuner PYTHON [--repeats 3] [--trials 60]
        [--size 512] [--strategies pso,...] [--judge FOLDER]

The space is that of the product of square matrices on one thread: tiles, blocks, packing, unrolling
and vectors. Both systems get the same sources and the flags of code generation, and measure CPU
time with as many samples. Kernel Tuner gets its sources rendered.

First all points are measured, and the best of them again in the same rounds. These times judge:
a search is done when it has tried a point within 3% of the best of all. Whether it knows that this
point is good is another question: of Kernloom the winners of the whole command are judged, too.
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
import re
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
    "lanes": ("vectorize", (16, 8, 4, 2, 1)),
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
class Command:
    """The outcome of a whole command: its winner's time relative to the best, and seconds."""

    winner: float
    seconds: float


@dataclass(frozen=True)
class Step:
    """A point of a search: its key, and when it was known."""

    key: str
    seconds: float


@dataclass
class Found:
    """The searches of one system, one item for each repeat."""

    seconds: list[float] = field(default_factory=list)
    """Until a point is close to the best of all; infinite if none is."""
    points: list[float] = field(default_factory=list)


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
                one = found.setdefault(system, Found())
                bench.judge(bench.search(system, seed), one)
                print(
                    f"repeat {seed + 1}: {system}: {one.points[-1]:g} points, "
                    f"{one.seconds[-1]:.2f} s",
                    file=sys.stderr,
                )
        print_table(found, bench)


def print_table(found: Mapping[str, Found], bench: Searches) -> None:
    print(
        f"{len(bench.times)} points, {len(bench.close)} of them within 3% of the best; "
        f"medians of {bench.options.repeats} repeats"
    )
    headings = ("reached", "points", "seconds", "ratio")
    print(f"{'':24}" + "".join(heading.rjust(10) for heading in headings))
    ours = found[OURS]
    for system, one in found.items():
        reached = sum(map(math.isfinite, one.points))
        ratio = statistics.median(a / b for a, b in zip(one.seconds, ours.seconds, strict=True))
        cells = (
            f"{reached}/{len(one.points)}",
            f"{statistics.median(one.points):g}",
            f"{statistics.median(one.seconds):.2f}",
            f"{ratio:.2f}",
        )
        print(f"{system:24}" + "".join(cell.rjust(10) for cell in cells))
    for system, commands in bench.commands.items():
        winners = ", ".join(f"{one.winner:.3f}" for one in commands)
        seconds = statistics.median(one.seconds for one in commands)
        print(f"{system}: winners at {winners} of the best; the whole command {seconds:.1f} s")


class Searches:
    """The same search under both systems, in folders of their own."""

    def __init__(self, folder: Path, options: argparse.Namespace) -> None:
        self.options = options
        self._folder = folder
        self._size = options.size
        self._judge = (options.judge or folder / "judge").absolute()
        self._prepared = folder / "prepared"
        self._prepared.mkdir()
        (self._prepared / "kernloom.yaml").touch()
        self._kernloom(self._prepared, "run", "workload=axpy")
        self._clear_store(self._prepared)
        if not (self._judge / "judge.json").exists():
            self._measure_all()
        judge = json.loads((self._judge / "judge.json").read_text(encoding="utf-8"))
        self.times, self._flags = judge["times"], judge["flags"]
        self.best = min(self.times.values())
        self.close = [key for key, ns in self.times.items() if ns <= CLOSE * self.best]
        self.commands: dict[str, list[Command]] = {}
        self._warm = self._studied()

    def judge(self, steps: Sequence[Step], found: Found) -> None:
        """Add when a point of a search was close to the best of all."""
        for number, step in enumerate(steps, 1):
            if step.key in self.close:
                found.points.append(number)
                found.seconds.append(step.seconds)
                return
        found.points.append(math.inf)
        found.seconds.append(math.inf)

    def search(self, system: str, seed: int) -> list[Step]:
        """The points of a search in order."""
        if system == WARM:
            return self._tune(system, self._warm, seed, WARM_TRIALS)
        if system == OURS:
            return self._tune(system, self._prepared, seed, self.options.trials)
        return self._kernel_tuner(system, seed)

    def _tune(self, system: str, prepared: Path, seed: int, trials: int) -> list[Step]:
        project = self._folder / "project"
        shutil.rmtree(project, ignore_errors=True)
        shutil.copytree(prepared, project)
        start = time.time()
        words = [*self._sizes(), *self._fixed(), f"trials={trials}", f"search.seed={seed}"]
        found = self._kernloom(project, "tune", "workload=matmul", *words)
        whole = time.time() - start
        winner = self.times[key_of(found["winner"]["point"])] / self.best
        self.commands.setdefault(system, []).append(Command(winner, whole))
        steps = []
        for one in found["history"]:
            ended = datetime.fromisoformat(one["created"]).timestamp() + one["seconds"] - start
            steps.append(Step(key_of(one["point"]), ended))
        return sorted(steps, key=lambda step: step.seconds)

    def _kernel_tuner(self, strategy: str, seed: int) -> list[Step]:
        task = {
            "sources": str(self._judge / "sources.json"),
            # Kernel Tuner defines macros of these names.
            "values": {f"P_{name}": list(map(int, values)) for name, (_, values) in AXES.items()},
            "wrapper": WRAPPER.replace("SIZE", str(self._size)),
            "flags": self._flags,
            "size": self._size,
            "samples": SAMPLES,
            "strategy": strategy,
            "evaluations": self.options.trials,
            "seed": seed,
            "close": self.close,
        }
        given = self._folder / "task.json"
        given.write_text(json.dumps(task), encoding="utf-8")
        # Not resolved: an environment is found by the link to its interpreter.
        python = str(Path(self.options.kernel_tuner).absolute())
        argv = [python, str(HERE / "kernel_tuner/host.py"), str(given)]
        done = subprocess.run(argv, capture_output=True, text=True, cwd=self._folder)
        if done.returncode != 0:
            sys.exit(f"Kernel Tuner failed:\n{done.stderr[-2000:]}")
        start, points = json.loads(done.stdout.strip().splitlines()[-1])
        return [Step(key, ended - start) for key, ended in points]

    # Preparation

    def _measure_all(self) -> None:
        """Keep the time of every point; those of the best come from the same rounds."""
        project = self._folder / "all"
        shutil.copytree(self._prepared, project)
        words = ["-m", "workload=matmul", *self._sizes(), *self._fixed()]
        axes = {name: values for name, (_, values) in AXES.items()}
        print("measuring all points", file=sys.stderr)
        more = [*_chosen(axes), f"screen.keep={JUDGED}", "measure=standard"]
        document = self._kernloom(project, "run", *words, *more)
        verified = [one for one in document["screened"] if one["verified"]]
        times = {_key_of_params(one["params"]): one["median_ns"] for one in verified}
        judged = [one for one in document["trials"] if one["verified"]]
        kept = [one["metrics"]["median_ns"] for one in judged]
        if max(kept) < CLOSE * min(kept):
            print(f"more than {JUDGED} points may be within 3%", file=sys.stderr)
        for one, time_ns in zip(judged, kept, strict=True):
            times[_key_of_params(one["params"])] = time_ns
        sources: dict[str, str] = {}
        # Only valid points can be shown, and these two alone decide.
        for mr, nv in {tuple(map(int, key.split(",")[:2])) for key in times}:
            chosen = _chosen(axes | {"mr": (mr,), "nv": (nv,)})
            shown = self._kernloom(project, "plan", *words, *chosen, "show=source.sources")
            sources |= dict(_source_of(step["files"]["kernel.c"]) for (step,) in shown)
        flags = _flags(project)
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
            self._kernloom(project, "tune", "workload=matmul", "leaders=1", "stages=1", *words)
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
        return ["select.fixed.parallelize.threads=1"]

    def _kernloom(self, project: Path, *words: str) -> Any:
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
        return json.loads(done.stdout)


def _chosen(axes: Mapping[str, Sequence[int]]) -> list[str]:
    """Overrides that select values of the tunables."""
    return [
        f"select.fixed.{AXES[name][0]}.{name}={','.join(str(value).lower() for value in values)}"
        for name, values in axes.items()
    ]


def _source_of(text: str) -> tuple[str, str]:
    """A source with the key of its point, which its first comment tells."""
    values = dict(re.findall(r"(\w+)=(\w+)", text[: text.index("*/")]))
    flags = {"true": 1, "false": 0}
    return key_of({name: flags.get(value, value) for name, value in values.items()}), text


def _flags(project: Path) -> list[str]:
    """The flags of code generation."""
    for path in project.glob(".kernloom/build/kernels/*/manifest.json"):
        manifest = json.loads(path.read_text(encoding="utf-8"))
        if manifest["name"].startswith("matmul"):
            argv = manifest["argv"]
            return [flag for flag in argv if flag.startswith(("-O", "-march", "-f", "-m"))]
    sys.exit("nothing was built")


def key_of(point: Mapping[str, Any]) -> str:
    return ",".join(str(int(point[name])) for name in AXES)


def _key_of_params(params: Mapping[str, Any]) -> str:
    return key_of({name: params[group]["multiply"][name] for name, (group, _) in AXES.items()})


if __name__ == "__main__":
    main()
