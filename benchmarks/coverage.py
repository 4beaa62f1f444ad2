"""How often the 95% interval of a run contains the median of all runs, beside a busy neighbour.

One kernel, run again and again through the command line, by the policy as it is and with rounds one
after the other and no allowance for drift, as policies were before. Both take turns, so that they
see the same minutes.

  .venv/bin/python benchmarks/coverage.py [--runs N] [--seconds S] [--quiet-machine] [key=value ...]
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from statistics import mean, median

from busy import busy_neighbours

ENGINE = Path(__file__).resolve().parent.parent / "engine"
POLICIES = {
    "rounds alone": ["measure.span_s=0", "measure.drift=0", "measure.min_rounds=5"],
    "as it is": [],
}


@dataclass
class Runs:
    """The runs of one policy."""

    medians: list[float] = field(default_factory=list)
    intervals: list[tuple[float, float]] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    disagreeing: int = 0

    def add(self, trial: dict[str, object], seconds: float) -> None:
        metrics = trial["metrics"]
        assert isinstance(metrics, dict)
        self.medians.append(metrics["median_ns"])
        self.intervals.append((metrics["ci_low_ns"], metrics["ci_high_ns"]))
        self.seconds.append(seconds)
        self.disagreeing += "disagree" in str(trial["warnings"])

    def row(self, name: str) -> str:
        middle = median(self.medians)
        covering = sum(low <= middle <= high for low, high in self.intervals)
        half = mean((high - low) / 2 / middle for low, high in self.intervals)
        low, high = min(self.medians) / middle - 1, max(self.medians) / middle - 1
        return (
            f"{name:14}{len(self.medians):5}{covering / len(self.medians):10.0%}"
            f"{half:9.1%}{low:+11.1%}{high:+9.1%}{median(self.seconds):8.1f}{max(self.seconds):8.1f}{self.disagreeing:11}"
        )


def run(project: Path, words: list[str]) -> tuple[dict[str, object], float]:
    environment = {**os.environ, "PYTHONPATH": str(ENGINE)}
    command = [sys.executable, "-m", "kernloom", "run", *words, "rerun=all", "output=json"]
    start = time.monotonic()
    done = subprocess.run(
        command, cwd=project, env=environment, check=False, capture_output=True, text=True
    )
    seconds = time.monotonic() - start
    if done.returncode:
        sys.exit(done.stderr or done.stdout)
    trial: dict[str, object] = json.loads(done.stdout)["trials"][0]
    return trial, seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=50)
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--quiet-machine", action="store_true")
    parser.add_argument("words", nargs="*")
    given = parser.parse_args()
    words = given.words or ["workload=axpy", "measure=standard"]
    with (
        tempfile.TemporaryDirectory() as folder,
        busy_neighbours(on=not given.quiet_machine) as load,
    ):
        project = Path(folder)
        (project / "kernloom.yaml").touch()
        run(project, [*words, "seed=1"])  # Builds.
        print(f"{given.runs} runs of each over {given.seconds:g} s, {' '.join(words)}, {load}")
        found = {name: Runs() for name in POLICIES}
        start = time.monotonic()
        for number in range(given.runs):
            time.sleep(max(0.0, start + number * given.seconds / given.runs - time.monotonic()))
            for name, changes in POLICIES.items():
                found[name].add(*run(project, [*words, *changes]))
        print(
            f"{'policy':14}{'runs':>5}{'coverage':>10}{'± mean':>9}{'fastest':>11}{'slowest':>9}"
            f"{'s each':>8}{'most':>8}{'disagree':>11}"
        )
        for name, runs in found.items():
            print(runs.row(name))


if __name__ == "__main__":
    main()
