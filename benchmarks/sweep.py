"""Points per second of a sweep, beside Kernel Tuner on the same kernel, flags and machine.

The kernel is the plain C product of matrices in tiled/, with 197 points of tile sizes and unrolling
and seven samples of each. Phases take turns, round by round, so that what else the machine does
disturbs them alike:

    alone      every point built by itself, nothing cached
    screening  every point looked at, many compiled together; the best built and measured in full
    cached     everything built and stored before

The first two again with fleet.overlap=false: nothing is measured before all is built.

Of Kernel Tuner only the time inside tune_kernel counts; of Kernloom the whole command does, from
the start of its interpreter to its end, table and database included.

    .venv/bin/python benchmarks/sweep.py --kernel-tuner PYTHON [--rounds 3]

PYTHON is an interpreter with kernel-tuner 1.5 installed.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ENGINE = HERE.parent / "engine"
SIZE, SAMPLES, KEEP = 256, 7, 10
MACROS = {"ti": "TI", "tj": "TJ", "tk": "TK", "u": "UNROLL"}
APART = "fleet.overlap=false"
TARGETS = {"alone": 2.2, "screening": 3.0, "cached": 10.0}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kernel-tuner", metavar="PYTHON", required=True)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        bench = Sweeps(Path(name), options.kernel_tuner)
        phases: dict[str, Callable[[], float]] = {
            "Kernel Tuner": bench.kernel_tuner,
            "Kernel Tuner, its cache": lambda: bench.kernel_tuner(cached=True),
            "alone": lambda: bench.kernloom(cold=True),
            "cached": lambda: bench.kernloom(cold=False),
            "screening": lambda: bench.kernloom(f"screen.keep={KEEP}", cold=True),
            "alone, built first": lambda: bench.kernloom(APART, cold=True),
            "screening, built first": lambda: bench.kernloom(
                f"screen.keep={KEEP}", APART, cold=True
            ),
        }
        rates: dict[str, list[float]] = {phase: [] for phase in phases}
        for round, (phase, run) in itertools.product(range(options.rounds), phases.items()):
            rates[phase].append(bench.points / run())
            print(f"round {round + 1}: {phase}: {rates[phase][-1]:.1f} points/s", file=sys.stderr)
    print_table(rates, bench.points)


def print_table(rates: dict[str, list[float]], points: int) -> None:
    peer = rates["Kernel Tuner"]
    print(f"{points} points, {SAMPLES} samples each, {os.cpu_count()} cores; medians of rounds")
    print(f"{'':26}{'points/s':>10}{'ratio':>8}{'wanted':>8}")
    for phase, found in rates.items():
        ratio = statistics.median(a / b for a, b in zip(found, peer, strict=True))
        wanted = f"{TARGETS[phase]:.1f}" if phase in TARGETS else ""
        print(f"{phase:26}{statistics.median(found):10.1f}{ratio:8.2f}{wanted:>8}")


class Sweeps:
    """The sweep under both systems, in folders of their own."""

    def __init__(self, folder: Path, kernel_tuner: str) -> None:
        self._folder = folder
        self._python = kernel_tuner
        self._project = folder / "project"
        shutil.copytree(HERE / "tiled", self._project, ignore=shutil.ignore_patterns(".kernloom"))
        kernel = self._plan()
        self._values = {
            f"{transform}.{name}": tunable["values"]
            for transform, group in kernel["tunables"].items()
            for name, tunable in group.items()
        }
        self._constraints = kernel["constraints"]
        # The runner and what is known about the compiler: Kernel Tuner has neither to make.
        started = self._run(["run", "workload=axpy", "output=json"])
        self._flags = self._compiler_flags(json.loads(started))
        shutil.copytree(self._project / ".kernloom", folder / "prepared")
        self.points = self._allowed()

    def _plan(self) -> dict[str, Any]:
        shown = json.loads(self._run(["plan", "workload=tiled", "output=json"]))
        assert shown["trials"], "the project tiled has no plan"
        sys.path.insert(0, str(ENGINE))
        from kernloom.config.reader import load_yaml

        path = self._project / "configs/kernel/tiled.yaml"
        found: dict[str, Any] = load_yaml(path.read_text(encoding="utf-8"), where=str(path))
        return found

    def _compiler_flags(self, document: dict[str, Any]) -> list[str]:
        """What our kernels are compiled with, less what concerns C alone, or linking."""
        key = document["trials"][0]["artifacts"][0]["key"]
        path = self._project / f".kernloom/build/kernels/{key}/manifest.json"
        argv = json.loads(path.read_text(encoding="utf-8"))["argv"]
        return [flag for flag in argv if flag.startswith(("-O", "-march", "-f", "-m"))]

    def _allowed(self) -> int:
        from kernloom.base.expressions import evaluate

        names = [name.split(".")[-1] for name in self._values]
        return sum(
            all(evaluate(text, dict(zip(names, point, strict=True))) for text in self._constraints)
            for point in itertools.product(*self._values.values())
        )

    def kernel_tuner(self, *, cached: bool = False) -> float:
        """Seconds that Kernel Tuner needs; uncached, it writes the cache."""
        cache = self._folder / "kernel_tuner.json"
        if not cached:
            cache.unlink(missing_ok=True)
        constraints = [_with_macros(text) for text in self._constraints]
        space = {
            "size": SIZE,
            "samples": SAMPLES,
            "flags": self._flags,
            "values": {MACROS[k.split(".")[-1]]: list(v) for k, v in self._values.items()},
            "constraints": constraints,
            "cache": str(cache),
        }
        given = self._folder / "space.json"
        given.write_text(json.dumps(space), encoding="utf-8")
        script = HERE / "kernel_tuner" / "tune.py"
        done = subprocess.run(
            [self._python, script, given], capture_output=True, text=True, cwd=self._folder
        )
        if done.returncode != 0:
            sys.exit(f"Kernel Tuner failed:\n{done.stderr[-2000:]}")
        found = json.loads(done.stdout.strip().splitlines()[-1])
        assert found["points"] == self.points, found
        return float(found["seconds"])

    def kernloom(self, *words: str, cold: bool) -> float:
        """Seconds that the command needs, all in all."""
        if cold:
            shutil.rmtree(self._project / ".kernloom")
            shutil.copytree(self._folder / "prepared", self._project / ".kernloom")
        axes = [f"select.fixed.{name}={','.join(map(str, v))}" for name, v in self._values.items()]
        start = time.perf_counter()
        printed = self._run(["run", "-m", "workload=tiled", *axes, *words, "output=json"])
        seconds = time.perf_counter() - start
        document = json.loads(printed)
        screened = document.get("screened", document["trials"])
        good = sum(trial["verified"] for trial in screened)
        assert good == self.points, f"{good} of {self.points} points verified"
        return seconds

    def _run(self, words: Sequence[str]) -> str:
        # Points outside of the space are refused, which the exit code says.
        done = subprocess.run(
            [sys.executable, "-m", "kernloom", *words],
            capture_output=True,
            text=True,
            cwd=self._project,
            # Compiled once, as an installed program is.
            env={k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
            | {"PYTHONPATH": str(ENGINE)},
        )
        if done.returncode not in (0, 1):
            sys.exit(f"kernloom {' '.join(words)} failed:\n{done.stderr[-2000:]}")
        return done.stdout


def _with_macros(constraint: str) -> str:
    import re

    return re.sub(r"[a-z]+", lambda match: MACROS.get(match[0], match[0]), constraint)


if __name__ == "__main__":
    main()
